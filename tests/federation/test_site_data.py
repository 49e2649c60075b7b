"""Sites with their own rows: encoded as the coordinator's are, checked when read, trained on as in a simulation."""

import csv
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Attempt, moonfed
from federations import assert_nothing_runs, weights
from in_process import InProcessTransport, capture, log_of, recording
from user_rows import people, write_csv

from moonfed.core.errors import RunFailed, UserError
from moonfed.data.catalog.digits import digits
from moonfed.experiments.execute import execute
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder, make_coordinator_folder
from moonfed.federation.pki.site_folder import SiteFolder, SiteSettings, make_site_folder
from moonfed.federation.protocol.request import Envelope
from moonfed.federation.site.trainer import SiteTrainer
from moonfed.training.config import Config, make_config
from moonfed.training.party_rows import split_rows
from moonfed.training.resolve import resolve
from moonfed.training.setup import load_data, set_up

LIMITS = FederationSettings(deadline=1, patience=0, attempts=1)  # type: ignore[call-arg]
NAMES = ("a", "b", "c")


class World:
    """A table with the rows of three sites, the same rows at the three sites, and the coordinator's test rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.union, self.test = people(path / "union.csv", 90), people(path / "test.csv", 30)
        with self.union.open(newline="") as file:
            table = list(csv.DictReader(file))
        self.folders: dict[str, SiteFolder] = {}
        self.coordinator: CoordinatorFolder = make_coordinator_folder(path / "coordinator", "127.0.0.1", 9443, 1)
        for name in NAMES:  # its columns in another order, one more, and the class under another name
            rows = [
                [row["kind"], row["weight"], "none", row["age"], row["colour"]] for row in table if row["site"] == name
            ]
            write_csv(path / f"{name}.csv", ["sort", "weight", "remark", "age", "colour"], rows)
            self.join(name, data=str(path / f"{name}.csv"), label="sort")

    def join(self, name: str, **settings: Any) -> None:
        """Make a site, or replace it."""
        shutil.rmtree(self.path / name, ignore_errors=True)
        (self.coordinator.allow_list_folder / f"{name}.pub").unlink(missing_ok=True)
        self.folders[name] = make_site_folder(
            self.path / name, self.coordinator.invitation, SiteSettings(name, **settings)
        )
        self.coordinator.admit(name, self.folders[name].public_key_path)

    def config(self, rounds: int = 2, **data: Any) -> Config:
        held = {"path": str(self.union), "label": "kind", "party": "site", "test": str(self.test)}
        train = {"rounds": rounds, "epochs": 1, "batch": 5, "lr_schedule": "constant"}
        return make_config({"data": held | data, "train": train, "run": {"engine": "sequential"}})

    def federate(self, transport: InProcessTransport | None = None, resume: bool = False, rounds: int = 2) -> Any:
        transport = transport or InProcessTransport(self.folders)
        return serve(self.config(rounds), self.path / "run", resume, self.coordinator, transport, LIMITS)

    def simulated(self) -> dict[str, str]:
        execute(*set_up([self.config()]), [self.path / "here"])
        return weights(self.path / "here")

    def error(self) -> str:
        """Start a run that cannot begin, and return the coordinator's error."""
        with pytest.raises(RunFailed) as failure:
            self.federate()
        assert str(self.path) not in str(failure.value)
        return str(failure.value)


def test_sites_train_with_the_defaults_that_a_simulation_of_their_rows_has(tmp_path: Path) -> None:
    """Not with those of the reference rows, of which there are fewer here."""
    world = World(tmp_path)
    config = world.config()
    train = config.train.model_copy(update={"epochs": None, "weight_decay": None, "lr_schedule": None})
    few = people(world.path / "few.csv", 18)
    asked = config.model_copy(update={"train": train})
    reference = asked.model_copy(update={"data": config.data.model_copy(update={"path": str(few)})})
    transport = InProcessTransport(world.folders)
    record = serve(reference, world.path / "run", False, world.coordinator, transport, LIMITS)
    expected = resolve(asked, load_data(asked.data)).train
    assert record.config.train == expected
    assert expected.epochs != resolve(reference, load_data(reference.data)).train.epochs
    assert {row["steps"] for row in record.rows} == {3 * expected.epochs * (30 // 5)}


def test_three_sites_with_their_own_rows_compute_what_one_table_with_a_site_column_gives(tmp_path: Path):
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


def test_reference_rows_need_not_be_the_union_of_the_sites_rows(tmp_path: Path):
    world = World(tmp_path)
    people(world.union, 21)  # a sample that a coordinator may have
    world.federate()
    assert weights(tmp_path / "run") != world.simulated()


def test_the_report_shows_the_rows_of_the_sites_and_not_those_of_the_coordinator(tmp_path: Path):
    world = World(tmp_path)
    people(world.union, 21)
    world.federate()
    assert moonfed("report", tmp_path / "run", "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "3 parties hold 30 to 30 of 90 rows" in page
    assert "of 21 rows" not in page


def test_a_sites_own_images_train_like_its_share_of_a_built_in_data_set(tmp_path: Path):
    values = {"model": {"model": "mlp"}, "train": {"rounds": 2, "epochs": 1, "batch": 40}, "data": {"parties": 2}}
    config, data = make_config(values | {"run": {"engine": "sequential"}}), digits()
    home = make_coordinator_folder(tmp_path / "coordinator", "127.0.0.1", 9443, 1)
    places: dict[str, SiteFolder] = {}
    for i, rows in enumerate(split_rows(resolve(config, data), data)):
        np.savez(tmp_path / f"{i}.npz", x=data.inputs[rows].numpy(), y=data.labels[rows].numpy())
        settings = SiteSettings(f"s{i}", data=str(tmp_path / f"{i}.npz"))
        places[f"s{i}"] = make_site_folder(tmp_path / f"s{i}", home.invitation, settings)
        home.admit(f"s{i}", places[f"s{i}"].public_key_path)
    serve(config, tmp_path / "run", False, home, InProcessTransport(places), LIMITS)
    execute(*set_up([config]), [tmp_path / "here"])
    assert weights(tmp_path / "run") == weights(tmp_path / "here")


def test_no_file_of_the_coordinator_is_named_to_a_site_and_the_encoding_is_sent_once(tmp_path: Path):
    world = World(tmp_path)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)))
    assert len(requests) == 9
    assert sum("encoding" in request.fields for request in requests) == 3
    for request in requests:
        assert not any(str(tmp_path) in str(word) or "union" in str(word) for word in request.fields.values())


