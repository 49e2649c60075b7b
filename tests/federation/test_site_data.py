"""Sites with rows of their own: read as the coordinator's were, checked at the door, trained on as in a simulation."""

import csv
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Attempt, moonfed, refused
from federations import assert_nothing_runs, weights
from line import Line
from own_rows import people, write_csv

from moonfed.core.errors import RunFailed, UserError
from moonfed.data.catalog.digits import digits
from moonfed.experiments.execute import run_trials
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import Home, make_home
from moonfed.federation.pki.site_folder import SitePlace, SiteSettings, make_site
from moonfed.federation.protocol.request import Note
from moonfed.federation.site.trainer import Site
from moonfed.training.config import Config, make_config
from moonfed.training.trial import resolve, split_rows

LIMITS = FederationSettings(deadline=1, patience=0, attempts=1)  # type: ignore[call-arg]
NAMES = ("a", "b", "c")


class World:
    """A table of three sites in one file, the same rows at three sites, and test rows that the coordinator has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.union, self.test = people(folder / "union.csv", 90), people(folder / "test.csv", 30)
        with self.union.open(newline="") as file:
            table = list(csv.DictReader(file))
        self.places: dict[str, SitePlace] = {}
        self.said: dict[str, list[str]] = {name: [] for name in NAMES}
        self.home: Home = make_home(folder / "coordinator", "127.0.0.1", 9443, 1)
        for name in NAMES:  # its columns in another order, one more, and the class under another name
            rows = [
                [row["kind"], row["weight"], "none", row["age"], row["colour"]] for row in table if row["site"] == name
            ]
            write_csv(folder / f"{name}.csv", ["sort", "weight", "remark", "age", "colour"], rows)
            self.join(name, data=str(folder / f"{name}.csv"), label="sort")

    def join(self, name: str, **settings: Any) -> None:
        """Make a site, or make it anew."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.home.sites / f"{name}.pub").unlink(missing_ok=True)
        self.places[name] = make_site(self.folder / name, self.home.invitation, SiteSettings(name, **settings))
        self.home.admit(name, self.places[name].public)

    def config(self, rounds: int = 2, **data: Any) -> Config:
        held = {"path": str(self.union), "label": "kind", "party": "site", "test": str(self.test)}
        train = {"rounds": rounds, "epochs": 1, "batch": 5}
        return make_config({"data": held | data, "train": train, "run": {"engine": "sequential"}})

    def line(self) -> Line:
        line = Line(self.places)
        line.sites = {name: Site(place, self.said[name].append) for name, place in self.places.items()}
        return line

    def federate(self, line: Line | None = None, resume: bool = False, rounds: int = 2) -> Any:
        return serve(self.config(rounds), self.folder / "run", resume, self.home, line or self.line(), LIMITS)

    def simulated(self) -> dict[str, str]:
        run_trials([(self.config(), self.folder / "here")], False)
        return weights(self.folder / "here")

    def refusals(self, line: Line | None = None) -> str:
        """Start a run that cannot begin, and return what the coordinator says."""
        with pytest.raises(RunFailed) as failure:
            self.federate(line)
        assert str(self.folder) not in str(failure.value)
        return str(failure.value)


def test_three_sites_with_rows_of_their_own_compute_what_one_table_with_a_site_column_computes(tmp_path: Path):
    """The coordinator's encoding is learned from the same rows as the simulation's: then the bits are the same."""
    world = World(tmp_path)
    outcome = world.federate()
    assert outcome.rows[-1]["cohort"] == [0, 1, 2]
    assert weights(tmp_path / "run") == world.simulated()
    there, here = (json.loads((tmp_path / at / "evaluation.json").read_text()) for at in ("run", "here"))
    assert there["confusion"] == here["confusion"]


def test_the_model_of_such_a_federation_predicts(tmp_path: Path):
    world = World(tmp_path)
    world.federate()
    answer = moonfed("predict", tmp_path / "run", world.test, "--json")
    assert answer.code == 0, answer
    assert json.loads((tmp_path / "run" / "config.json").read_text())["parties"] == list(NAMES)


def test_another_reference_than_the_union_of_the_rows_will_do(tmp_path: Path):
    world = World(tmp_path)
    people(world.union, 21)  # a sample that the coordinator may have
    world.federate()
    assert weights(tmp_path / "run") != world.simulated()


