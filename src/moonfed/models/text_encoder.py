"""A small encoder of texts: word ids in, features out."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from moonfed.models.layers import norm_layer
from moonfed.models.model import Encoder, EncoderSpec

WIDTH, CONTEXT = 32, 16  # features of one word, and of three neighbouring words
SCALE = 10.0  # factor between a stored word vector and the one that is used


class TextEncoder(Encoder):
    """Word vectors, a convolution over three neighbouring words, the mean of both over all words, dropout.

    A word vector is trained only by the few texts with that word, but plain SGD has one learning rate for all layers.
    Each stored vector is therefore a tenth of the one that is used, so that a step moves the used one a hundred times
    as far.

    The convolution is one linear layer on three concatenated vectors: in a stack of lanes this is one matrix product,
    the fastest kernel of a CPU. The word id 0 is padding and contributes nothing.
    """

    features = 64
    norm = "group"
    takes = "words"

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.vectors = nn.Embedding(spec.words + 1, WIDTH)
        nn.init.normal_(self.vectors.weight, std=0.1 / SCALE)  # larger initial vectors make plain SGD overfit
        self.neighbours = nn.Linear(3 * WIDTH, CONTEXT)
        # Each mean is normalised as a whole: groups of two would always become one and minus one.
        self.norms = nn.ModuleList([norm_layer(spec.norm, n, flat=True, group_size=n) for n in (WIDTH, CONTEXT)])
        self.hidden = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH + CONTEXT, self.features), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # x: int64 [batch, position]
        mask = (x != 0).unsqueeze(-1).to(self.neighbours.weight.dtype)
        words = SCALE * self.vectors(x) * mask
        padded = pad(words, (0, 0, 1, 1))
        triples = torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], -1)
        parts = (words, relu(self.neighbours(triples)) * mask)
        count = mask.sum(1).clamp(min=1)
        return self.hidden(
            torch.cat([norm(part.sum(1) / count) for norm, part in zip(self.norms, parts, strict=True)], -1)
        )
