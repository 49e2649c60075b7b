"""moonfed bench: the same work by the plain eager loop and by our engine, in one run, checked before it is timed."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from moonfed.core.errors import RunFailed
from moonfed.core.seeds import generator
from moonfed.core.tree import norm, sub
from moonfed.core.types import Snapshot, Tensors
from moonfed.data.dataset import Dataset, Recipe
from moonfed.engines import Job, Options, nets_of, numerics, pick_engine
from moonfed.run.config import Config, make_config
from moonfed.run.loop import run_rounds
from moonfed.run.parties import make_jobs
from moonfed.run.plain import plain_round
from moonfed.run.trial import Bench, Trial, build, net_spec, resolve, set_up

CROPS = Recipe(pad=4, reflect=True, flip=True)
# How far two ways may end apart, as a share of the way gone: rounding is all that may lie between them.
MAY_DIFFER = {"fp32": 2e-3, "tf32": 5e-2, "bf16": 0.3}


class Profile(NamedTuple):
    """How much work is done to measure."""

    rows: int
    check_epochs: int  # of the plain loop and of the check
    epochs: int  # of the engine's timing
    repeats: int
    warm: int  # rounds before the engine is timed
    trials: tuple[int, ...]
    modes: tuple[tuple[str, str, bool], ...]  # name, precision, compiled


PROFILES = {
    "cpu": Profile(2560, 3, 3, 5, 9, (1,), (("stacked", "fp32", False),)),
    "cuda": Profile(
        50_000,
        1,
        10,
        2,
        1,
        (1, 3),
        (
            ("graphs", "fp32", False),
            ("compiled", "fp32", True),
            ("compiled", "tf32", True),
            ("compiled", "bf16", True),
        ),
    ),
}


@dataclass(frozen=True)
class Timing:
    """One way of doing the work, and what it took."""

    way: str
    algorithm: str
    augmented: bool
    trials: int
    precision: str
    us_per_party_step: float
    times_as_fast_as_eager: float | None = None  # the plain loop in turn with this way, in one run
    seconds_per_round_and_trial: float | None = None
    lanes: int | None = None
    peak_bytes: int | None = None
    gap_to_eager: float | None = None


@dataclass
class Measured:
    """All timings of a run, and their ratios."""

    machine: dict[str, Any]
    timings: list[Timing] = field(default_factory=list)

    def one(self, **wanted: Any) -> Timing | None:
        """Find the timing with these properties."""
        return next((t for t in self.timings if all(getattr(t, k) == v for k, v in wanted.items())), None)

    def ratios(self) -> dict[str, float]:
        """Compare what was measured in this one run."""
        found: dict[str, float] = {}
        ours = [t for t in self.timings if t.way != "eager" and t.augmented]
        for name in ("moon", "fedavg"):
            mine = [t.times_as_fast_as_eager for t in ours if t.algorithm == name and t.times_as_fast_as_eager]
            if mine:
                found[f"stacked_over_eager_{name}"] = max(mine)
        pairs = [
            (t, self.one(way=t.way, algorithm="fedavg", augmented=t.augmented, trials=t.trials, precision=t.precision))
            for t in self.timings
            if t.algorithm == "moon" and t.way != "eager"
        ]
        for augmented, name in ((True, "moon_minus_fedavg_us"), (False, "moon_minus_fedavg_us_without_augmentation")):
            both = [(m, f) for m, f in pairs if f is not None and m.augmented == augmented]
            if both:
                moon, fedavg = min(both, key=lambda pair: pair[0].us_per_party_step)
                found[name] = moon.us_per_party_step - fedavg.us_per_party_step
                found[name.replace("minus", "over").replace("_us", "")] = (
                    moon.us_per_party_step / fedavg.us_per_party_step
                )
        return found


def measure(
    device: torch.device,
    say: Callable[[str], None],
    only: Sequence[str] = (),
    lanes: Sequence[int] = (),
    profile: Profile | None = None,
) -> Measured:
    """Time every way of a profile, the device's by default; only names ways to take, lanes widths to try as well."""
    profile = profile or PROFILES[device.type]
    found = Measured(_machine(device))
    wanted = [m for m in profile.modes if not only or f"{m[0]}-{m[1]}" in only]
    for augmented in (True, False):
        data = pictures(profile.rows, device, augmented)
        for algorithm in ("moon", "fedavg"):
            plain = None
            if augmented:
                say(f"eager, {algorithm}")
                plain = _plain(algorithm, data, profile)
                each = min(plain.time() for _ in range(profile.repeats)) / _steps(plain.jobs) * 1e6
                found.timings.append(Timing("eager", algorithm, augmented, 1, "fp32", each))
            for way, precision, compiled in wanted:
                for count in profile.trials:
                    if not augmented and (count != max(profile.trials) or (precision == "fp32" and len(wanted) > 1)):
                        continue
                    say(f"{way} {precision}, {algorithm}, trials: {count}{'' if augmented else ', no augmentation'}")
                    options = Options(precision, compile=compiled, say=say)
                    check = plain if count == 1 else None
                    found.timings.append(_timing(way, algorithm, data, count, options, profile, check))
    for width in lanes:
        for way, precision, compiled in wanted[-1:]:
            say(f"{way} {precision}, moon, {width} lanes")
            found.timings.append(_at_width(way, width, device, Options(precision, width, compiled, say)))
    return found


@dataclass(frozen=True)
class Plain:
    """What the plain loop does, and where it ends."""

    model: nn.Module
    data: Dataset
    jobs: list[Job]
    ends: list[Snapshot]

    def time(self) -> float:
        """Return the seconds that the plain loop takes now."""
        with numerics("fp32"):
            return _timed(self.data.images.device, lambda: plain_round(self.model, self.data, self.jobs))


