"""The shapes that travel: models at rest, what rules remember, what parties send."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor

Tensors: TypeAlias = dict[str, Tensor]


class Snapshot(NamedTuple):
    """A model at rest: every weight and every buffer, never half-copied."""

    weights: Tensors
    buffers: Tensors


Slots: TypeAlias = dict[str, Snapshot | Tensors | Tensor]
"""What a rule remembers, by name."""

InitModel: TypeAlias = Callable[[str], Snapshot]
"""fresh(name) makes the trial's random model of that name; the same name always gives the same model."""


class State(NamedTuple):
    """What the server holds between rounds: parties see model and sent, never kept."""

    model: Snapshot
    sent: Slots
    kept: Slots


class PartyInfo(NamedTuple):
    """What a rule may know of a party."""

    party: int
    rows: int
    class_counts: tuple[int, ...]


class Population(NamedTuple):
    """What a server rule may know of all the parties together."""

    parties: int
    rows: int


class Outputs(NamedTuple):
    """What a model says of a batch; without a projection head, projection is features."""

    features: Tensor  # [batch, feature]
    projection: Tensor  # [batch, projection]
    logits: Tensor  # [batch, class]


class Optim(NamedTuple):
    """The settings of our SGD, as 0-dim tensors so that they may differ from lane to lane."""

    lr: Tensor
    momentum: Tensor
    weight_decay: Tensor


class Trained(NamedTuple):
    """A party's model after its last step, and how it got there."""

    model: Snapshot
    velocity: Tensors  # SGD's momentum buffers
    steps: int
    effective_steps: float  # sum of the gradient coefficients of our SGD: FedNova's a_i


class Upload(NamedTuple):
    """What a party has to say at the end of its round."""

    delta: Tensors  # trained weights minus the round's global weights
    buffers: Tensors
    slots: Slots
    steps: int
    effective_steps: float


def as_snapshot(slots: Slots, name: str) -> Snapshot:
    """Read a slot that holds a whole model."""
    value = slots[name]
    if not isinstance(value, Snapshot):
        raise TypeError(f"slot {name} holds {type(value).__name__}, not a Snapshot")
    return value


def as_tensors(slots: Slots, name: str) -> Tensors:
    """Read a slot that holds a dictionary of tensors."""
    value = slots[name]
    if not isinstance(value, dict):
        raise TypeError(f"slot {name} holds {type(value).__name__}, not a dict of tensors")
    return value


def as_tensor(slots: Slots, name: str) -> Tensor:
    """Read a slot that holds one tensor."""
    value = slots[name]
    if not isinstance(value, Tensor):
        raise TypeError(f"slot {name} holds {type(value).__name__}, not a tensor")
    return value
