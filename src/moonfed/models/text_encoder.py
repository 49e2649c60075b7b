"""A small encoder of texts: numbers of words in, features out."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from moonfed.models.model import Encoder, EncoderSpec, norm_layer

WIDTH, BESIDE = 32, 16  # numbers a word has, and numbers that three neighbouring words have together
SCALE = 10.0  # a vector is this many times what is stored of it


class Text(Encoder):
    """A vector a word, a convolution over three neighbouring words, the mean of both over all words, dropout.

    A word is trained by the few texts that hold it, and one rate of plain SGD has to do for it and for the layers that
    every text trains: of a vector a tenth is stored, so that a step moves it a hundred times as far.

    The convolution is written as one linear layer on three vectors side by side: in a stack of lanes that is one
    multiplication of matrices, and no kernel of a CPU is faster. Word 0 is no word: it has no part in anything.
    """

    features = 64
    norm = "group"
    takes = "words"

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.vectors = nn.Embedding(spec.words + 1, WIDTH)
        nn.init.normal_(self.vectors.weight, std=0.1 / SCALE)  # large ones are noise that plain SGD learns by heart
        self.neighbours = nn.Linear(3 * WIDTH, BESIDE)
        # Each mean is normalised as a whole: groups of two would be one and minus one, whatever they were.
        self.norms = nn.ModuleList([norm_layer(spec.norm, n, flat=True, together=n) for n in (WIDTH, BESIDE)])
        self.hidden = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH + BESIDE, self.features), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # x: int64 [batch, place]
        there = (x != 0).unsqueeze(-1).to(self.neighbours.weight.dtype)
        words = SCALE * self.vectors(x) * there
        around = pad(words, (0, 0, 1, 1))
        beside = torch.cat([around[:, :-2], around[:, 1:-1], around[:, 2:]], -1)
        found = (words, relu(self.neighbours(beside)) * there)
        count = there.sum(1).clamp(min=1)
        return self.hidden(
            torch.cat([norm(part.sum(1) / count) for norm, part in zip(self.norms, found, strict=True)], -1)
        )
