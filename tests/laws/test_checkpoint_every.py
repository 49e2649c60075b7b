"""Saving every few rounds loses no bit, and what parties remember takes no more RAM than it may."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from commands import CHANGES, CRASHED, QUICK, Attempt, bits, contents, crash_at, moonfed, rows
from worlds import ready, run, same_bits, settings

from moonfed.core.algorithm import Algorithm
from moonfed.core.rules import LocalRule
from moonfed.core.tree import nbytes
from moonfed.core.types import Slots, as_tensor
from moonfed.experiments.execute import execute
from moonfed.storage import checkpoint, run_folder
from moonfed.storage.checkpoint import Checkpoint
from moonfed.storage.party_store import PartyStore, SavedMemory
from moonfed.training.callbacks import Callback

HALF = [*QUICK, "--fraction", "0.5", "--rounds", "5"]
SELDOM = [*HALF, "--checkpoint-every", "2"]


@pytest.mark.parametrize("asked", [["run", *SELDOM], ["compare", "moon", "fedavg", "--seeds", "0", *SELDOM]])
def test_a_crash_before_any_change_of_the_disk_costs_nothing(asked: list[str], tmp_path: Path) -> None:
    assert moonfed(*asked, "--out", tmp_path / "undisturbed").code == 0
    expected, crashes = bits(tmp_path / "undisturbed"), 0
    for call in range(1, 1000, 3):
        folder = tmp_path / str(call)
        code = Attempt(*asked, "--out", folder, prepare=crash_at, given=(call, CHANGES)).end().code
        if code == 0:
            break
        assert code == CRASHED
        crashes += 1
        answer = moonfed(*asked, "--out", folder, "--resume")
        assert answer.code == 0, (call, answer)
        assert bits(folder) == expected, call
    assert crashes > 10


def test_between_two_commits_only_the_log_is_written(tmp_path: Path) -> None:
    seen: dict[int, dict[str, str]] = {}

    class Looks(Callback):
        def on_round(self, finished):
            seen[finished[0][1]["round"]] = {k: v for k, v in contents(tmp_path).items() if k != "run/rounds.jsonl"}

    config = settings("moon", train__rounds=8, run__checkpoint_every=3)
    execute(*ready(config), [tmp_path / "run"], callbacks=[Looks()])
    changed = [round for round in range(2, 9) if seen[round] != seen[round - 1]]
    assert changed == [3, 6, 8], "the last round is always saved"
    assert len(rows(tmp_path / "run")) == 8


@pytest.mark.parametrize("every", [(1, 4), (4, 1), (3, 2)])
def test_how_often_rounds_are_saved_may_change_and_changes_no_bit(every: tuple[int, int], tmp_path: Path) -> None:
    first, second = ([*HALF, "--checkpoint-every", str(number)] for number in every)
    assert moonfed("run", *HALF, "--out", tmp_path / "whole").code == 0
    assert moonfed("run", *first, "--rounds", "3", "--out", tmp_path / "parts").code == 0
    assert moonfed("run", *second, "--out", tmp_path / "parts", "--resume").code == 0
    one, two = (bits(tmp_path / name) for name in ("whole", "parts"))
    assert one["rounds"] == two["rounds"]
    assert one["tensors"]["final.safetensors"] == two["tensors"]["final.safetensors"]


class StopAfter(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, finished):
        return finished[0][1]["round"] == self.round


def test_a_run_that_a_callback_stops_is_saved_where_it_stands(tmp_path: Path) -> None:
    config = settings("scaffold", train__rounds=6, run__checkpoint_every=5, train__patience=4)
    execute(*ready(config), [tmp_path / "run"], callbacks=[StopAfter(3)])
    seen: list[int] = []

    class Notes(Callback):
        def on_round(self, finished):
            seen.append(finished[0][1]["round"])

    execute(*ready(config), [tmp_path / "run"], resume=True, callbacks=[Notes()])
    execute(*ready(config), [tmp_path / "whole"])
    assert seen[0] == 4
    one, two = (bits(tmp_path / name)["tensors"]["final.safetensors"] for name in ("run", "whole"))
    assert one == two


@dataclass(frozen=True)
class FailsInRoundFour(LocalRule):
    def loss(self, out, y, ctx):
        return {k: torch.where(ctx.clock.round >= 3, torch.nan, v) for k, v in super().loss(out, y, ctx).items()}


def test_a_failed_run_is_saved_at_its_last_good_state(tmp_path: Path) -> None:
    context, (trial,) = ready(settings("fedavg", train__rounds=30, run__checkpoint_every=29))
    algorithm = Algorithm("mine", FailsInRoundFour())
    failing = replace(trial, spec=replace(trial.spec, algorithm=algorithm))
    ((ended, record),) = execute(context, [failing], [tmp_path / "run"])
    assert record.failure is not None
    assert "not finite" in record.failure
    saved = Checkpoint(tmp_path / "run").manifests()
    assert [manifest.round for manifest in saved] == [3] == [len(rows(tmp_path / "run"))]
    on_disk = Checkpoint(tmp_path / "run").load_state(saved[0], list(trial.state.model.weights))
    assert same_bits(on_disk.model, ended.state.model)


@pytest.mark.parametrize("limit", [1, 300_000])
def test_memory_that_is_left_to_the_disk_gives_the_same_bits(limit: int, tmp_path: Path, monkeypatch) -> None:
    """MOON's previous models of eight parties, two per round; 300,000 bytes hold a few of them."""
    config = settings("moon", data__parties=8, data__floor=4, cohort__fraction=0.25, train__rounds=12, train__batch=4)
    (whole,), _ = run(ready(config)[1], ready(config)[0])
    monkeypatch.setattr(run_folder, "cache_bytes", lambda device, share: limit)
    monkeypatch.setattr(checkpoint, "MAX_BYTES_READ_AHEAD", limit)
    execute(*ready(config), [tmp_path / "run"], callbacks=[StopAfter(5)])
    ((ended, _),) = execute(*ready(config), [tmp_path / "run"], resume=True)
    assert same_bits(
        (ended.state, dict(sorted(ended.memory.items()))), (whole.state, dict(sorted(whole.memory.items())))
    )
    assert isinstance(ended.memory, PartyStore)
    held = ended.memory.saved
    assert held.bytes == sum(nbytes(slots) for slots in held.recent.values())
    assert len(held.recent) == 1 or held.bytes <= limit
    assert len(ended.memory) > len(held.recent)


