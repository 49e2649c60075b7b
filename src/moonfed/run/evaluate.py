"""How good a model is on the test rows."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from moonfed.core.types import Facts, Snapshot
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset

BATCH = 1000
SMALL = 1_000_000  # weights; a GPU takes ten times as many rows at once through such a net


@dataclass(frozen=True)
class Score:
    """What a model says of the test rows."""

    confusion: Tensor  # int64 [true class, predicted class], on the CPU
    loss: float  # mean cross-entropy

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy."""
        return int(self.confusion.diagonal().sum()) / int(self.confusion.sum())

    @property
    def by_class(self) -> list[float]:
        """Accuracy on the test rows of each class; 0 for a class without any."""
        return (self.confusion.diagonal() / self.confusion.sum(1).clamp(min=1).double()).tolist()

    def at_party(self, facts: Facts) -> float:
        """The accuracy that a party would see on test rows with the class shares of its own rows."""
        return sum(n * right for n, right in zip(facts.class_counts, self.by_class, strict=True)) / facts.rows


@torch.no_grad()
def evaluate(net: nn.Module, data: Dataset, model: Snapshot) -> Score:
    """Score a model on the whole test set, in eval mode."""
    dtype = next(iter(model.weights.values())).dtype
    confusion = torch.zeros(data.classes**2, dtype=torch.int64, device=data.test_labels.device)
    loss = torch.zeros((), dtype=torch.float64, device=data.test_labels.device)
    small = sum(w.numel() for w in model.weights.values()) < SMALL and data.test_inputs.is_cuda
    batch = 10 * BATCH if small else BATCH
    for pixels, y in zip(data.test_inputs.split(batch), data.test_labels.split(batch), strict=True):
        out = functional_call(net, (model.weights, model.buffers), (normalise(data, pixels, dtype),))
        confusion += torch.bincount(y * data.classes + out.logits.argmax(1), minlength=data.classes**2)
        loss += cross_entropy(out.logits, y, reduction="sum")
    return Score(confusion.view(data.classes, data.classes).cpu(), float(loss) / len(data.test_labels))
