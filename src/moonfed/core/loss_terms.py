"""A term of one local rule's loss that can be added to another local rule: fedntd+moon has both."""

from dataclasses import dataclass, field, make_dataclass
from functools import cache
from typing import Any, ClassVar

from torch import Tensor

from moonfed.core.rules import LocalRule, settings_of
from moonfed.core.tree import union
from moonfed.core.types import (
    InitModel,
    Outputs,
    PartyInfo,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
)

# class settings that a pair takes from its base rule
FROM_BASE = ("needs_sgd", "private", "own_rows", "shares_model", "keeps_optimizer", "trains_in_turns")


@dataclass(frozen=True)
class TermRule(LocalRule):
    """A local rule whose loss is cross-entropy plus a term; it changes neither start, gradient nor model."""

    def term(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        """Return the named parts that the rule adds to a loss."""
        raise NotImplementedError

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        return super().loss(out, y, ctx) | self.term(out, y, ctx)


@dataclass(frozen=True)
class RuleWithTerm(LocalRule):
    """A base rule and a term rule; with_term makes a class for each pair, whose fields are the settings of both.

    Every hook is the base rule's; to the loss, the anchors and the memory the term rule adds its own. The term rule's
    slots are kept under names that begin with its word, so that each rule sees the memory that it would have alone.
    """

    base_type: ClassVar[type[LocalRule]]
    term_type: ClassVar[type[TermRule]]
    word: ClassVar[str]  # the term rule's name
    term_fields: ClassVar[dict[str, str]]  # settings of the term rule to the fields that hold them

    @property
    def base(self) -> LocalRule:
        """The base rule with its settings."""
        return self.base_type(**{name: getattr(self, name) for name in settings_of(self.base_type)})

    @property
    def term_rule(self) -> TermRule:
        """The term rule with its settings."""
        return self.term_type(**{name: getattr(self, own) for name, own in self.term_fields.items()})

    @property
    def takes_second_gradient(self) -> bool:
        return self.base.takes_second_gradient

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        first = self.base.init_memory(state, info, init_model)
        return union(first, self._named(self.term_rule.init_memory(state, info, init_model)))

    def start(self, state: State, memory: Slots) -> Snapshot:
        return self.base.start(state, self._of_base(memory))

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        # A model that both rules read, the global one, runs once.
        anchors = self.base.anchors(state, self._of_base(memory))
        more = self.term_rule.anchors(state, self._of_term(memory))
        shared = {name for name in anchors.keys() & more.keys() if anchors[name] is more[name]}
        return union(anchors, {name: model for name, model in more.items() if name not in shared})

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        parts = self.base.loss(out, y, self._base_context(ctx))
        return union(parts, self.term_rule.term(out, y, self._term_context(ctx)))

    def perturb(self, grads: Tensors, ctx: StepContext) -> Tensors:
        return self.base.perturb(grads, self._base_context(ctx))

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        return self.base.transform_gradient(grads, self._base_context(ctx))

    def after_step(self, model: Snapshot, ctx: StepContext) -> Snapshot:
        return self.base.after_step(model, self._base_context(ctx))

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        upload, memory = self.base.finish(trained, self._base_context(ctx))
        more, kept = self.term_rule.finish(trained, self._term_context(ctx))
        return union(upload, more), union(memory, self._named(kept))

    def _base_context(self, ctx: StepContext) -> StepContext:
        return ctx._replace(memory=self._of_base(ctx.memory))

    def _term_context(self, ctx: StepContext) -> StepContext:
        return ctx._replace(memory=self._of_term(ctx.memory))

    def _named(self, memory: Slots) -> Slots:
        return {f"{self.word}.{name}": value for name, value in memory.items()}

    def _of_base(self, memory: Slots) -> Slots:
        return {name: value for name, value in memory.items() if not name.startswith(f"{self.word}.")}

    def _of_term(self, memory: Slots) -> Slots:
        start = f"{self.word}."
        return {name.removeprefix(start): value for name, value in memory.items() if name.startswith(start)}


@cache
def with_term(base: type[LocalRule], term: type[TermRule], word: str) -> type[RuleWithTerm]:
    """Make the class of a base rule with a term; the same class every time, since lanes of one class share a stack.

    A setting of the term rule keeps its name, unless the base rule has one of that name: mu is then moon_mu.
    """
    own = settings_of(base)
    names = {name: f"{word}_{name}" if name in own else name for name in settings_of(term)}
    declared = {**own, **{names[name]: f for name, f in settings_of(term).items()}}
    values: dict[str, Any] = {
        **{name: getattr(base, name) for name in FROM_BASE},
        **{name: getattr(base, name) | getattr(term, name) for name in ("needs", "gives")},
        **{"base_type": base, "term_type": term, "word": word, "term_fields": names},
        **{"__module__": base.__module__, "__doc__": f"{base.__name__} with the term of {term.__name__}."},
    }
    return make_dataclass(
        base.__name__.removesuffix("Local") + term.__name__,
        [(name, f.type, field(default=f.default, metadata=f.metadata)) for name, f in declared.items()],
        bases=(RuleWithTerm,),
        namespace=values,
        frozen=True,
    )
