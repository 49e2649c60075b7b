"""A multi-layer perceptron on the flattened input."""

from math import prod

from torch import Tensor, nn

from moonfed.models.layers import norm_layer
from moonfed.models.model import Encoder, EncoderSpec


class Mlp(Encoder):
    """Two layers of 128 and 64 units with ReLU."""

    features = 64
    takes = "numbers"

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.layers = nn.Sequential(
            nn.Linear(prod(spec.shape), 128),
            norm_layer(spec.norm, 128, flat=True),
            nn.ReLU(),
            nn.Linear(128, self.features),
            norm_layer(spec.norm, self.features, flat=True),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1))
