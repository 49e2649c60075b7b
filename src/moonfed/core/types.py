"""The shapes that travel: models at rest, what rules remember, what parties send."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

Tensors: TypeAlias = dict[str, Tensor]
MAX_NUMBER = 1e38  # of inputs and settings; slightly less than the largest float32


class Snapshot(NamedTuple):
    """A model at rest: every weight and every buffer, never half-copied."""

    weights: Tensors
    buffers: Tensors


Slots: TypeAlias = dict[str, Snapshot | Tensors | Tensor]
"""What a rule remembers, by name."""

InitModel: TypeAlias = Callable[[str], Snapshot]
"""init_model(name) makes the trial's random model of that name; the same name always gives the same model."""


class State(NamedTuple):
    """What the server holds between rounds: parties see model and sent, never server_state."""

    model: Snapshot
    sent: Slots
    server_state: Slots


class PartyInfo(NamedTuple):
    """What a rule may know of a party."""

    party: int
    rows: int
    class_counts: tuple[int, ...]


class Population(NamedTuple):
    """What an aggregator may know of all parties together."""

    parties: int
    rows: int
    seed: int = 0  # of the trial


class Outputs(NamedTuple):
    """A model's outputs for a batch; without a projection head, projection is features."""

    features: Tensor  # [batch, feature]
    projection: Tensor  # [batch, projection]
    logits: Tensor  # [batch, class]


class Optim(NamedTuple):
    """The settings of the optimiser, as 0-dim tensors so that they may differ from lane to lane."""

    lr: Tensor
    momentum: Tensor
    weight_decay: Tensor
    max_grad_norm: Tensor  # read only where clipping is on


class PartyTensors(NamedTuple):
    """What a rule may know of the party in a step, as tensors so that they may differ from lane to lane."""

    rows: Tensor  # 0-dim, of the weights' type
    class_counts: Tensor  # [class]


class Clock(NamedTuple):
    """When a step happens, as 0-dim int64 tensors; rounds and steps are counted from 0."""

    round: Tensor
    step: Tensor  # of the party's round; in finish the number of steps
    steps: Tensor  # in the party's round


class StepContext(NamedTuple):
    """Everything a local rule may read in a step; a new field breaks no rule."""

    weights: Tensors  # of the party's model, before the step
    anchors: dict[str, Outputs]  # outputs of the anchors for the batch; in loss only
    state: State  # what the server sent; server_state is empty
    memory: Slots
    optim: Optim
    party: PartyTensors
    clock: Clock


def party_tensors(info: PartyInfo, unit: Tensor) -> PartyTensors:
    """Write what is known of a party as tensors like a weight."""
    return PartyTensors(unit.new_full((), info.rows), unit.new_tensor(info.class_counts))


class Trained(NamedTuple):
    """A party's model after its last step, and how it got there."""

    model: Snapshot
    steps: int
    effective_steps: float  # sum of the gradient coefficients of our SGD: FedNova's a_i


class Upload(NamedTuple):
    """What a party sends at the end of its round."""

    delta: Tensors  # trained weights minus the round's global weights
    buffers: Tensors
    slots: Slots
    steps: int
    effective_steps: float
    lr: float = 1.0  # of the party's steps; between real sites it is not sent, the coordinator knows it

    @property
    def tensors(self) -> tuple[Tensors, Tensors, Slots]:
        """Every part that is made of tensors."""
        return self.delta, self.buffers, self.slots


class ReceivedUpload(NamedTuple):
    """An upload as a server has it that sees each one."""

    upload: Upload
    share: float
    info: PartyInfo


class Update(NamedTuple):
    """What an aggregator makes of a cohort's uploads."""

    delta: Tensors  # how the weights should move
    buffers: Tensors  # the new buffers
    sent: Slots  # slots that are sent from now on, beside those that are sent already
    for_optimizer: Slots  # what the aggregator tells the server optimiser alone


def _read_slot(kind: type[Any], slots: Slots, name: str) -> Any:
    """Read a slot that must hold one kind of value."""
    value = slots[name]
    if not isinstance(value, kind):
        raise TypeError(f"slot {name} holds a {type(value).__name__}, needed: a {kind.__name__}")
    return value


# Read a slot that holds a whole model, a dictionary of tensors, or one tensor.
as_snapshot: Callable[[Slots, str], Snapshot] = partial(_read_slot, Snapshot)
as_tensors: Callable[[Slots, str], Tensors] = partial(_read_slot, dict)
as_tensor: Callable[[Slots, str], Tensor] = partial(_read_slot, Tensor)
