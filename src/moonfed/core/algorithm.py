"""Algorithms: a local rule, an aggregator, a server optimiser and phases after training, which must fit each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moonfed.core.errors import UserError
from moonfed.core.phase import Phase
from moonfed.core.reduction import total_contribution
from moonfed.core.rules import Aggregator, LocalRule, Rule, ServerOptimizer
from moonfed.core.tree import nbytes
from moonfed.core.types import PartyInfo, Population, ReceivedUpload, State, Update, Upload


@dataclass(frozen=True)
class Algorithm:
    """A local rule, an aggregator and a server optimiser that fit each other, and the phases after training."""

    name: str
    local: LocalRule
    aggregator: Aggregator = field(default_factory=Aggregator)
    server_optimizer: ServerOptimizer = field(default_factory=ServerOptimizer)
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        own_models = sends_own_models(type(self.aggregator))
        if self.phases and (self.personal or own_models):
            advice = "omit the phase or the graph" if own_models else "omit the phase"
            raise UserError(
                f"{self.name} does not fit: a phase after training changes the global model, and every party has its "
                f"own; {advice}"
            )
        if why := self._misfit():
            combined = "omit what stands after the plus (--server), or name another rule there"
            advice = combined if "+" in self.name else "use rules that fit each other"
            raise UserError(f"{self.name} does not fit: {why}; {advice}")

    def _misfit(self) -> str:
        """Return why the rules do not fit each other; empty if they do."""
        local, aggregator, optimizer = self.local, self.aggregator, self.server_optimizer
        if local.shares_model != aggregator.moves_model:
            alone = "its parties share no model, so there is nothing to combine"
            return "its aggregator combines no models, and its parties share theirs" if local.shares_model else alone
        for missing, what in (
            (local.needs - aggregator.gives, "local rule reads {}, which its aggregator does not send"),
            (aggregator.gives - local.needs, "aggregator sends {}, which its local rule does not read"),
            (aggregator.needs - local.gives, "aggregator reads {}, which its local rule does not upload"),
            (
                optimizer.needs - aggregator.for_optimizer,
                "server optimiser reads {}, which its aggregator does not compute",
            ),
            (
                aggregator.for_optimizer - optimizer.needs,
                "aggregator computes {}, which its server optimiser does not read",
            ),
        ):
            if missing:
                return f"its {what.format(', '.join(sorted(missing)))}"
        if local.trains_in_turns and aggregator.divides_by_steps:
            return "its aggregator divides updates by the number of steps, and some change nothing that is uploaded"
        if not aggregator.moves_model and type(optimizer) is not ServerOptimizer:
            return "its server optimiser moves the global model, and its aggregator computes no update of it"
        return ""

    def aggregate(
        self,
        state: State,
        uploads: dict[int, Upload],
        shares: dict[int, float],
        infos: Sequence[PartyInfo],
        population: Population,
    ) -> tuple[State, int, int]:
        """Let the server move the state by a round's uploads; return it, the bytes uploaded and the models sent.

        Contributions are added in the order of the uploads, which is that of the parties whatever the order of
        training: floating-point sums depend on it.
        """
        if not uploads:
            return state, 0, 0
        received = {party: ReceivedUpload(upload, shares[party], infos[party]) for party, upload in uploads.items()}
        if self.aggregator.linear:
            total, sizes = total_contribution(self.aggregator, received.values())
            update: Update | None = self.aggregator.update(state, total, population)
            copies = len(sizes)
        else:
            counts = self.aggregator.copies(state, list(uploads), population)
            sizes = [n * nbytes(upload.tensors) for n, upload in zip(counts, uploads.values(), strict=True)]
            copies = sum(counts)
            update = self.aggregator.reduce(state, received, population)
        return state if update is None else self.server_optimizer.step(state, update), sum(sizes), copies

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The three rules, and the phases."""
        return self.local, self.aggregator, self.server_optimizer, *self.phases

    @property
    def personal(self) -> bool:
        """Whether every party has a model of its own, and that is what is evaluated."""
        return is_personal(type(self.local))


class Preset(NamedTuple):
    """A named combination of rules; one per file of algorithms/, aggregators/, server_optimizers/ and phases/."""

    name: str
    local: type[LocalRule] = LocalRule
    aggregator: type[Aggregator] = Aggregator
    server_optimizer: type[ServerOptimizer] = ServerOptimizer
    pooled: bool = False  # whether all rows are in one place: a split with one party
    part: str = ""  # the short name of its server optimiser in a combination: moon+adam
    phases: tuple[type[Phase], ...] = ()

    @property
    def rules(self) -> tuple[type[Rule], ...]:
        """The three rules, and the phases."""
        return self.local, self.aggregator, self.server_optimizer, *self.phases

    @property
    def personal(self) -> bool:
        """Whether every party has a model of its own, and that is what is evaluated."""
        return is_personal(self.local)

    @property
    def sends_own_models(self) -> bool:
        """Whether every party is sent a model of its own: a graph without a server."""
        return sends_own_models(self.aggregator)


def sends_own_models(aggregator: type[Aggregator]) -> bool:
    """Whether an aggregator sends every party a model of its own."""
    return aggregator.party_models is not Aggregator.party_models


def is_personal(local: type[LocalRule]) -> bool:
    """Whether a local rule gives every party a model of its own."""
    return bool(local.private) or local.personal is not LocalRule.personal
