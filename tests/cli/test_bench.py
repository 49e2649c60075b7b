"""moonfed bench times nothing that does not end where the plain loop ends."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import moonfed

from moonfed.bench import speed
from moonfed.bench.speed import measure, pictures
from moonfed.bench.timing import Profile
from moonfed.core.errors import RunFailed
from moonfed.core.tree import scale
from moonfed.engines import Options, nets_of
from moonfed.engines.sequential import Sequential

TINY = Profile(1280, 1, 1, 1, 1, (1,), (("stacked", "fp32", False),))
CPU = torch.device("cpu")


def test_a_bench_reports_both_ways_their_ratio_and_how_near_they_ended():
    said: list[str] = []
    found = measure(CPU, said.append, lanes=[2], profile=TINY)
    assert {(t.way, t.algorithm, t.augmented) for t in found.timings} == {
        *(("eager", name, True) for name in ("moon", "fedavg")),
        *(("stacked", name, augmented) for name in ("moon", "fedavg") for augmented in (True, False)),
        ("stacked, 2 parties", "moon", True),
    }
    assert all(t.us_per_party_step > 0 for t in found.timings)
    ours = [t for t in found.timings if t.way != "eager"]
    assert all(t.gap_to_eager is not None and 0 <= t.gap_to_eager < 2e-3 for t in ours), "all that is timed is checked"
    assert all(t.lanes is not None and t.lanes >= 1 for t in ours)
    ratios = found.ratios()
    assert ratios["stacked_over_eager"] == ratios["stacked_over_eager_moon"] == found.timings[1].times_as_fast_as_eager
    moon, fedavg = (found.one(way="stacked", algorithm=name, augmented=True) for name in ("moon", "fedavg"))
    assert moon is not None
    assert fedavg is not None
    assert ratios["moon_minus_fedavg_us"] == moon.us_per_party_step - fedavg.us_per_party_step
    assert "moon_over_fedavg_without_augmentation" in ratios
    assert said[0] == "eager, moon"


def test_no_speed_is_reported_of_an_engine_that_ends_elsewhere():
    data = pictures(TINY.rows, CPU, True)
    plain = speed._plain("fedavg", data, TINY)
    elsewhere = replace(plain, ends=[end._replace(weights=scale(end.weights, 1.01)) for end in plain.ends])
    with pytest.raises(RunFailed, match="no speed is reported"):
        speed._timing("stacked", "fedavg", data, 1, Options(), TINY, elsewhere)
    last = replace(plain, ends=[*plain.ends[:-1], elsewhere.ends[-1]])
    with pytest.raises(RunFailed, match="no speed is reported"):  # three trials in one stack are checked, too
        speed._timing("stacked", "fedavg", data, 3, Options(), TINY, last)


def test_a_bench_that_is_stopped_returns_what_it_has_timed():
    said: list[str] = []

    def stop(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            raise KeyboardInterrupt

    found = measure(CPU, stop, profile=TINY)
    assert found.stopped
    assert [(t.way, t.algorithm) for t in found.timings] == [("eager", "moon"), ("stacked", "moon")]


@pytest.mark.parametrize("name", ["moon", "fedavg"])
def test_the_plain_loop_ends_where_the_reference_engine_ends(name):
    data = pictures(TINY.rows, CPU, True)
    plain = speed._plain(name, data, TINY)
    done = Sequential(nets_of(plain.model), data).run_cohort(plain.jobs)
    assert speed._gap(plain, [result.upload.delta for result in done]) < 2e-3
    elsewhere = [scale(result.upload.delta, 1.01) for result in done]
    assert speed._gap(plain, elsewhere) > 2e-3


def test_bench_refuses_what_it_does_not_know():
    for asked, word in (
        (["--device", "tpu"], "--device needs auto, cpu or cuda, got tpu"),
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
