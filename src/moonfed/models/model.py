"""Model = encoder + projection head + output layer, the same network for every algorithm."""

from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from moonfed.core.types import Outputs


class EncoderSpec(NamedTuple):
    """What an encoder must know to build itself."""

    shape: tuple[int, ...]  # of one input: (channels, height, width) of a picture
    norm: str = "none"  # none, group or batch
    words: int = 0  # how many different words there are, if the input is numbers of words


class Encoder(nn.Module):
    """Maps a batch of inputs to features; a subclass says how many, and of what shape its inputs are."""

    features: int
    norm: ClassVar[str] = "none"  # the normalisation it is published with
    takes: ClassVar[str] = "pictures"  # pictures, numbers (of any shape) or words

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()


class Model(nn.Module):
    """The paper's network (section 3.3.1): encoder, two-layer projection head, output layer."""

    def __init__(self, encoder: nn.Module, classes: int, projection: int, features: int = 0) -> None:
        """Put heads on an encoder; one that is not ours does not know how many features it gives."""
        super().__init__()
        self.encoder = encoder
        self.spares = features > 0  # an encoder that is not ours may write into what it is given
        wide = encoder.features if isinstance(encoder, Encoder) else features
        # The output layer sits on the projection itself, with no non-linearity between, as in the authors' code.
        self.projector = (
            nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, projection))
            if projection
            else nn.Identity()
        )
        self.head = nn.Linear(projection or wide, classes)

    def forward(self, x: Tensor) -> Outputs:  # x: [batch, ...]
        features = self.encoder(x.clone() if self.spares else x).flatten(1)
        projection = self.projector(features)
        return Outputs(features, projection, self.head(projection))


def norm_layer(norm: str, channels: int, flat: bool = False, together: int = 2) -> nn.Module:
    """Make the normalisation of a layer's channels: none, group (so many channels together) or batch."""
    if norm == "batch":
        return nn.BatchNorm1d(channels) if flat else nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(1, channels // together), channels)
    return nn.Identity()
