"""moonfed bench: the same work by the plain eager loop and by our engine, in one run; both must end alike."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from moonfed.bench.eager_loop import plain_round
from moonfed.bench.timing import PROFILES, Measured, Profile, Timing
from moonfed.core.errors import RunFailed
from moonfed.core.seeds import generator
from moonfed.core.tree import norm, sub
from moonfed.core.types import Snapshot, Tensors
from moonfed.data.dataset import Dataset, Recipe
from moonfed.engines import EngineOptions, Job, nets_of, numerics, pick_engine
from moonfed.training.config import Config, make_config
from moonfed.training.loop import run_rounds
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, Trial, new_trial

CROPS = Recipe(pad=4, reflect=True, flip=True)
# How far two ways may end apart, as a share of the way gone: rounding is all that may lie between them.
MAY_DIFFER = {"fp32": 2e-3, "tf32": 5e-2, "fp16": 5e-2, "bf16": 0.3}


def measure(
    device: torch.device,
    say: Callable[[str], None],
    only: Sequence[str] = (),
    lanes: Sequence[int] = (),
    profile: Profile | None = None,
) -> Measured:
    """Time every way of a profile, the device's by default; only names ways to take, lanes widths to try as well.

    Ctrl-C ends it early, and what was timed until then is returned.
    """
    profile = profile or PROFILES[device.type]
    found = Measured(_machine(device))
    wanted = [m for m in profile.modes if not only or f"{m[0]}-{m[1]}" in only]
    try:
        _measure(found, device, say, wanted, lanes, profile)
    except KeyboardInterrupt:
        found.stopped = True
    return found


def _measure(
    found: Measured,
    device: torch.device,
    say: Callable[[str], None],
    wanted: Sequence[tuple[str, str, bool]],
    lanes: Sequence[int],
    profile: Profile,
) -> None:
    for augmented in (True, False):
        data = pictures(profile.rows, device, augmented)
        for algorithm in ("moon", "fedavg"):
            say(f"eager, {algorithm}{'' if augmented else ', no augmentation, for the check'}")
            plain = _plain(algorithm, data, profile)
            if augmented:
                each = min(plain.time() for _ in range(profile.repeats)) / _steps(plain.jobs) * 1e6
                found.timings.append(Timing("eager", algorithm, augmented, 1, "fp32", each))
            for way, precision, compiled in wanted:
                for count in profile.trials:
                    if not augmented and (count != max(profile.trials) or (precision == "fp32" and len(wanted) > 1)):
                        continue
                    say(f"{way} {precision}, {algorithm}, trials: {count}{'' if augmented else ', no augmentation'}")
                    options = EngineOptions(precision, compile=compiled)
                    found.timings.append(_timing(way, algorithm, data, count, options, profile, plain))
    for width in lanes:
        for way, precision, compiled in wanted[-1:]:
            say(f"{way} {precision}, moon, {width} lanes")
            found.timings.append(_at_width(way, width, device, EngineOptions(precision, width, compiled)))


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
            return _timed(self.data.inputs.device, lambda: plain_round(self.model, self.data, self.jobs))


def _plain(algorithm: str, data: Dataset, profile: Profile) -> Plain:
    bench = _bench(data, EngineOptions())
    trials = _second_round(algorithm, bench, 1, profile.check_epochs)
    jobs, model = _jobs(trials, bench), build(trials[0].spec.network).to(data.inputs.device)
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


def _bench(data: Dataset, options: EngineOptions) -> RunContext:
    nets = nets_of(build(net_spec(resolve(_config("fedavg", 0, 1), data), data)).to(data.inputs.device))
    return RunContext(data, nets, pick_engine("stacked", nets, data, options))


def _config(algorithm: str, seed: int, epochs: int, **split: Any) -> Config:
    split = {"dataset": "cifar10", "floor": 64, "beta": 0.5, "partition_seed": 0} | split
    rule: dict[str, Any] = {"name": algorithm} | ({"mu": 5.0} if algorithm == "moon" else {})
    train = {"epochs": epochs, "rounds": 1}
    return make_config({"data": split, "algorithm": rule, "train": train, "run": {"seed": seed}})


def _second_round(algorithm: str, bench: RunContext, trials: int, epochs: int, **split: Any) -> list[Trial]:
    """Set trials up and run their first round, after which MOON has something to contrast with."""
    configs = [_config(algorithm, seed, epochs, **split) for seed in range(trials)]
    made = [new_trial(resolve(config, bench.data), bench) for config in configs]
    return run_rounds(made, bench)


def _timing(
    way: str, algorithm: str, data: Dataset, count: int, options: EngineOptions, profile: Profile, plain: Plain
) -> Timing:
    device = data.inputs.device
    bench = _bench(data, options)
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
        eager = plain.time() / _steps(plain.jobs) if count == 1 and data.recipe.changes else None
        taken.append(_timed(device, lambda: bench.engine.run_cohort(jobs)) / _steps(jobs))
        ratios += [eager / taken[-1]] if eager else []
    whole = min(_timed(device, lambda: _whole_round(trials, bench)) for _ in range(profile.repeats))
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    width = _width(bench)
    gap = _checked(f"{way} {options.precision}", plain, bench, options, count)  # by the stack that was timed
    return Timing(
        way,
        algorithm,
        data.recipe.changes,
        count,
        options.precision,
        statistics.median(taken) * 1e6,
        statistics.median(ratios) if ratios else None,
        whole / count,
        width,
        peak,
        gap,
        tuple(ratios),
    )


def _checked(way: str, plain: Plain, bench: RunContext, options: EngineOptions, count: int = 1) -> float:
    """Return how far from the plain loop a way ends, with as many trials in the stack; too far is a failure."""
    results = bench.engine.run_cohort(plain.jobs * count)
    gap = _gap(plain, [result.upload.delta for result in results])
    if not gap <= MAY_DIFFER[options.precision]:
        raise _elsewhere(way, gap, options)
    return gap


def _elsewhere(way: str, gap: float, options: EngineOptions) -> RunFailed:
    return RunFailed(
        f"{way} ended {gap:.2g} of the way gone from where the eager loop ended; "
        f"at most {MAY_DIFFER[options.precision]:g} would be rounding, so no speed is reported"
    )


def _width(bench: RunContext) -> int | None:
    """Read how many lanes the engine used last."""
    return getattr(bench.engine, "width", None)


def _at_width(way: str, width: int, device: torch.device, options: EngineOptions) -> Timing:
    """Time as many parties of one size as there are lanes."""
    data = pictures(width * 640, device, True)
    bench = _bench(data, options)
    trials = _second_round("moon", bench, 1, 10, partition="iid", parties=width)
    jobs = _jobs(trials, bench)
    model = build(trials[0].spec.network).to(device)
    with numerics("fp32"):
        first = Plain(model, data, jobs[:1], plain_round(model, data, jobs[:1]))
    results = bench.engine.run_cohort(jobs)
    gap = _gap(first, [results[0].upload.delta])
    if not gap <= MAY_DIFFER[options.precision]:
        raise _elsewhere(f"{way} {options.precision} with {width} lanes", gap, options)
    spent = min(_timed(device, lambda: bench.engine.run_cohort(jobs)) for _ in range(2))
    each = spent / _steps(jobs) * 1e6
    used = _width(bench)
    return Timing(f"{way}, {width} parties", "moon", True, 1, options.precision, each, lanes=used, gap_to_eager=gap)


def _whole_round(trials: list[Trial], bench: RunContext) -> None:
    """Run one more round of every trial, evaluation included."""
    run_rounds([_with_rounds(trial, trial.round + 1) for trial in trials], bench)


def _with_rounds(trial: Trial, rounds: int) -> Trial:
    train = trial.config.train.model_copy(update={"rounds": rounds})
    return replace(trial, spec=replace(trial.spec, config=trial.config.model_copy(update={"train": train})))


def _jobs(trials: list[Trial], bench: RunContext) -> list[Job]:
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
    times = len(deltas) // len(plain.jobs)  # the same trial, several times in one stack
    for job, delta, end in zip(plain.jobs * times, deltas, plain.ends * times, strict=True):
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
