"""What a bench measures: how much work, how long each way took, and the ratios that follow."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Profile(NamedTuple):
    """How much work is done to measure."""

    rows: int
    check_epochs: int  # of the plain loop and of the check
    epochs: int  # of the engine's timing
    repeats: int
    warm: int  # rounds before the engine is timed: on a CPU until steps of every width are written down
    trials: tuple[int, ...]
    modes: tuple[tuple[str, str, bool], ...]  # name, precision, compiled


PROFILES = {
    "cpu": Profile(2560, 3, 3, 5, 24, (1,), (("stacked", "fp32", False),)),
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
            ("compiled", "fp16", True),
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
    each_time: tuple[float, ...] = ()  # times as fast as eager, repeat by repeat


@dataclass
class Measured:
    """All timings of a run, and their ratios."""

    machine: dict[str, Any]
    timings: list[Timing] = field(default_factory=list)
    stopped: bool = False  # before all was timed

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
        if "stacked_over_eager_moon" in found:
            found = {"stacked_over_eager": found["stacked_over_eager_moon"]} | found
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
