"""A data set: one tensor of inputs of any kind, and integer labels."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Augmentation(NamedTuple):
    """The random augmentation of a data set: a crop after padding, a horizontal flip, a rotation."""

    pad: int = 0
    reflect: bool = False  # pad by reflection instead of with black
    flip: bool = False
    rotate: float = 0.0  # largest angle to either side, in degrees

    @property
    def changes(self) -> bool:
        """Whether the augmentation changes a row at all."""
        return bool(self.pad or self.flip or self.rotate)


PLAIN = Augmentation()


@dataclass(frozen=True)
class Dataset:
    """Training and test rows, with their pixel statistics, augmentation, default batch size and parties.

    Inputs are one of:

    - uint8 images [row, channel, height, width],
    - floats of any shape that are ready for the network,
    - int64 word ids [row, position].
    """

    name: str
    inputs: Tensor
    labels: Tensor  # int64 [row]
    test_inputs: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...] = ()  # of images, per channel, in pixel units
    std: tuple[float, ...] = ()
    augmentation: Augmentation = PLAIN
    batch: int = 32
    encoder: str = "cnn"  # the default encoder
    words: int = 0  # vocabulary size, if inputs are word ids; the id 0 is padding
    class_names: tuple[str, ...] = ()
    party: Tensor | None = None  # int64 [row]: the party of each row, if the data names it
    test_party: Tensor | None = None
    party_names: tuple[str, ...] = ()
    encoding: dict[str, Any] | None = None  # how rows became inputs, if that was learned from them
    source: dict[str, Any] | None = None  # path of the rows and which were skipped, for config.json
    held_out: bool = False  # whether the test rows were drawn at random from the rows of a user

    def to(self, device: torch.device) -> "Dataset":
        """Move every tensor to a device."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every input and label, which identifies the data of a checkpoint."""
        digest = hashlib.sha256()
        tensors = [self.inputs, self.labels, self.test_inputs, self.test_labels, self.party, self.test_party]
        for tensor in (t for t in tensors if t is not None):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()
