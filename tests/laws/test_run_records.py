"""The record of a run is that of its folder, whatever was resumed, failed or tried to change it."""

from dataclasses import replace
from pathlib import Path

from commands import SMALL, moonfed
from worlds import settings

from moonfed.experiments.execute import execute
from moonfed.storage.run_record import read_run
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.setup import set_up


def test_a_run_returns_the_record_that_its_folder_holds(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for rounds in (2, 4, 4):  # new, resumed, already finished
        config = settings("moon", train__rounds=rounds)
        ((_, record),) = execute(*set_up([config]), [folder], resume=True)
        there = read_run(folder)
        assert there == replace(record, config=there.config)
        assert there.config.model_dump() == record.config.model_dump()
    assert len(record.before) == 1, "the part before the resume"


def test_a_finished_run_forgets_the_failure_of_a_longer_one(tmp_path: Path) -> None:
    short = [*SMALL, "--out", tmp_path / "run", "--resume"]
    assert moonfed("run", *short).code == 0
    (tmp_path / "run" / "failure.json").write_text('{"failure": "the loss is not finite", "rounds": 2}')
    assert moonfed("run", *short).code == 0
    assert not (tmp_path / "run" / "failure.json").exists()


def test_a_callback_that_changes_a_record_does_not_change_the_run(tmp_path: Path) -> None:
    class Changing(Callback):
        def on_round(self, finished: Finished) -> None:
            for _, record in finished:
                record["accuracy"] = 0.0

    ((_, record),) = execute(*set_up([settings("moon")]), [tmp_path / "run"], callbacks=[Changing()])
    assert record.rows == read_run(tmp_path / "run").rows
