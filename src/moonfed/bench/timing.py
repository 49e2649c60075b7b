"""What a bench measures: how much work it does, the time of each mode, and the ratios."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from moonfed.engines.devices import Device, device_name, is_gpu


class Mode(NamedTuple):
    """One way for the engine to do the work."""

    way: str  # stacked, graphs or compiled
    precision: str
    compile: bool

    @property
    def name(self) -> str:
        """The name by which a user selects the mode."""
        return f"{self.way}-{self.precision}"


class Profile(NamedTuple):
    """How much work is done to measure."""

    rows: int
    check_epochs: int  # of the eager loop and of the check
    epochs: int  # of the engine's timing
    repeats: int
    warm: int  # rounds before the engine is timed: on a CPU until steps of every width are traced
    trials: tuple[int, ...]
    modes: tuple[Mode, ...]


PROFILES = {
    "cpu": Profile(2560, 3, 3, 5, 24, (1,), (Mode("stacked", "fp32", False),)),
    "gpu": Profile(
        50_000,
        1,
        10,
        2,
        1,
        (1, 3),
        (
            Mode("graphs", "fp32", False),
            Mode("compiled", "fp32", True),
            Mode("compiled", "tf32", True),
            Mode("compiled", "fp16", True),
        ),
    ),
}


def profile_for(device: Device) -> Profile:
    """Return the default profile of a device."""
    return PROFILES["gpu" if is_gpu(device) else "cpu"]


@dataclass(frozen=True)
class Timing:
    """How long the eager loop or the engine in one mode takes."""

    way: str
    algorithm: str
    augmented: bool
    trials: int
    precision: str
    us_per_party_step: float
    times_as_fast_as_eager: float | None = None  # timed in turn with the eager loop
    seconds_per_round_and_trial: float | None = None
    lanes: int | None = None
    peak_bytes: int | None = None
    gap_to_eager: float | None = None
    each_time: tuple[float, ...] = ()  # times_as_fast_as_eager of each repeat


@dataclass
class BenchResult:
    """All timings of a bench, and their ratios."""

    machine: dict[str, Any]
    timings: list[Timing] = field(default_factory=list)
    stopped: bool = False  # whether it was stopped before all modes were timed

    def find(self, **properties: Any) -> Timing | None:
        """Find the timing with these properties."""
        return next((t for t in self.timings if all(getattr(t, k) == v for k, v in properties.items())), None)

    def ratios(self) -> dict[str, float]:
        """Compute the ratios of timings of this one run."""
        ratios: dict[str, float] = {}
        ours = [t for t in self.timings if t.way != "eager" and t.augmented]
        for name in ("moon", "fedavg"):
            mine = [t.times_as_fast_as_eager for t in ours if t.algorithm == name and t.times_as_fast_as_eager]
            if mine:
                ratios[f"stacked_over_eager_{name}"] = max(mine)
        if "stacked_over_eager_moon" in ratios:
            ratios = {"stacked_over_eager": ratios["stacked_over_eager_moon"]} | ratios
        pairs = [
            (t, self.find(way=t.way, algorithm="fedavg", augmented=t.augmented, trials=t.trials, precision=t.precision))
            for t in self.timings
            if t.algorithm == "moon" and t.way != "eager"
        ]
        for augmented, name in ((True, "moon_minus_fedavg_us"), (False, "moon_minus_fedavg_us_without_augmentation")):
            both = [(m, f) for m, f in pairs if f is not None and m.augmented == augmented]
            if both:
                moon, fedavg = min(both, key=lambda pair: pair[0].us_per_party_step)
                ratios[name] = moon.us_per_party_step - fedavg.us_per_party_step
                ratios[name.replace("minus", "over").replace("_us", "")] = (
                    moon.us_per_party_step / fedavg.us_per_party_step
                )
        return ratios


@dataclass(frozen=True)
class WorkloadTimings:
    """The timings of a workload of its own, one line of a table each."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float | None, ...]]
    machine: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """The timings as a JSON object."""
        timings = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"workload": self.caption, "machine": self.machine, "timings": timings}


def machine_facts(device: Device) -> dict[str, Any]:
    """Describe where a bench runs."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
