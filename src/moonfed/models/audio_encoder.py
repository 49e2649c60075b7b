"""A small encoder of audio: spectrograms in, features out."""

from torch import Tensor, nn

from moonfed.models.layers import norm_layer
from moonfed.models.model import Encoder, EncoderSpec


class AudioEncoder(Encoder):
    """Three convolutions, each halving the spectrogram by stride or pooling, then the mean over time of every band.

    The first convolution has stride two instead of pooling. Otherwise its output would be the widest layer by far, and
    the widest layer limits how many lanes a CPU can stack within its cache.
    """

    features = 64
    norm = "group"

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        channels, bands, _ = spec.shape
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 8, 3, stride=2, padding=1),
            norm_layer(spec.norm, 8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=1),
            norm_layer(spec.norm, 16),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            norm_layer(spec.norm, 32),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),
        )
        for _ in range(3):
            bands = -(-bands // 2)
        self.hidden = nn.Sequential(nn.Linear(32 * bands, self.features), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # x: [batch, 1, band, frame]
        return self.hidden(self.convolutions(x).mean(3).flatten(1))
