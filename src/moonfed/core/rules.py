"""An algorithm is two small frozen values: a local rule and a server rule."""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.errors import UserError
from moonfed.core.tree import zeros_like
from moonfed.core.types import (
    InitModel,
    Optim,
    Outputs,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    Tensors,
    Trained,
    Upload,
)


def setting(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a rule's setting: its default, its line of help and its range, which config checks."""
    limits = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return field(default=default, metadata={"help": help, "limits": limits, "choices": choices})


class LocalRule:
    """What a party does in a round; the defaults are plain SGD on cross-entropy."""

    needs: ClassVar[frozenset[str]] = frozenset()  # sent slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # upload slots it writes
    own: ClassVar[str | None] = None  # the slot with the party's own model, where that is what is evaluated

    def init_memory(self, state: State, facts: PartyInfo, fresh: InitModel) -> Slots:
        """Make a party's memory at its first participation, in whatever round that is."""
        return {}

    def start(self, state: State, party: Slots) -> Snapshot:
        """Say where training starts."""
        return state.model

    def velocity(self, state: State, party: Slots) -> Tensors:
        """Say what SGD's momentum buffers start from: zeros, a new optimiser each round, as published."""
        return zeros_like(self.start(state, party).weights)

    def anchors(self, state: State, party: Slots) -> dict[str, Snapshot]:
        """Name the frozen models through which the loss wants to see the batch."""
        return {}

    def loss(
        self, out: Outputs, y: Tensor, weights: Tensors, anchors: dict[str, Outputs], state: State, party: Slots
    ) -> Tensors:
        """Return the named parts of the loss; the engine sums and records them."""
        return {"supervised": cross_entropy(out.logits, y)}

    def transform_gradient(self, grads: Tensors, state: State, party: Slots) -> Tensors:
        """Change the gradient before it enters the momentum."""
        return grads

    def after_step(self, model: Snapshot, optim: Optim, state: State, party: Slots) -> Snapshot:
        """Change the model after the step."""
        return model

    def finish(self, trained: Trained, optim: Optim, state: State, party: Slots) -> tuple[Slots, Slots]:
        """Return what is uploaded beside the model, and the party's memory for its next round."""
        return {}, party


class Server:
    """What the server does with a round; a subclass says how the sum of contributions moves the model."""

    needs: ClassVar[frozenset[str]] = frozenset()  # upload slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # sent slots it writes
    linear: ClassVar[bool] = True  # whether a sum of contributions is enough; if not, combine sees every upload

    def init(self, model: Snapshot, fresh: InitModel) -> tuple[Slots, Slots]:
        """Return what is sent with the first model, and what the server keeps to itself."""
        return {}, {}

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        """Weigh an upload, at the party, so that a server has only to add."""
        raise NotImplementedError

    def step(self, state: State, total: Tensors, population: Population) -> State:
        """Move the state by the sum of the contributions."""
        raise NotImplementedError

    def combine(self, state: State, uploads: dict[int, Upload], population: Population) -> State:
        """Move the state by all uploads, by party, where linear is False: a median is no sum."""
        raise NotImplementedError


@dataclass(frozen=True)
class Algorithm:
    """A local rule and a server rule that fit each other."""

    name: str
    local: LocalRule
    server: Server

    def __post_init__(self) -> None:
        for reader, writer, missing in (
            ("party", "server", self.local.needs - self.server.gives),
            ("server", "party", self.server.needs - self.local.gives),
        ):
            if missing:
                raise UserError(
                    f"{self.name} does not fit: its {reader} rule reads {', '.join(sorted(missing))}, which its "
                    f"{writer} rule does not write; leave --server away for the algorithm's own server rule"
                )


def settings_of(rule: LocalRule | Server | type[LocalRule] | type[Server]) -> dict[str, Any]:
    """List the declared settings of a rule: name to dataclass field."""
    found = {f.name: f for f in fields(rule)}  # type: ignore[arg-type]
    for name, f in found.items():
        if f.type not in (float, int, str) or "limits" not in f.metadata:
            raise TypeError(
                f"{rule}.{name}: a rule's setting is a float, an int or a str declared with setting(), in a file "
                "without 'from __future__ import annotations'"
            )
    return found