def test_pictures_of_a_sites_own_train_as_its_share_of_a_known_data_set_would(tmp_path: Path):
    values = {"model": {"model": "mlp"}, "train": {"rounds": 2, "epochs": 1, "batch": 40}, "data": {"parties": 2}}
    config, data = make_config(values | {"run": {"engine": "sequential"}}), digits()
    home = make_home(tmp_path / "coordinator", "127.0.0.1", 9443, 1)
    places: dict[str, SitePlace] = {}
    for i, rows in enumerate(split_rows(resolve(config, data), data)):
        np.savez(tmp_path / f"{i}.npz", x=data.inputs[rows].numpy(), y=data.labels[rows].numpy())
        settings = SiteSettings(f"s{i}", data=str(tmp_path / f"{i}.npz"))
        places[f"s{i}"] = make_site(tmp_path / f"s{i}", home.invitation, settings)
        home.admit(f"s{i}", places[f"s{i}"].public)
    serve(config, tmp_path / "run", False, home, Line(places), LIMITS)
    run_trials([(config, tmp_path / "here")], False)
    assert weights(tmp_path / "run") == weights(tmp_path / "here")


def test_no_file_of_the_coordinator_is_named_to_a_site_and_the_encoding_travels_once(tmp_path: Path):
    world = World(tmp_path)
    line, asks = world.line(), list[Note]()
    line.fault = lambda site, count, ask, reply: [asks.append(ask) or reply]  # type: ignore[func-returns-value]
    world.federate(line)
    assert len(asks) == 9
    assert sum("encoding" in ask.words for ask in asks) == 3
    for ask in asks:
        assert not any(str(tmp_path) in str(word) or "union" in str(word) for word in ask.words.values())


