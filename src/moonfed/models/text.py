"""A small encoder of texts: numbers of words in, features out."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from moonfed.models.model import Encoder, EncoderSpec, norm_layer


class Text(Encoder):
    """A vector a word, a convolution over three neighbouring words, its mean and its maximum over all words.

    The convolution is written as one linear layer on three vectors side by side: in a stack of lanes that is one
    multiplication of matrices, and no kernel of a CPU is faster. Word 0 is no word: it has no part in anything.
    """

    features = 64
    norm = "group"
    takes = "words"

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.vectors = nn.Embedding(spec.words + 1, 32)
        nn.init.normal_(self.vectors.weight, std=0.1)  # large ones are noise that plain SGD learns by heart
        self.neighbours = nn.Linear(3 * 32, 32)
        # Mean and maximum are each normalised as a whole: groups of two would be one and minus one, whatever they were.
        norm = norm_layer(spec.norm, 2 * 32, flat=True, together=32)
        self.hidden = nn.Sequential(norm, nn.Linear(2 * 32, self.features), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # x: int64 [batch, place]
        there = (x != 0).unsqueeze(-1).to(self.neighbours.weight.dtype)
        vectors = pad(self.vectors(x) * there, (0, 0, 1, 1))
        beside = torch.cat([vectors[:, :-2], vectors[:, 1:-1], vectors[:, 2:]], -1)
        found = relu(self.neighbours(beside)) * there  # never below 0, so that a masked place is no maximum
        mean = found.sum(1) / there.sum(1).clamp(min=1)
        return self.hidden(torch.cat([mean, found.amax(1)], -1))
