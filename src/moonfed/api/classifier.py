"""A trained model as a plain module: raw inputs in, logits out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from moonfed.core.errors import UserError
from moonfed.core.types import Tensors
from moonfed.data.dataset import Dataset
from moonfed.data.readers.encoding import encoding_of
from moonfed.data.readers.npz import as_array
from moonfed.data.readers.options import NUMBERS
from moonfed.models import Model
from moonfed.training.calibration import calibrated
from moonfed.training.config import Config
from moonfed.training.registry import full_name

BATCH = 1000


class Classifier(nn.Module):
    """Encoder, projection head and output layer with the normalisation in front: takes rows as they came."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: Model,
        data: Dataset,
        classes: Sequence[Any] | None = None,
        run: Mapping[str, Any] | None = None,
        temperature: float | None = None,
    ) -> None:
        """Take a network, how its data was encoded, what there is to say of its run, and its temperature, if any."""
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.encoding = encoding_of(data)
        self.run = dict(run or {})
        self.shape = tuple(data.inputs.shape[1:])
        self.words = data.words
        self.images = data.inputs.dtype == torch.uint8
        mean, std, kind = scale_of(data)
        shape = (1, -1, *[1] * (len(self.shape) - 1))
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=kind).view(shape if values else (0,)))
        names = classes if classes is not None else data.class_names or range(data.classes)
        self.classes: NDArray[Any] = np.asarray(list(names))

    def forward(self, x: Tensor) -> Tensor:  # [batch, ...] to [batch, class]
        """Say of every row how much it looks like each class."""
        if self.mean.numel():
            x = (x.to(self.mean.dtype) - self.mean) / self.std
        if not self.words:
            x = x.to(self.model.head.weight.dtype)
        return calibrated(self.model(x).logits, self.temperature)

    def predict_proba(self, x: Any) -> NDArray[np.float64]:
        """Give the probability of each class for each row, [row, class]."""
        rows = self._rows(x)
        with torch.no_grad():
            parts = [
                self(part.to(self.model.head.weight.device)).double().softmax(1).cpu() for part in rows.split(BATCH)
            ]
        return torch.cat(parts).numpy()

    def predict(self, x: Any) -> NDArray[Any]:
        """Give the likeliest class of each row, as the labels came."""
        return self.classes[self.predict_proba(x).argmax(1)]

    def _rows(self, x: Any) -> Tensor:
        array = as_array(x)
        if array.dtype.kind not in "biuf":
            raise UserError(f"the model takes numbers, rows of shape {list(self.shape)}, got {array.dtype}")
        rows = x if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(array))
        if tuple(rows.shape[1:]) != self.shape or not len(rows):
            raise UserError(f"the model takes rows of shape {list(self.shape)}, got an array {list(rows.shape)}")
        return rows


def scale_of(data: Dataset) -> tuple[list[float], list[float], torch.dtype]:
    """Read with what mean and deviation raw inputs become a network's, and in what precision that was done."""
    if data.mean:
        return list(data.mean), list(data.std), torch.get_default_dtype()
    if data.encoding is not None and data.encoding["kind"] == NUMBERS and not data.words:
        return data.encoding["details"]["mean"], data.encoding["details"]["std"], torch.float64
    return [], [], torch.get_default_dtype()


def classifier(
    model: Model,
    tensors: Tensors,
    data: Dataset,
    classes: Sequence[Any] | None = None,
    run: Mapping[str, Any] | None = None,
    temperature: float | None = None,
) -> Classifier:
    """Fill a network with trained tensors and make a classifier of it, in eval mode."""
    model.load_state_dict({k: v for k, v in tensors.items() if k in model.state_dict()}, strict=False)
    for name, buffer in model.named_buffers():  # those that a state_dict leaves out
        buffer.data.copy_(tensors[name])
    return Classifier(model, data, classes, run, temperature).to(data.inputs.device).eval()


def run_facts(config: Config, rounds: int) -> dict[str, Any]:
    """Say in an exported file what run a model came from."""
    algorithm = full_name(config.algorithm.name, config.algorithm.server)
    return {"identity": config.identity, "algorithm": algorithm, "seed": config.run.seed, "rounds": rounds}
