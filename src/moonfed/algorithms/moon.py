"""MOON (Li, He & Song 2021), eq. 3 and 7: pull the local representation towards the global model's
and push it away from those of the party's own last k models."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.loss_terms import TermRule
from moonfed.core.rules import setting
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
    as_snapshot,
    as_tensor,
)


@dataclass(frozen=True)
class MoonLocal(TermRule):
    """Cross-entropy plus mu times the model-contrastive loss."""

    mu: float = setting(1.0, "weight of the contrastive term", ge=0)
    temperature: float = setting(0.5, "tau, the temperature of the contrastive term", gt=0)
    negatives: int = setting(1, "k, how many of the party's previous models are negatives", ge=1, le=1000)

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        count = next(iter(state.model.weights.values())).new_zeros(())  # of previous models; the slots are placeholders
        return {"count": count, **dict.fromkeys(self._queue(), state.model)}

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        return {"global": state.model} | {k: as_snapshot(memory, k) for k in self._queue()}

    def term(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        # Column 0 is the positive pair. An empty slot of the queue is masked out: the first round has no negative and
        # its step is FedAvg's, to the bit.
        columns = [ctx.anchors["global"], *(ctx.anchors[k] for k in self._queue())]
        sims = torch.stack([cosine_similarity(out.projection, a.projection, dim=-1) for a in columns], dim=-1)
        empty = torch.arange(len(columns), device=sims.device) > as_tensor(ctx.memory, "count")
        logits = (sims / self.temperature).masked_fill(empty, -torch.inf)
        contrast = cross_entropy(logits, torch.zeros_like(y))
        return {"contrastive": self.mu * contrast}

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        # Newest first, the oldest is dropped; the authors' queue copies one model into all older slots for k >= 3.
        queue = self._queue()
        models = [trained.model, *(as_snapshot(ctx.memory, k) for k in queue[:-1])]
        count = torch.clamp(as_tensor(ctx.memory, "count") + 1, max=self.negatives)
        return {}, {"count": count, **dict(zip(queue, models, strict=True))}

    def _queue(self) -> list[str]:
        """Name the slots of the previous models, newest first."""
        return [f"previous{i}" for i in range(self.negatives)]


PRESET = Preset("moon", MoonLocal)
