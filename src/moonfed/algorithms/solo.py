"""SOLO: every party trains a model of its own on its own rows, and nothing is ever sent."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator, LocalRule
from moonfed.core.types import (
    InitModel,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    Upload,
    as_snapshot,
)


@dataclass(frozen=True)
class SoloLocal(LocalRule):
    """Plain training of the party's own model, with one optimiser from the first round to the last."""

    shares_model = False
    keeps_optimizer = True

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"model": init_model(f"party{info.party}")}

    def start(self, state: State, memory: Slots) -> Snapshot:
        return as_snapshot(memory, "model")

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        return {}, {"model": trained.model}

    def personal(self, state: State, memory: Slots) -> Snapshot:
        return as_snapshot(memory, "model")


@dataclass(frozen=True)
class SoloAggregator(Aggregator):
    """A server that receives nothing and sends nothing."""

    moves_model = False

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        return {}

    def update(self, state: State, total: Tensors, population: Population) -> None:
        return None


PRESET = Preset("solo", SoloLocal, SoloAggregator)