def test_a_restarted_site_keeps_the_encoding_and_one_that_lost_it_says_so(tmp_path: Path):
    world = World(tmp_path)
    transport = InProcessTransport(world.folders)

    def forget(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        transport.trainers[site] = SiteTrainer(world.folders[site])
        if site == "b" and count == 2:
            next((tmp_path / "b" / "memory").rglob("encoding.json")).unlink()
        return [reply]

    transport.fault = forget
    outcome = world.federate(transport)
    assert [row["cohort"] for row in outcome.rows] == [[0, 1, 2], [0, 2]]
    assert "this site has lost the data encoding of this run" in (tmp_path / "run" / "refused.jsonl").read_text()


def test_an_encoding_that_was_altered_on_the_way_is_rejected(tmp_path: Path):
    world = World(tmp_path)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)), rounds=1)
    request = next(request for request in requests if "encoding" in request.fields)
    changed = Envelope({**request.fields, "encoding": str(request.fields["encoding"]).replace('"x"', '"z"')}, {})
    vast = Envelope({**request.fields, "encoding": " " * (1 << 25)}, {})
    site = SiteTrainer(world.folders["a"])
    assert "the encoding is not the one that the coordinator signed" in str(site.answer(changed).fields["refused"])
    assert "text of at most 16 MiB" in str(site.answer(vast).fields["refused"])


def test_a_run_resumes_with_the_same_data_to_the_same_bits_and_rejects_other_data(tmp_path: Path):
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
            'b.csv line 2 (label "z" does not occur in training)',
            "have classes that this run does not have",
        ),
        (("weight", "mass"), 'no column "weight" in b.csv', "its rows cannot be read in the form that this run needs"),
        (("x,", "x,heavy "), 'weight "heavy', "it has bad rows"),
    ],
)
def test_a_site_whose_rows_do_not_fit_logs_everything_and_sends_little(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: tuple[str, str], at_home: str, elsewhere: str
):
    capture(caplog)
    world = World(tmp_path)
    rows = tmp_path / "b.csv"
    rows.write_text(rows.read_text().replace(*change))
    said = world.error()
    assert said.startswith("b cannot take part: ")
    assert elsewhere in said
    assert "b.csv" not in said
    assert '"z"' not in said
    assert at_home in log_of("b", caplog)[-1]


def test_a_site_with_rows_of_another_kind_and_one_with_a_share_are_rejected(tmp_path: Path):
    world = World(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((8, 4)), y=np.arange(8) % 2)
    world.join("a", data=str(tmp_path / "x.npz"))
    world.join("c", share=2)
    said = world.error()
    assert "a cannot take part: its rows are of the kind numbers, this run needs table" in said
    assert "c cannot take part: this run needs a site's own rows" in said


def test_real_processes_with_their_own_rows_compute_what_one_table_gives(tmp_path: Path):
    world = World(tmp_path)
    world.coordinator.set_address("127.0.0.1", free_port())
    for name in NAMES:
        world.join(name, data=str(tmp_path / f"{name}.csv"), label="sort", threads=1)
    data = ("--data", world.union, "--label", "kind", "--party", "site", "--test", world.test)
    fixed = ("--epochs", "1", "--batch", "5", "--lr-schedule", "constant")
    words = (*data, "--rounds", "2", *fixed, "--threads", "1", "--out", tmp_path / "run")
    sites = [Attempt("site", "join", tmp_path / name) for name in NAMES]
    answer = Attempt("federation", "start", world.coordinator.path, "--listen", "127.0.0.1", *words).end(180)
    assert answer.code == 0, answer
    assert "b enrolled with 30 rows" in answer.err
    assert weights(tmp_path / "run") == world.simulated()
    for site in sites:
        site.send(signal.SIGTERM)
    assert [site.end(30).code for site in sites] == [0, 0, 0]
    assert_nothing_runs(tmp_path)
