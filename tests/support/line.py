"""Coordinator and sites without a network: a line that loses, repeats or spoils what a test wants."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import rows
from federations import weights

from moonfed.experiments.execute import run_trials
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.listener import Listener
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.pki.coordinator_folder import Home, make_home
from moonfed.federation.pki.site_folder import SitePlace, SiteSettings, make_site
from moonfed.federation.protocol.request import Note
from moonfed.federation.site.trainer import Site
from moonfed.training.config import Config, make_config

Fault = Callable[[str, int, Note, Note], list[Note]]  # site, how many asks it had, ask, reply: what arrives of it


def as_it_is(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
    """A wire on which everything arrives."""
    return [reply]


class Line:
    """Carries notes to sites in this process, with the faults that a test wants."""

    def __init__(self, places: dict[str, SitePlace], fault: Fault = as_it_is) -> None:
        self.places, self.fault = places, fault
        self.sites = {name: Site(place) for name, place in places.items()}
        self.asks = dict.fromkeys(places, 0)
        self.came: list[tuple[str, Note | str]] = []
        self.words = dict.fromkeys(places, 0)

    def present(self) -> dict[str, str]:
        return {name: str(word) for name, word in self.words.items()}

    def send(self, site: str, note: Note) -> None:
        self.asks[site] += 1
        reply = self.sites[site].answer(note)
        self.came += [(site, copy) for copy in self.fault(site, self.asks[site], note, reply)]

    def collect(self) -> list[tuple[str, Note | str]]:
        came, self.came = self.came, []
        return came

    def forget(self) -> None:
        pass

    def restart(self, site: str) -> None:
        """Let a site's process end and another one begin in its folder."""
        self.sites[site] = Site(self.places[site])
        self.words[site] += 1


class World:
    """A coordinator with three sites, and the same trial simulated."""

    def __init__(self, folder: Path, algorithm: str = "moon", rounds: int = 3) -> None:
        self.folder, self.algorithm = folder, algorithm
        self.home: Home = make_home(folder / "coordinator", "127.0.0.1", 9443, 1)
        self.places: dict[str, SitePlace] = {}
        for i in range(3):
            place = make_site(folder / f"s{i}", self.home.invitation, SiteSettings(f"s{i}", share=i))
            self.home.admit(f"s{i}", place.public)
            self.places[f"s{i}"] = place
        self.config = self.settings(rounds)

    def settings(self, rounds: int) -> Config:
        return make_config(
            {
                "algorithm": {"name": self.algorithm},
                "data": {"parties": 3},
                "model": {"model": "mlp"},
                "train": {"rounds": rounds, "epochs": 1, "batch": 40},
                "run": {"engine": "sequential"},
            }
        )

    def federate(
        self,
        line: Line,
        resume: bool = False,
        rounds: int = 3,
        say: Callable[[str], None] = lambda line: None,
        **waiting: Any,
    ) -> list[dict[str, Any]]:
        values: dict[str, Any] = {"deadline": 0.5, "patience": 0, "attempts": 1} | waiting
        out = self.folder / "run"
        outcome = serve(
            self.settings(rounds), out, resume, self.home, line, FederationSettings(**values), Listener(say=say)
        )
        assert outcome.failure is None
        return rows(out)

    def simulated(self) -> dict[str, str]:
        run_trials([(self.config, self.folder / "here")], False)
        return weights(self.folder / "here")

    def refusals(self) -> str:
        return (self.folder / "run" / "refused.jsonl").read_text()
