"""Times the same work by the eager loop and by our engine, in one run; both must end at the same weights."""

import logging
import statistics
from collections.abc import Sequence

from moonfed.bench.baseline import EagerBaseline, make_baseline, run_baseline, seconds
from moonfed.bench.timing import BenchResult, Mode, Profile, Timing, machine_facts, profile_for
from moonfed.bench.workload import (
    after_first_round,
    all_jobs,
    make_context,
    random_images,
    run_whole_round,
    step_count,
)
from moonfed.data.dataset import Dataset
from moonfed.engines import EngineOptions
from moonfed.engines.devices import Device, peak_memory, release_memory, reset_peak_memory
from moonfed.training.trial import RunContext

logger = logging.getLogger(__name__)


def measure(
    device: Device,
    only: Sequence[str] = (),
    lanes: Sequence[int] = (),
    profile: Profile | None = None,
) -> BenchResult:
    """Time every mode of a profile, by default the device's; only selects modes, lanes adds runs of these widths.

    Ctrl-C ends it early; the timings until then are returned.
    """
    profile = profile or profile_for(device)
    modes = [mode for mode in profile.modes if not only or mode.name in only]
    result = BenchResult(machine_facts(device))
    try:
        for augmented in (True, False):
            _time_modes(result, random_images(profile.rows, device, augmented), modes, profile)
        for width in lanes:
            result.timings.append(_time_width(modes[-1], width, device))
    except KeyboardInterrupt:
        result.stopped = True
    return result


def _time_modes(result: BenchResult, data: Dataset, modes: Sequence[Mode], profile: Profile) -> None:
    """Time the eager loop and every mode on one data set; without augmentation, only what the ratios need."""
    augmented = data.augmentation.changes
    note = "" if augmented else ", no augmentation"
    for algorithm in ("moon", "fedavg"):
        logger.info("eager, %s%s", algorithm, note and f"{note}, for the check")
        baseline = make_baseline(algorithm, data, profile.check_epochs)
        if augmented:
            best = min(baseline.time() for _ in range(profile.repeats))
            us = best / step_count(baseline.jobs) * 1e6
            result.timings.append(Timing("eager", algorithm, augmented, 1, "fp32", us))
        for mode in modes:
            for trials in profile.trials:
                if not augmented and (trials != max(profile.trials) or (mode.precision == "fp32" and len(modes) > 1)):
                    continue
                logger.info("%s %s, %s, trials: %d%s", mode.way, mode.precision, algorithm, trials, note)
                result.timings.append(time_mode(mode, algorithm, data, trials, profile, baseline))


def time_mode(
    mode: Mode, algorithm: str, data: Dataset, trials: int, profile: Profile, baseline: EagerBaseline
) -> Timing:
    """Time the engine in one mode in turn with the eager loop, and check where it ends."""
    device, augmented = data.inputs.device, data.augmentation.changes
    context = make_context(data, EngineOptions(mode.precision, compile=mode.compile, wait_for_compiler=True))
    release_memory(device)
    reset_peak_memory(device)
    ready = after_first_round(algorithm, context, trials, profile.epochs)
    jobs = all_jobs(ready, context)
    for _ in range(profile.warm):
        context.engine.run_cohort(jobs)
    per_step: list[float] = []
    ratios: list[float] = []
    for _ in range(profile.repeats):  # in turn, so that changes of the machine's speed affect both
        eager = baseline.time() / step_count(baseline.jobs) if trials == 1 and augmented else None
        per_step.append(seconds(device, lambda: context.engine.run_cohort(jobs)) / step_count(jobs))
        ratios += [eager / per_step[-1]] if eager else []
    whole = min(seconds(device, lambda: run_whole_round(ready, context)) for _ in range(profile.repeats))
    peak, lanes = peak_memory(device) or None, _lanes_used(context)
    results = context.engine.run_cohort(baseline.jobs * trials)  # by the stack that was timed
    deltas = [result.upload.delta for result in results]
    return Timing(
        mode.way,
        algorithm,
        augmented,
        trials,
        mode.precision,
        us_per_party_step=statistics.median(per_step) * 1e6,
        times_as_fast_as_eager=statistics.median(ratios) if ratios else None,
        seconds_per_round_and_trial=whole / trials,
        lanes=lanes,
        peak_bytes=peak,
        gap_to_eager=baseline.check(f"{mode.way} {mode.precision}", deltas, mode.precision),
        each_time=tuple(ratios),
    )


def _time_width(mode: Mode, width: int, device: Device) -> Timing:
    """Time as many parties of equal size as there are lanes."""
    logger.info("%s %s, moon, %d lanes", mode.way, mode.precision, width)
    data = random_images(width * 640, device, augmented=True)
    context = make_context(data, EngineOptions(mode.precision, width, mode.compile, wait_for_compiler=True))
    trials = after_first_round("moon", context, 1, 10, partition="iid", parties=width)
    jobs = all_jobs(trials, context)
    baseline = run_baseline(trials[0], data, jobs[:1])
    first = context.engine.run_cohort(jobs)[0]
    name = f"{mode.way} {mode.precision} with {width} lanes"
    difference = baseline.check(name, [first.upload.delta], mode.precision)
    best = min(seconds(device, lambda: context.engine.run_cohort(jobs)) for _ in range(2))
    us, lanes = best / step_count(jobs) * 1e6, _lanes_used(context)
    way = f"{mode.way}, {width} parties"
    return Timing(way, "moon", True, 1, mode.precision, us, lanes=lanes, gap_to_eager=difference)


def _lanes_used(context: RunContext) -> int | None:
    """Return the number of lanes of the engine's last stack."""
    return getattr(context.engine, "width", None)
