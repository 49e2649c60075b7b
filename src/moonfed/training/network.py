"""The network of a trial: what decides its shape, and how it is built and initialised."""

from typing import NamedTuple

from moonfed.core.errors import UserError
from moonfed.core.rules import LocalRule
from moonfed.core.seeds import torch_seeded
from moonfed.core.types import Snapshot
from moonfed.data import Dataset
from moonfed.engines.devices import Device
from moonfed.models import ENCODERS, EncoderSpec, Model, tensors_of_roles, trained_tensors
from moonfed.models.custom import CustomEncoder
from moonfed.training.config import Config


class NetSpec(NamedTuple):
    """What decides a network's shape."""

    encoder: str
    shape: EncoderSpec
    classes: int
    projection: int
    custom: CustomEncoder | None = None  # the user's encoder, if it is not one of ours


def net_spec(config: Config, data: Dataset, custom: CustomEncoder | None = None) -> NetSpec:
    """Read the shape of the network from resolved settings and data."""
    shape = EncoderSpec(tuple(data.inputs.shape[1:]), config.model.norm, data.words)
    name = config.model.model
    if custom is not None:
        return NetSpec(custom.name, shape, data.classes, config.model.projection, custom)
    if name not in ENCODERS:
        raise UserError(
            f"the encoder {name} is not part of this package; name its code with --model FILE.py:NAME (run, compare, "
            "sweep, predict, export): no code is run because a run folder or a coordinator names it"
        )
    takes = ENCODERS[name].takes
    if (takes == "words") != bool(data.words) or (takes == "images" and data.inputs.dim() != 4):
        kind = "words" if data.words else "images" if data.inputs.dim() == 4 else "numbers"
        allowed = ("images", "numbers") if kind == "images" else (kind,)
        fitting = [encoder for encoder, maker in ENCODERS.items() if maker.takes in allowed]
        raise UserError(f"encoder {name} takes {takes}, {data.name} has {kind}; use --model {' or '.join(fitting)}")
    return NetSpec(name, shape, data.classes, config.model.projection)


def build(spec: NetSpec, seed: int = 0, name: str = "network") -> Model:
    """Build a network on the CPU, so that every device gets the same weights; seed and name decide them.

    The default is for a network's code and its frozen weights, which are the same for every seed.
    """
    with torch_seeded(seed, "init", name):
        if spec.custom is not None:
            return Model(spec.custom.build(spec.shape), spec.classes, spec.projection, spec.custom.features)
        return Model(ENCODERS[spec.encoder](spec.shape), spec.classes, spec.projection)


def private_tensors(spec: NetSpec, local: LocalRule) -> frozenset[str]:
    """Name the tensors of a network that a rule keeps at the party."""
    return tensors_of_roles(build(spec), local.private) if local.private else frozenset()


def random_model(spec: NetSpec, seed: int, name: str, device: Device) -> Snapshot:
    """Make the random model of a seed and a name: what of it is trained, on a device."""
    return trained_tensors(build(spec, seed, name).to(device))
