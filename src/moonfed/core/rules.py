"""The only extension point: the rules of which an algorithm is made.

Each is a small frozen dataclass of pure functions. The defaults of the first three together are FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.averaging import mean_buffers, mean_of, moved, weighted
from moonfed.core.phase import Phase
from moonfed.core.private_tensors import PRIVATE, with_private
from moonfed.core.types import (
    InitModel,
    Outputs,
    PartyInfo,
    Population,
    ReceivedUpload,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    Update,
    Upload,
    as_snapshot,
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
    """Declare a setting of a rule: default, help text and range; the configuration checks the range."""
    limits = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return field(default=default, metadata={"help": help, "limits": limits, "choices": choices})


@dataclass(frozen=True)
class LocalRule:
    """What a party does in a round; the defaults are plain training on cross-entropy."""

    needs: ClassVar[frozenset[str]] = frozenset()  # sent slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # upload slots it writes
    needs_sgd: ClassVar[str] = ""  # why the rule is right for SGD's steps only; empty: any optimiser suits it
    private: ClassVar[frozenset[str]] = frozenset()  # roles of tensors that never leave the party: norm, head
    own_rows: ClassVar[bool] = False  # True: personal models are judged on rows like the party's own
    shares_model: ClassVar[bool] = True  # False: the party trains alone, and no server combines its model
    keeps_optimizer: ClassVar[bool] = False  # whether the optimiser's state stays in the party's memory over rounds
    trains_in_turns: ClassVar[bool] = False  # True: some steps change nothing that is uploaded

    @property
    def float_settings(self) -> dict[str, float]:
        """The settings that may differ from lane to lane of a stack."""
        return {name: getattr(self, name) for name in _float_names(type(self))}

    @property
    def companion(self) -> "LocalRule | None":
        """A second rule that trains on the same batches from the same memory and uploads nothing (Ditto)."""
        return None

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        """Make a party's memory at its first participation, in whatever round that is."""
        return {}

    def start(self, state: State, memory: Slots) -> Snapshot:
        """Return the model that training starts from."""
        return state.model

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        """Name the frozen models whose outputs for the batch the loss reads."""
        return {}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        """Return the named parts of the loss; the engine sums and records them."""
        return {"supervised": cross_entropy(out.logits, y)}

    def perturb(self, grads: Tensors, ctx: StepContext) -> Tensors:
        """Return the step to a second point where the gradient is taken, for a rule that overrides this (FedSAM)."""
        raise NotImplementedError

    @property
    def takes_second_gradient(self) -> bool:
        """Whether a step takes the gradient a second time, at the point that perturb names."""
        return type(self).perturb is not LocalRule.perturb

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        """Change the gradient before the optimiser sees it."""
        return grads

    def after_step(self, model: Snapshot, ctx: StepContext) -> Snapshot:
        """Change the model after a step of the optimiser."""
        return model

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        """Return what is uploaded beside the model, and the party's memory for its next round."""
        return {}, ctx.memory

    def personal(self, state: State, memory: Slots) -> Snapshot | None:
        """Return the party's own model where that, and no global model, is what is evaluated."""
        if not self.private:
            return None
        return with_private(state.model, as_snapshot(memory, PRIVATE)) if PRIVATE in memory else state.model


@cache
def _float_names(rule: type[LocalRule]) -> tuple[str, ...]:
    """List the settings of a rule that are floats; asked for every party of every round."""
    return tuple(f.name for f in fields(rule) if f.type is float)


@dataclass(frozen=True)
class Aggregator:
    """What of the uploads reaches the server; the default is the share-weighted mean (FedAvg)."""

    needs: ClassVar[frozenset[str]] = frozenset()  # upload slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # sent slots it writes
    needs_sgd: ClassVar[str] = ""  # as in LocalRule
    for_optimizer: ClassVar[frozenset[str]] = frozenset()  # what it computes for the server optimiser, which reads it
    chosen_by: ClassVar[str] = ""  # a setting that by itself chooses this aggregator: --topology
    linear: ClassVar[bool] = True  # whether the sum of the contributions suffices; if not, reduce sees every upload
    divides_by_steps: ClassVar[bool] = False  # whether it divides an update by the number of its steps
    moves_model: ClassVar[bool] = True  # False: it computes no update of the global model
    reorders_units: ClassVar[bool] = False  # whether hidden units change places, which not every network allows

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        """Return the slots that are sent with the first model."""
        return {}

    def send(self, state: State, info: PartyInfo) -> State:
        """Return what a party is sent; the default is the same for all, without the server's own state."""
        return state._replace(server_state={})

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        """Weight an upload, at the party, so that the server only has to add."""
        return weighted(upload.delta, upload.buffers, share)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        """Turn the sum of the contributions into an update; None leaves the model as it is."""
        return Update(mean_of("delta", total), mean_buffers(state, total), {}, {})

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        """Turn all uploads, by party, into an update, where linear is False: a median is not a sum."""
        raise NotImplementedError

    def party_models(self, state: State) -> dict[int, Snapshot]:
        """Return the parties' models where each is sent its own; the default has one model for all."""
        return {}

    def copies(self, state: State, parties: Sequence[int], population: Population) -> list[int]:
        """Count the models that each party of a cohort sends, and is sent: one, to and from the server."""
        return [1] * len(parties)


@dataclass(frozen=True)
class ServerOptimizer:
    """How an update moves the global model; the default adds it (SGD with learning rate 1)."""

    needs: ClassVar[frozenset[str]] = frozenset()  # what it reads of what the aggregator computes for it

    def init(self, model: Snapshot) -> Slots:
        """Return the optimiser's state before the first round; parties never see it."""
        return {}

    def step(self, state: State, update: Update) -> State:
        """Move the state by an update."""
        return moved(state, update.delta, update)


Rule = LocalRule | Aggregator | ServerOptimizer | Phase


def settings_of(rule: Rule | type[Rule]) -> dict[str, Any]:
    """List the declared settings of a rule: name to dataclass field."""
    declared = {f.name: f for f in fields(rule)}
    for name, f in declared.items():
        if f.type not in (float, int, str) or "limits" not in f.metadata:
            raise TypeError(
                f"{rule}.{name}: a rule's setting is a float, an int or a str declared with setting(), in a file "
                "without 'from __future__ import annotations'"
            )
    return declared