def _plain(algorithm: str, data: Dataset, profile: Profile) -> Plain:
    bench = _bench(data, Options())
    trials = _second_round(algorithm, bench, 1, profile.check_epochs)
    jobs, model = _jobs(trials, bench), build(trials[0].spec).to(data.images.device)
    with numerics("fp32"):
        return Plain(model, data, jobs, plain_round(model, data, jobs))


def pictures(rows: int, device: torch.device, augmented: bool) -> Dataset:
    """Make noise of CIFAR-10's shape with its numbers of classes: what takes time does not depend on what is shown."""
    rng = generator(0, "bench", 0, 0)
    tests = max(64, rows // 5)
    images, test = (torch.from_numpy(rng.integers(0, 256, (n, 3, 32, 32), dtype="uint8")) for n in (rows, tests))
    labels, test_labels = (torch.arange(n) % 10 for n in (rows, tests))
    stats = (127.5, 127.5, 127.5), (73.9, 73.9, 73.9)
    recipe = CROPS if augmented else Recipe()
    return Dataset("noise", images, labels, test, test_labels, 10, *stats, recipe, 64).to(device)


def _bench(data: Dataset, options: Options) -> Bench:
    nets = nets_of(build(net_spec(resolve(_config("fedavg", 0, 1), data), data)).to(data.images.device))
    return Bench(data, nets, pick_engine("stacked", nets, data, options))


def _config(algorithm: str, seed: int, epochs: int, **split: Any) -> Config:
    split = {"dataset": "cifar10", "floor": 64, "beta": 0.5, "partition_seed": 0} | split
    rule: dict[str, Any] = {"name": algorithm} | ({"mu": 5.0} if algorithm == "moon" else {})
    train = {"epochs": epochs, "rounds": 1}
    return make_config({"data": split, "algorithm": rule, "train": train, "run": {"seed": seed}})


def _second_round(algorithm: str, bench: Bench, trials: int, epochs: int, **split: Any) -> list[Trial]:
    """Set trials up and run their first round, after which MOON has something to contrast with."""
    configs = [_config(algorithm, seed, epochs, **split) for seed in range(trials)]
    made = [set_up(resolve(config, bench.data), bench) for config in configs]
    run_rounds(made, bench, lambda trial, settled: None)
    return made


def _timing(
    way: str, algorithm: str, data: Dataset, count: int, options: Options, profile: Profile, plain: Plain | None
) -> Timing:
    device = data.images.device
    bench = _bench(data, options)
    gap = None
    if plain is not None:
        results = bench.engine.run_cohort(plain.jobs)
        gap = _gap(plain, [result.upload.delta for result in results])
        if not gap <= MAY_DIFFER[options.precision]:
            raise RunFailed(
                f"{way} {options.precision} ended {gap:.2g} of the way gone from where the eager loop ended; "
                f"at most {MAY_DIFFER[options.precision]:g} would be rounding, so no speed is reported"
            )
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trials = _second_round(algorithm, bench, count, profile.epochs)
    jobs = _jobs(trials, bench)
    for _ in range(profile.warm):
        bench.engine.run_cohort(jobs)
    taken: list[float] = []
    ratios: list[float] = []
    for _ in range(profile.repeats):  # one after the other, so that a machine's moods meet both
        eager = None if plain is None else plain.time() / _steps(plain.jobs)
        taken.append(_timed(device, lambda: bench.engine.run_cohort(jobs)) / _steps(jobs))
        ratios += [eager / taken[-1]] if eager else []
    whole = min(_timed(device, lambda: _whole_round(trials, bench)) for _ in range(profile.repeats))
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    lanes = max((stack.width for stack in getattr(bench.engine, "kept", {}).values()), default=None)
    return Timing(
        way,
        algorithm,
        data.recipe.changes,
        count,
        options.precision,
        statistics.median(taken) * 1e6,
        statistics.median(ratios) if ratios else None,
        whole / count,
        lanes,
        peak,
        gap,
    )


def _at_width(way: str, width: int, device: torch.device, options: Options) -> Timing:
    """Time as many parties of one size as there are lanes."""
    data = pictures(width * 640, device, True)
    bench = _bench(data, options)
    trials = _second_round("moon", bench, 1, 10, partition="iid", parties=width)
    jobs = _jobs(trials, bench)
    bench.engine.run_cohort(jobs)
    spent = min(_timed(device, lambda: bench.engine.run_cohort(jobs)) for _ in range(2))
    return Timing(f"{way}, {width} lanes", "moon", True, 1, options.precision, spent / _steps(jobs) * 1e6, lanes=width)


def _whole_round(trials: list[Trial], bench: Bench) -> None:
    """Run one more round of every trial, evaluation included."""
    for trial in trials:
        train = trial.config.train.model_copy(update={"rounds": trial.round + 1})
        trial.config = trial.config.model_copy(update={"train": train})
    run_rounds(trials, bench, lambda trial, settled: None)


def _jobs(trials: list[Trial], bench: Bench) -> list[Job]:
    return [job for trial in trials for job in make_jobs(trial, bench)]


def _steps(jobs: Sequence[Job]) -> int:
    return sum(len(job.plan.rows) for job in jobs)


def _timed(device: torch.device, act: Callable[[], Any]) -> float:
    """Return the seconds of an action."""
    began = time.perf_counter()
    act()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _gap(plain: Plain, deltas: Sequence[Tensors]) -> float:
    """How far apart two ways ended, as a share of the way gone; the worst party's."""
    worst = 0.0
    for job, delta, end in zip(plain.jobs, deltas, plain.ends, strict=True):
        gone = sub(end.weights, job.state.model.weights)
        worst = max(worst, float(norm(sub(delta, gone)) / norm(gone)))
    return worst


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
