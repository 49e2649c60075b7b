"""The only extension point: an algorithm is a local rule, an aggregator and a server optimiser.

Each is a small frozen dataclass of pure functions. The defaults of the three base classes together are FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.errors import UserError
from moonfed.core.tree import nbytes
from moonfed.core.types import (
    InitModel,
    Outputs,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    Update,
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
    """Declare a setting of a rule: default, help text and range; the configuration checks the range."""
    limits = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return field(default=default, metadata={"help": help, "limits": limits, "choices": choices})


@dataclass(frozen=True)
class LocalRule:
    """What a party does in a round; the defaults are plain training on cross-entropy."""

    needs: ClassVar[frozenset[str]] = frozenset()  # sent slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # upload slots it writes
    needs_sgd: ClassVar[str] = ""  # why the rule is right for SGD's steps only; empty: any optimiser suits it
    keeps_optimizer: ClassVar[bool] = False  # whether the optimiser's state stays in the party's memory over rounds

    @property
    def float_settings(self) -> dict[str, float]:
        """The settings that may differ from lane to lane of a stack."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.type is float}

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
        return None


@dataclass(frozen=True)
class Aggregator:
    """What of the uploads reaches the server; the default is the share-weighted mean (FedAvg)."""

    needs: ClassVar[frozenset[str]] = frozenset()  # upload slots it reads
    gives: ClassVar[frozenset[str]] = frozenset()  # sent slots it writes
    needs_sgd: ClassVar[str] = ""  # as in LocalRule
    linear: ClassVar[bool] = True  # whether the sum of the contributions suffices; if not, reduce sees every upload

    def init(self, model: Snapshot, init_model: InitModel) -> Slots:
        """Return the slots that are sent with the first model."""
        return {}

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        """Weight an upload, at the party, so that the server only has to add."""
        return weighted(upload.delta, upload.buffers, share)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        """Turn the sum of the contributions into an update; None leaves the model as it is."""
        return Update(mean_of("delta", total), mean_buffers(state, total), {})

    def reduce(self, state: State, uploads: dict[int, Upload], population: Population) -> Update:
        """Turn all uploads, by party, into an update, where linear is False: a median is not a sum."""
        raise NotImplementedError


@dataclass(frozen=True)
class ServerOptimizer:
    """How an update moves the global model; the default adds it (SGD with learning rate 1)."""

    def init(self, model: Snapshot) -> Slots:
        """Return the optimiser's state before the first round; parties never see it."""
        return {}

    def step(self, state: State, update: Update) -> State:
        """Move the state by an update."""
        return moved(state, update.delta, update)


@dataclass(frozen=True)
class Algorithm:
    """A local rule, an aggregator and a server optimiser that fit each other."""

    name: str
    local: LocalRule
    aggregator: Aggregator = Aggregator()
    server_optimizer: ServerOptimizer = ServerOptimizer()

    def __post_init__(self) -> None:
        for reader, writer, missing in (
            ("local rule", "server", self.local.needs - self.aggregator.gives),
            ("server", "local rule", self.aggregator.needs - self.local.gives),
        ):
            if missing:
                raise UserError(
                    f"{self.name} does not fit: its {reader} reads {', '.join(sorted(missing))}, which its "
                    f"{writer} does not write; omit --server to use the algorithm's own"
                )

    def aggregate(
        self,
        state: State,
        uploads: dict[int, Upload],
        shares: dict[int, float],
        infos: Sequence[PartyInfo],
        population: Population,
    ) -> tuple[State, list[int]]:
        """Let the server move the state by a round's uploads; return it with the bytes of each party that sent any.

        Contributions are added in the order of the uploads, which is that of the parties whatever the order of
        training: floating-point sums depend on it.
        """
        if not uploads:
            return state, []
        if self.aggregator.linear:
            total: Tensors = {}
            sizes: list[int] = []
            for party, upload in uploads.items():
                part = self.aggregator.contribute(upload, infos[party], shares[party])
                sizes += [nbytes(part)] if part else []
                total = {k: total[k] + part[k] for k in total} if total else part
            update: Update | None = self.aggregator.update(state, total, population)
        else:
            sizes = [nbytes(upload.tensors) for upload in uploads.values()]
            update = self.aggregator.reduce(state, uploads, population)
        return state if update is None else self.server_optimizer.step(state, update), sizes

    @property
    def rules(self) -> tuple[LocalRule, Aggregator, ServerOptimizer]:
        """The three rules."""
        return self.local, self.aggregator, self.server_optimizer

    @property
    def personal(self) -> bool:
        """Whether every party keeps a model of its own and there is no global one."""
        return type(self.local).personal is not LocalRule.personal


class Preset(NamedTuple):
    """A named combination of rules; one per file of algorithms/, aggregators/ and server_optimizers/."""

    name: str
    local: type[LocalRule] = LocalRule
    aggregator: type[Aggregator] = Aggregator
    server_optimizer: type[ServerOptimizer] = ServerOptimizer
    pooled: bool = False  # whether all rows are in one place: a split with one party

    @property
    def rules(self) -> tuple[type[LocalRule], type[Aggregator], type[ServerOptimizer]]:
        """The three rules."""
        return self.local, self.aggregator, self.server_optimizer

    @property
    def personal(self) -> bool:
        """Whether every party keeps a model of its own and there is no global one."""
        return self.local.personal is not LocalRule.personal


Rule = LocalRule | Aggregator | ServerOptimizer


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


def weighted(delta: Tensors, buffers: Tensors, share: float) -> Tensors:
    """Multiply an update and its buffers by a share; shares need not sum to one over the cohort."""
    unit = next(iter(delta.values()))
    floats = {k: v.to(unit.dtype) for k, v in buffers.items()}
    weight = torch.tensor(share, dtype=unit.dtype, device=unit.device)
    parts = {f"delta/{k}": v * share for k, v in delta.items()} | {f"buffers/{k}": v * share for k, v in floats.items()}
    return parts | {"share": weight}


def mean_of(name: str, total: Tensors) -> Tensors:
    """Divide the summed entries below a name by the summed shares."""
    start = f"{name}/"
    return {k.removeprefix(start): v / total["share"] for k, v in total.items() if k.startswith(start)}


def mean_buffers(state: State, total: Tensors) -> Tensors:
    """Return the share-weighted mean of the parties' buffers, each in its own type."""
    means = mean_of("buffers", total)
    return {k: _like(v, means[k]) for k, v in state.model.buffers.items()}


def moved(state: State, step: Tensors, update: Update) -> State:
    """Add a step to the weights and take over the buffers and sent slots of an update."""
    weights = {k: v + step[k] for k, v in state.model.weights.items()}
    return state._replace(model=Snapshot(weights, update.buffers), sent=state.sent | update.sent)


def _like(old: Tensor, mean: Tensor) -> Tensor:
    return mean.to(old.dtype) if old.is_floating_point() else mean.round().to(old.dtype)
