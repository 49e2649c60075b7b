"""Which methods a comparison of all of them has: those that fit the settings, the data and the network."""

from moonfed.core.errors import UserError
from moonfed.experiments.compare import Values
from moonfed.training.config import make_config
from moonfed.training.registry import ALGORITHMS, BASELINE, PHASES
from moonfed.training.resolve import resolve
from moonfed.training.setup import nothing_private, set_up
from moonfed.training.trial import RunContext, new_trial

FIRST_LOOK = {"rounds": 15, "epochs": 5}  # instead of the defaults, with which all methods take long


def shorten(values: Values) -> tuple[Values, str]:
    """Set the rounds and epochs of a first look unless they are given; return the settings, and the flags set.

    The user's own data keeps the epochs that fit it (training/data_defaults.py).
    """
    train, own_data = values.get("train", {}), values.get("data", {}).get("path") is not None
    short = {key: n for key, n in FIRST_LOOK.items() if key not in train and not (own_data and key == "epochs")}
    return values | {"train": train | short}, " ".join(f"--{key} {n}" for key, n in short.items())


def every_method(values: Values) -> tuple[list[str], dict[str, str]]:
    """List every method that can be run with some settings, FedAvg first, and why each other one is left out.

    A phase after training is a method too, on top of FedAvg.
    """
    if values.get("algorithm"):
        named = ", ".join(f"algorithm.{name}" for name in values["algorithm"])
        raise UserError(
            f"--all runs methods with their default settings; {named} cannot be set for all; name the methods instead, "
            "or omit the setting"
        )
    # What is wrong with FedAvg is wrong with every method.
    context, _ = set_up([make_config(values | {"algorithm": {"name": BASELINE}})])
    others = [*(name for name in ALGORITHMS if name != BASELINE), *(f"{BASELINE}+{phase}" for phase in PHASES)]
    left_out = {name: why for name in others if (why := _misfit(name, values, context))}
    return [BASELINE, *(name for name in others if name not in left_out)], left_out


def _misfit(name: str, values: Values, context: RunContext) -> str:
    """Say why a method cannot be run, or would be another method; empty if it fits."""
    try:
        config = make_config(values | {"algorithm": {"name": name}})
        trial = new_trial(resolve(config, context.data, context.custom), context)
    except UserError as error:
        return str(error).partition("; ")[0]  # what follows is advice for a method by itself
    return nothing_private(trial)
