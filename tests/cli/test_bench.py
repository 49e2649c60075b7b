"""moonfed bench reports no timing of an engine that does not end where the eager loop ends."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import moonfed

from moonfed.bench import populations
from moonfed.bench.baseline import make_baseline
from moonfed.bench.cross_device import CrossDeviceWork, time_cross_device
from moonfed.bench.first_round import time_first_round
from moonfed.bench.neighbours import time_beside_neighbours
from moonfed.bench.resnet50 import time_resnet50
from moonfed.bench.speed import measure, time_mode
from moonfed.bench.timing import Mode, Profile
from moonfed.bench.workload import after_first_round, check_trained, make_context, random_images
from moonfed.core.errors import RunFailed
from moonfed.core.tree import scale
from moonfed.engines import EngineOptions, nets_of
from moonfed.engines.sequential import Sequential

STACKED = Mode("stacked", "fp32", False)
TINY = Profile(1280, 1, 1, 1, 1, (1,), (STACKED,))
CPU = torch.device("cpu")


def test_a_bench_reports_eager_loop_and_engine_with_ratio_and_difference(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    found = measure(CPU, lanes=[2], profile=TINY)
    assert {(t.way, t.algorithm, t.augmented) for t in found.timings} == {
        *(("eager", name, True) for name in ("moon", "fedavg")),
        *(("stacked", name, augmented) for name in ("moon", "fedavg") for augmented in (True, False)),
        ("stacked, 2 parties", "moon", True),
    }
    assert all(t.us_per_party_step > 0 for t in found.timings)
    ours = [t for t in found.timings if t.way != "eager"]
    assert all(t.gap_to_eager is not None and 0 <= t.gap_to_eager < 2e-3 for t in ours), "every timing is checked"
    assert all(t.lanes is not None and t.lanes >= 1 for t in ours)
    ratios = found.ratios()
    assert ratios["stacked_over_eager"] == ratios["stacked_over_eager_moon"] == found.timings[1].times_as_fast_as_eager
    moon, fedavg = (found.find(way="stacked", algorithm=name, augmented=True) for name in ("moon", "fedavg"))
    assert moon is not None
    assert fedavg is not None
    assert ratios["moon_minus_fedavg_us"] == moon.us_per_party_step - fedavg.us_per_party_step
    assert "moon_over_fedavg_without_augmentation" in ratios
    assert caplog.messages[0] == "eager, moon"


def test_no_timing_is_reported_of_an_engine_that_ends_elsewhere():
    data = random_images(TINY.rows, CPU, True)
    baseline = make_baseline("fedavg", data, TINY.check_epochs)
    elsewhere = replace(baseline, ends=[end._replace(weights=scale(end.weights, 1.01)) for end in baseline.ends])
    with pytest.raises(
        RunFailed, match=r"relative difference to the eager loop is .* \(tolerance 0.005\); timing discarded"
    ):
        time_mode(STACKED, "fedavg", data, 1, TINY, elsewhere)
    last = replace(baseline, ends=[*baseline.ends[:-1], elsewhere.ends[-1]])
    with pytest.raises(
        RunFailed, match=r"relative difference to the eager loop is .* \(tolerance 0.005\); timing discarded"
    ):  # three trials in one stack are checked, too
        time_mode(STACKED, "fedavg", data, 3, TINY, last)


def test_a_bench_that_is_stopped_returns_its_timings_until_then(caplog):
    class Stop(logging.Handler):
        lines = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.lines += 1
            if self.lines == 3:
                raise KeyboardInterrupt

    caplog.set_level(logging.INFO, "moonfed.bench")
    handler, logger = Stop(), logging.getLogger("moonfed.bench")
    logger.addHandler(handler)
    try:
        found = measure(CPU, profile=TINY)
    finally:
        logger.removeHandler(handler)
    assert found.stopped
    assert [(t.way, t.algorithm) for t in found.timings] == [("eager", "moon"), ("stacked", "moon")]


@pytest.mark.parametrize("name", ["moon", "fedavg"])
def test_the_eager_loop_ends_where_the_reference_engine_ends(name):
    data = random_images(TINY.rows, CPU, True)
    baseline = make_baseline(name, data, TINY.check_epochs)
    done = Sequential(nets_of(baseline.model, data), data, EngineOptions()).run_cohort(baseline.jobs)
    assert baseline.relative_difference([result.upload.delta for result in done]) < 2e-3
    elsewhere = [scale(result.upload.delta, 1.01) for result in done]
    assert baseline.relative_difference(elsewhere) > 2e-3


def test_bench_refuses_what_it_does_not_know():
    for asked, word in (
        (["--device", "tpu"], "--device needs one of auto, cpu, cuda, got tpu"),
        (["--device", "cpu", "--only", "compiled-fp8"], "--only knows stacked-fp32 on this device, got compiled-fp8"),
        (["--device", "cpu", "--lanes", "ten"], "--lanes needs numbers"),
    ):
        done = moonfed("bench", *asked)
        assert done.code == 2
        assert word in done.err
        assert done.err.count("\n") == 1


def test_a_sweep_refuses_one_setting_written_in_two_ways(tmp_path: Path):
    done = moonfed("sweep", "--mu", "1,1.0", "--out", tmp_path / "grid")
    assert done.code == 2
    assert "two of these settings are the same" in done.err
    assert not (tmp_path / "grid").exists()


def test_sweep_runs_every_point_of_the_grid_over_every_seed(tmp_path: Path):
    quick = ["--rounds", "1", "--epochs", "1", "--parties", "3", "--model", "mlp", "--projection", "8"]
    asked = ["sweep", "--mu", "0.1,5", "--lr", "0.01,0.05", "--seeds", "0,1", *quick, "--out", tmp_path / "grid"]
    done = moonfed(*asked, "--json")
    assert done.code == 0
    found = json.loads(done.out)
    points = ["mu=0.1 lr=0.01", "mu=0.1 lr=0.05", "mu=5 lr=0.01", "mu=5 lr=0.05"]
    assert [line["method"] for line in found] == points
    assert all(line["seeds"] == [0, 1] for line in found)
    settled = json.loads((tmp_path / "grid" / "mu=5_lr=0.05" / "seed-1" / "config.json").read_text())["config"]
    assert (settled["algorithm"]["mu"], settled["train"]["lr"], settled["run"]["seed"]) == (5.0, 0.05, 1)
    again = moonfed(*asked, "--resume")
    assert again.code == 0
    assert "setting" in again.out
    assert "mu=0.1 lr=0.05" in again.out


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (["--mu", "1"], "sweep needs a setting with several values"),
        (["--dataset", "digits,cifar10"], "--dataset takes one value in a sweep"),
        (["--engine", "stacked,sequential"], "--engine takes one value in a sweep"),
        (["--mu", "1,1"], "needs each value once"),
        (["--mu", "1,many"], "moon.mu needs a number"),
        (["--mu", "1,2", "--seeds", "0-999"], "more than 1000 trials"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused_in_a_line(asked: list[str], word: str):
    done = moonfed("sweep", *asked)
    assert done.code == 2
    assert word in done.err
    assert done.err.count("\n") == 1


TINY_COMPARISON = (
    "compare",
    "fedavg",
    "--seeds",
    "0",
    "--rounds",
    "1",
    "--epochs",
    "1",
    "--model",
    "mlp",
    "--device",
    "cpu",
)


def test_a_comparison_is_timed_alone_and_beside_busy_processes_and_ends_at_the_same_bits():
    timing = time_beside_neighbours(2, repeats=1, command=TINY_COMPARISON)
    facts = timing.facts()
    assert len(timing.alone) == len(timing.beside) == 1
    assert facts["times_slower"] == timing.beside[0] / timing.alone[0]
    assert facts["same_bits"] is True


def test_a_comparison_that_fails_is_not_timed():
    with pytest.raises(RunFailed, match=r"moonfed compare nothing ended with 2: .*nothing"):
        time_beside_neighbours(1, repeats=1, command=("compare", "nothing"))


@pytest.mark.parametrize("others", [("--only", "stacked-fp32"), ("--lanes", "10"), ("--device", "cpu")])
def test_neighbours_are_a_measurement_of_their_own(others):
    answer = moonfed("bench", "--neighbours", "2", *others)
    assert answer.code == 2
    assert answer.err.splitlines()[-1].endswith(f"measurement of its own; omit {others[0]}")


def test_populations_are_timed_and_their_rounds_write_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populations.time_populations, "__defaults__", (2,))
    answer = moonfed("bench", "--populations", "100,50000", "--device", "cpu", "--json")
    assert answer.code == 0, answer.err
    small, large = answer.value["populations"]
    assert (small["parties"], large["parties"]) == (100, 50_000)
    assert abs(small["checkpoint_bytes"] - large["checkpoint_bytes"]) < 20_000, "names of files and parties"
    assert large["checkpoint_bytes"] > 50 * 4 * 5000, "fifty previous models"
    assert answer.value["round_ratio"] == large["round_seconds"] / small["round_seconds"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--populations", "10"], "--populations needs different numbers from 50 to 1000000"),
        (["--populations", "100,100"], "--populations needs different numbers from 50"),
        (["--populations", "many"], "for example 1000,100000, got many"),
        (["--populations", "100", "--neighbours", "2"], "--populations is a measurement of its own; omit"),
    ],
)
def test_populations_that_cannot_be_timed_are_refused(words: list[str], said: str) -> None:
    answer = moonfed("bench", *words)
    assert answer.code == 2
    assert said in answer.err


def test_rounds_of_many_parties_are_timed_from_a_run_that_is_logged_evaluated_and_saved():
    found = time_cross_device(CPU, 2, CrossDeviceWork(parties=20, rows=12, fraction=0.1, batch=4, every=1))
    facts = found.facts()
    assert facts["workload"].startswith("2 of 20 parties per round, 12 rows each, batch 4")
    assert [(row["engine"], row["algorithm"]) for row in facts["timings"]] == [
        ("stacked", "fedavg"),
        ("stacked", "moon"),
    ]
    assert all(row[name] > 0 for row in facts["timings"] for name in found.columns[3:])


def test_the_first_round_is_timed_in_a_new_process():
    found = time_first_round(CPU, 1280)
    assert [row[0] for row in found.rows] == ["not needed"]
    assert all(float(second or 0) > 0 for _, *seconds in found.rows for second in seconds)


def test_a_single_party_is_timed_in_images_per_second():
    found = time_resnet50(CPU, 64, "cnn")
    assert [row[:3] for row in found.rows] == [("stacked", "fp32", "fedavg"), ("stacked", "fp32", "moon")]
    assert all(float(images or 0) > 0 for _, _, _, images, _ in found.rows)


def test_work_that_fails_is_not_timed():
    trial = replace(after_first_round("fedavg", make_context(random_images(1280, CPU, True), EngineOptions()), 1, 1)[0])
    check_trained([trial])
    with pytest.raises(RunFailed, match="the work to be timed failed: the loss is not finite"):
        check_trained([trial, trial.fail("the loss is not finite")])


def test_a_workload_has_a_name_and_stands_alone(place: Path):
    unknown = moonfed("bench", "--workload", "none")
    assert unknown.code == 2
    assert unknown.err == 'moonfed: no workload "none"; known: cross-device, first-round, resnet50\n'
    both = moonfed("bench", "--workload", "resnet50", "--lanes", "10")
    assert (both.code, both.err) == (2, "moonfed: --workload is a measurement of its own; omit --lanes\n")
