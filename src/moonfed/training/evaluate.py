"""How good a model is on the test rows."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from moonfed.core.types import PartyInfo, Snapshot
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset

BATCH = 1000
SMALL = 1_000_000  # weights; a GPU takes ten times as many rows at once through such a net


@dataclass(frozen=True)
class Score:
    """What a model says of the test rows."""

    confusion: Tensor  # int64 [true class, predicted class], on the CPU
    loss: float  # mean cross-entropy
    parties: Tensor | None = None  # int64 [party, 2]: test rows that are the party's own, and right ones among them

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy."""
        return int(self.confusion.diagonal().sum()) / int(self.confusion.sum())

    @property
    def by_class(self) -> list[float]:
        """Accuracy on the test rows of each class; 0 for a class without any."""
        return (self.confusion.diagonal() / self.confusion.sum(1).clamp(min=1).double()).tolist()

    def on_own_rows(self, party: int) -> float | None:
        """The accuracy on a party's own test rows; None if it has none."""
        assert self.parties is not None
        rows, right = self.parties[party].tolist()
        return right / rows if rows else None

    def at_party(self, facts: PartyInfo) -> float:
        """The accuracy that a party would see on test rows with the class shares of its own rows."""
        return sum(n * right for n, right in zip(facts.class_counts, self.by_class, strict=True)) / facts.rows


@torch.no_grad()
def evaluate(net: nn.Module, data: Dataset, model: Snapshot) -> Score:
    """Score a model on the whole test set, in eval mode."""
    dtype = next(iter(model.weights.values())).dtype
    confusion = torch.zeros(data.classes**2, dtype=torch.int64, device=data.test_labels.device)
    loss = torch.zeros((), dtype=torch.float64, device=data.test_labels.device)
    whose = torch.zeros(len(data.party_names) * 2, dtype=torch.int64, device=data.test_labels.device)
    small = sum(w.numel() for w in model.weights.values()) < SMALL and data.test_inputs.is_cuda
    batch = 10 * BATCH if small else BATCH
    rows = list(zip(data.test_inputs.split(batch), data.test_labels.split(batch), strict=True))
    parties = [None] * len(rows) if data.test_party is None else data.test_party.split(batch)
    for (pixels, y), party in zip(rows, parties, strict=True):
        out = functional_call(net, (model.weights, model.buffers), (normalise(data, pixels, dtype),))
        says = out.logits.argmax(1)
        confusion += torch.bincount(y * data.classes + says, minlength=data.classes**2)
        if party is not None:
            whose += torch.bincount(party * 2 + (says == y), minlength=len(whose))
        loss += cross_entropy(out.logits, y, reduction="sum")
    by_party = None
    if data.test_party is not None:
        wrong_right = whose.view(-1, 2).cpu()
        by_party = torch.stack([wrong_right.sum(1), wrong_right[:, 1]], 1)
    return Score(confusion.view(data.classes, data.classes).cpu(), float(loss) / len(data.test_labels), by_party)