def test_a_site_that_is_restarted_knows_how_rows_are_read_and_one_that_forgot_says_so(tmp_path: Path):
    world = World(tmp_path)
    line = world.line()

    def forgetting(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        line.sites[site] = Site(world.places[site], world.said[site].append)
        if site == "b" and asks == 2:
            next((tmp_path / "b" / "memory").rglob("encoding.json")).unlink()
        return [reply]

    line.fault = forgetting
    outcome = world.federate(line)
    assert [row["cohort"] for row in outcome.rows] == [[0, 1, 2], [0, 2]]
    assert "how rows are read in this run is no longer known here" in (tmp_path / "run" / "refused.jsonl").read_text()


def test_an_encoding_that_was_changed_on_the_way_is_refused(tmp_path: Path):
    world = World(tmp_path)
    line, asks = world.line(), list[Note]()
    line.fault = lambda site, count, ask, reply: [asks.append(ask) or reply]  # type: ignore[func-returns-value]
    world.federate(line, rounds=1)
    ask = next(ask for ask in asks if "encoding" in ask.words)
    changed = Note({**ask.words, "encoding": str(ask.words["encoding"]).replace('"x"', '"z"')}, {})
    vast = Note({**ask.words, "encoding": " " * (1 << 25)}, {})
    site = Site(world.places["a"])
    assert "the encoding is not the one that the coordinator signed" in str(site.answer(changed).words["refused"])
    assert "text of at most 16 MiB" in str(site.answer(vast).words["refused"])


def test_a_run_goes_on_with_the_same_data_to_the_same_bits_and_refuses_other(tmp_path: Path):
    world = World(tmp_path)
    world.federate(rounds=1)
    rows = world.union.read_text()
    world.union.write_text(rows.replace("21,", "47,"))
    with pytest.raises(UserError, match="was run with other data"):
        world.federate(resume=True)
    world.union.write_text(rows)
    world.federate(resume=True)
    assert weights(tmp_path / "run") == world.simulated()


@pytest.mark.parametrize(
    ("change", "at_home", "elsewhere"),
    [
        (
            ("x,", "z,"),
            'b.csv line 2 (label "z" was never seen in training)',
            "are of classes that this run does not have",
        ),
        (("weight", "mass"), 'no column of b.csv "weight"', "its rows cannot be read as this run needs them"),
        (("x,", "x,heavy "), 'weight "heavy', "it has bad rows"),
    ],
)
def test_a_site_whose_rows_do_not_fit_says_all_at_home_and_little_elsewhere(
    tmp_path: Path, change: tuple[str, str], at_home: str, elsewhere: str
):
    world = World(tmp_path)
    rows = tmp_path / "b.csv"
    rows.write_text(rows.read_text().replace(*change))
    said = world.refusals()
    assert said.startswith("b cannot take part: ")
    assert elsewhere in said
    assert "b.csv" not in said
    assert '"z"' not in said
    assert at_home in world.said["b"][-1]


def test_a_site_with_rows_of_another_kind_and_one_with_a_share_say_so(tmp_path: Path):
    world = World(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((8, 4)), y=np.arange(8) % 2)
    world.join("a", data=str(tmp_path / "x.npz"))
    world.join("c", share=2)
    said = world.refusals()
    assert "a cannot take part: its rows are numbers, and this run is on table" in said
    assert "c cannot take part: this run is on rows like the coordinator's own" in said


def test_rows_are_looked_at_when_a_site_is_made(place: Path):
    home = make_home(place / "coordinator", "127.0.0.1", 9443, 1)
    where = ("--invitation", home.invitation, "--name", "north")
    people(place / "rows.csv")
    answer = moonfed("site", "init", place / "north", *where, "--data", "rows.csv", "--label", "kind")
    assert answer.code == 0, answer
    assert answer.out.startswith("rows.csv: 60 rows, 2 classes\n")
    assert SitePlace(place / "north").settings == SiteSettings("north", data=str(place / "rows.csv"), label="kind")
    write_csv(place / "bad.csv", ["age", "kind"], [[1, "x"], [2, ""], [3, "y"]])
    for words, line in (
        (("--data", "rows.csv"), "which column is the class? --label COLUMN"),
        (("--data", "bad.csv", "--label", "kind"), "bad.csv has a bad row of 3: bad.csv line 3 (kind is empty)"),
        (("--data", "gone.csv"), "no file or folder"),
        (("--data", "rows.csv", "--label", "kind", "--share", "0"), "either --data PATH, or --share N"),
        (("--share", "0", "--label", "kind"), "are about a site's own rows; name them with --data"),
    ):
        assert line in refused(moonfed("site", "init", place / "south", *where, *words))
        assert not (place / "south").exists()
    skipping = ("--data", "bad.csv", "--label", "kind", "--skip-bad-rows")
    assert moonfed("site", "init", place / "south", *where, *skipping).out.startswith("bad.csv: 2 rows, 2 classes\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--validation", "0.2"), "--validation holds rows out that a coordinator does not have"),
        (("--model", "mine.py:Net"), "sites have no encoder mine.py:Net, and run no code that is sent to them"),
        (("--partition", "iid"), "--partition iid splits rows, and here each site has its own"),
    ],
)
def test_what_a_federation_cannot_do_with_data_of_ones_own_is_refused(place: Path, words: tuple[str, str], line: str):
    home = make_home(place / "coordinator", "127.0.0.1", free_port(), 1)
    site = make_site(place / "north", home.invitation, SiteSettings("north", data=str(people(place / "rows.csv"))))
    home.admit("north", site.public)
    settings = ("--data", "rows.csv", "--label", "kind", "--out", "run", *words)
    assert line in refused(moonfed("federation", "start", home.path, *settings))
    assert "moonfed site init --data" in refused(moonfed("federate", "--sites", "2", *settings))
    assert not (place / "run").exists()


def test_real_processes_with_rows_of_their_own_compute_what_one_table_computes(tmp_path: Path):
    world = World(tmp_path)
    world.home.move("127.0.0.1", free_port())
    for name in NAMES:
        world.join(name, data=str(tmp_path / f"{name}.csv"), label="sort", threads=1)
    data = ("--data", world.union, "--label", "kind", "--party", "site", "--test", world.test)
    words = (*data, "--rounds", "2", "--epochs", "1", "--batch", "5", "--threads", "1", "--out", tmp_path / "run")
    sites = [Attempt("site", "join", tmp_path / name) for name in NAMES]
    answer = Attempt("federation", "start", world.home.path, "--listen", "127.0.0.1", *words).end(180)
    assert answer.code == 0, answer
    assert "b is here with 30 rows" in answer.err
    assert weights(tmp_path / "run") == world.simulated()
    for site in sites:
        site.send(signal.SIGTERM)
    assert [site.end(30).code for site in sites] == [0, 0, 0]
    assert_nothing_runs(tmp_path)