def test_a_store_is_a_mapping_that_adding_to_leaves_as_it_was() -> None:
    on_disk: dict[int, Slots] = {k: {"w": torch.full((4,), float(k))} for k in range(3)}
    reads: list[int] = []

    def read(party):
        reads.append(party)
        return on_disk[party]

    saved = SavedMemory(on_disk, read, 1 << 20)
    store = PartyStore(saved)
    assert (len(store), sorted(store), 5 in store, store.get(5)) == (3, [0, 1, 2], False, None)
    with pytest.raises(KeyError):
        store[5]
    new: dict[int, Slots] = {1: {"w": torch.full((4,), 10.0)}, 7: {"w": torch.full((4,), 70.0)}}
    added = store | new
    assert as_tensor(store[1], "w").mean() == 1.0
    assert 7 not in store
    assert (len(added), list(added)) == (4, [0, 1, 2, 7])
    assert list(PartyStore(SavedMemory({7: 0}, read, 1)) | {1: {}, 0: {}}) == [0, 1, 7], (
        "in order, whichever came first"
    )
    assert as_tensor(added[1], "w").mean() == 10.0
    assert store[2] is store[2]
    assert reads == [1, 2], "each once"
    on_disk |= new  # a commit
    added.committed(new)
    later = added | {}
    assert not later.fresh, "left to the disk"
    assert as_tensor(later[7], "w").mean() == 70.0
    assert reads == [1, 2], "it is still in RAM"
    changed = later | dict[int, Slots]({7: {"w": torch.full((4,), 71.0)}})
    assert as_tensor(changed[7], "w").mean() == 71.0
    assert list((changed | {}).fresh) == [7], "not committed"


def test_a_method_that_is_added_later_leaves_the_rounds_of_the_others(tmp_path: Path) -> None:
    folder, seldom = tmp_path / "both", ["--checkpoint-every", "5", "--seeds", "0"]
    assert moonfed("compare", "moon", *HALF, *seldom, "--out", folder).code == 0
    kept = contents(folder / "moon")
    for crash, more in ((4, []), (2, ["--rounds", "9"])):
        asked = ["compare", "moon", "fedavg", *HALF, *seldom, *more, "--out", folder, "--resume"]
        code = Attempt(*asked, prepare=crash_at, given=(crash, ("replace",))).end().code
        assert code == CRASHED
        assert {k: v for k, v in contents(folder / "moon").items() if k in kept and "config" not in k} == {
            k: v for k, v in kept.items() if "config" not in k
        }
        assert moonfed(*asked).code == 0
        assert len(rows(folder / "moon" / "seed-0")) == (9 if more else 5)
    assert (
        moonfed("compare", "moon", "fedavg", *HALF, "--seeds", "0", "--rounds", "9", "--out", tmp_path / "w").code == 0
    )
    one, two = (bits(place)["tensors"] for place in (folder, tmp_path / "w"))
    for name in ("moon", "fedavg"):
        assert one[f"{name}/seed-0/final.safetensors"] == two[f"{name}/seed-0/final.safetensors"]


def test_a_trial_that_fails_early_costs_the_others_no_round(tmp_path: Path) -> None:
    """It is saved when it fails, not at the end of the others; a resume lets them go on where they were."""
    asked = ["compare", "moon:mu=1e38", "fedavg", *QUICK, "--seeds", "0", "--rounds", "8", "--checkpoint-every", "3"]
    assert moonfed(*asked, "--out", tmp_path / "whole").code == 1
    failed = tmp_path / "whole" / "moon-mu=1e38" / "seed-0"
    good = len(rows(failed)) if (failed / "rounds.jsonl").exists() else 0
    folder = tmp_path / "killed"
    attempt = Attempt(*asked, "--out", folder)
    while not (folder / "fedavg" / "seed-0" / "checkpoint" / "manifest.json").exists():
        assert attempt.process.is_alive(), attempt.said
    attempt.process.kill()
    attempt.end()
    assert (folder / "moon-mu=1e38" / "seed-0" / "failure.json").exists()
    saved = Checkpoint(folder / "fedavg" / "seed-0").manifests()[0].round
    seen = rows(folder / "fedavg" / "seed-0")[:saved]
    assert moonfed(*asked, "--out", folder, "--resume").code == 1
    assert rows(folder / "fedavg" / "seed-0")[:saved] == seen, "not trained again: even the seconds are the same"
    assert good == (len(rows(folder / "moon-mu=1e38" / "seed-0")) if good else 0)
