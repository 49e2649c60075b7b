"""The model of every algorithm: encoder, projection head and output layer."""

from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from moonfed.core.types import Outputs


class EncoderSpec(NamedTuple):
    """What an encoder needs to know of its inputs, and its normalisation."""

    shape: tuple[int, ...]  # of one input: (channels, height, width) of an image
    norm: str = "none"  # none, group or batch
    words: int = 0  # vocabulary size, if the inputs are word ids


class Encoder(nn.Module):
    """Maps a batch of inputs to features; a subclass sets the number of features and the kind of its inputs."""

    features: int
    norm: ClassVar[str] = "none"  # the default normalisation
    takes: ClassVar[str] = "images"  # images, numbers (of any shape) or words

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()


class Model(nn.Module):
    """The paper's network (section 3.3.1): encoder, two-layer projection head, output layer."""

    def __init__(self, encoder: nn.Module, classes: int, projection: int, features: int = 0) -> None:
        """Add heads to an encoder; a custom one has no attribute `features`, so its number of features is passed."""
        super().__init__()
        self.encoder = encoder
        self.clones_input = features > 0  # a custom encoder may modify its input in place
        wide = encoder.features if isinstance(encoder, Encoder) else features
        # The output layer sits on the projection itself, with no non-linearity between, as in the authors' code.
        self.projector = (
            nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, projection))
            if projection
            else nn.Identity()
        )
        self.head = nn.Linear(projection or wide, classes)

    def forward(self, x: Tensor) -> Outputs:  # x: [batch, ...]
        features = self.encoder(x.clone() if self.clones_input else x).flatten(1)
        projection = self.projector(features)
        return Outputs(features, projection, self.head(projection))
