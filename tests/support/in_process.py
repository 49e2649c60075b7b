"""Coordinator and sites in one process: a transport that loses, repeats or corrupts what a test wants."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import rows
from federations import weights

from moonfed.experiments.execute import execute
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder, make_coordinator_folder
from moonfed.federation.pki.site_folder import SiteFolder, SiteSettings, make_site_folder
from moonfed.federation.protocol.request import Envelope, read_reply, reply_envelope
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.trainer import SiteTrainer
from moonfed.training.config import Config, make_config
from moonfed.training.setup import set_up

# Called with the site, the number of requests it has had, the request and its reply; returns what arrives of the reply.
Fault = Callable[[str, int, Envelope, Envelope], list[Envelope]]
Numbers = dict[str, int | float]


def no_fault(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
    """A transport on which everything arrives."""
    return [reply]


def recording(requests: list[Envelope]) -> Fault:
    """A transport on which everything arrives, and which keeps the requests."""

    def keep(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        requests.append(request)
        return [reply]

    return keep


class InProcessTransport:
    """Carries envelopes to sites in this process, with the faults that a test wants."""

    def __init__(self, folders: dict[str, SiteFolder], fault: Fault = no_fault) -> None:
        self.folders, self.fault = folders, fault
        self.trainers = {name: SiteTrainer(folder) for name, folder in folders.items()}
        self.requests = dict.fromkeys(folders, 0)
        self.replies: list[tuple[str, Envelope | str]] = []
        self.sessions = dict.fromkeys(folders, 0)

    def connected(self) -> dict[str, str]:
        return {name: str(session) for name, session in self.sessions.items()}

    def send(self, site: str, envelope: Envelope) -> None:
        self.requests[site] += 1
        reply = self.trainers[site].answer(envelope)
        self.replies += [(site, copy) for copy in self.fault(site, self.requests[site], envelope, reply)]

    def receive(self) -> list[tuple[str, Envelope | str]]:
        replies, self.replies = self.replies, []
        return replies

    def discard_pending(self) -> None:
        pass

    def restart(self, site: str) -> None:
        """End a site's process and start another one in its folder."""
        self.trainers[site] = SiteTrainer(self.folders[site])
        self.sessions[site] += 1


class World:
    """A coordinator with three sites, and the same trial simulated."""

    def __init__(self, path: Path, algorithm: str = "moon", rounds: int = 3) -> None:
        self.path, self.algorithm = path, algorithm
        self.coordinator: CoordinatorFolder = make_coordinator_folder(path / "coordinator", "127.0.0.1", 9443, 1)
        self.folders: dict[str, SiteFolder] = {}
        for i in range(3):
            folder = make_site_folder(path / f"s{i}", self.coordinator.invitation, SiteSettings(f"s{i}", share=i))
            self.coordinator.admit(f"s{i}", folder.public_key_path)
            self.folders[f"s{i}"] = folder
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
        self, transport: InProcessTransport, resume: bool = False, rounds: int = 3, **limits: Any
    ) -> list[dict[str, Any]]:
        values: dict[str, Any] = {"deadline": 0.5, "patience": 0, "attempts": 1} | limits
        out = self.path / "run"
        settings = FederationSettings(**values)
        outcome = serve(self.settings(rounds), out, resume, self.coordinator, transport, settings)
        assert outcome.failure is None
        return rows(out)

    def simulated(self) -> dict[str, str]:
        execute(*set_up([self.config]), [self.path / "here"])
        return weights(self.path / "here")

    def rejections(self) -> str:
        return (self.path / "run" / "refused.jsonl").read_text()


def lying(world: World, liar: str, change: Callable[[Numbers], Numbers], enrolling: bool) -> Fault:
    """A transport on which one site signs other numbers than its own, when it enrols or else in every round."""
    key = world.folders[liar].private_key()

    def lie(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site != liar or (count == 1) != enrolling:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        said = change(numbers)
        return [reply_envelope(claim, said, reply.tensors, sign(key, claim, said, reply.tensors))]

    return lie


def exaggerated(numbers: Numbers) -> Numbers:
    """Report far more rows than there are."""
    return {name: 10**10 if name == "rows" else 10**9 for name in (*numbers, "rows")}


def log_of(site: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What one site's trainer has logged."""
    return [record.getMessage() for record in caplog.records if getattr(record, "site", None) == site]


def capture(caplog: pytest.LogCaptureFixture) -> None:
    """Capture what moonfed logs from INFO on."""
    caplog.set_level(logging.INFO, "moonfed")
