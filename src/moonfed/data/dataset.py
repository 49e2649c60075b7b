"""A data set lives on the device as one tensor of inputs, whatever they are, and integer labels."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Recipe(NamedTuple):
    """The augmentation of a data set: a random crop after padding, a random horizontal flip, a random rotation."""

    pad: int = 0
    reflect: bool = False  # pad by reflection instead of black
    flip: bool = False
    rotate: float = 0.0  # degrees to either side

    @property
    def changes(self) -> bool:
        """Whether a row looks different each time it is seen."""
        return bool(self.pad or self.flip or self.rotate)


PLAIN = Recipe()


@dataclass(frozen=True)
class Dataset:
    """Training and test rows, with what is known of them: pixel statistics, augmentation, batch size, whose they are.

    Inputs are uint8 pictures [row, channel, height, width], or floats of any shape that are ready for the network, or
    int64 numbers of words [row, place].
    """

    name: str
    inputs: Tensor
    labels: Tensor  # int64 [row]
    test_inputs: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...] = ()  # of pictures, per channel, in pixel units
    std: tuple[float, ...] = ()
    recipe: Recipe = PLAIN
    batch: int = 32
    encoder: str = "cnn"  # the published one
    words: int = 0  # how many different words there are, if inputs are numbers of words; 0 is no word
    class_names: tuple[str, ...] = ()
    party: Tensor | None = None  # int64 [row]: whose row it is, where the data says so
    test_party: Tensor | None = None
    party_names: tuple[str, ...] = ()
    encoding: dict[str, Any] | None = None  # how rows became inputs, where that was learned from them
    source: dict[str, Any] | None = None  # where rows came from and which were left out, for the record

    def to(self, device: torch.device) -> "Dataset":
        """Move every tensor to a device."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every input and label: a checkpoint of other data is told by it."""
        digest = hashlib.sha256()
        tensors = [self.inputs, self.labels, self.test_inputs, self.test_labels, self.party, self.test_party]
        for tensor in (t for t in tensors if t is not None):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()
