"""Encoders as users write them: nothing of this package in them."""

from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Small(nn.Module):
    """Convolutions with any layer in their midst."""

    def __init__(self, shape, *middle: nn.Module):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(4 * prod(shape[1:]), 12)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def plain(shape):
    return Small(shape)


def batch_norm(shape):
    return Small(shape, nn.BatchNorm2d(4))


def group_norm(shape):
    return Small(shape, nn.GroupNorm(2, 4), nn.GroupNorm(4, 4, affine=False))


def layer_norm(shape):
    return Small(shape, nn.LayerNorm([4, *shape[1:]]))


def dropout(shape):
    return Small(shape, nn.Dropout(0.3), nn.Dropout2d(0.2, inplace=True))


class Recurrent(nn.Module):
    """An LSTM that reads an image row by row."""

    def __init__(self, shape, dropout: float = 0.0):
        super().__init__()
        self.lstm = nn.LSTM(shape[2], 10, num_layers=2, batch_first=True, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x[:, 0])[0][:, -1]


class Attentive(nn.Module):
    """A transformer over the rows of an image; its features are not flat."""

    scale: Tensor

    def __init__(self, shape, drop: float = 0.1):
        super().__init__()
        self.place = nn.Parameter(torch.zeros(shape[1], 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, drop, batch_first=True)
        self.register_buffer("scale", torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, 0] * self.scale + self.place)


class Reader(nn.Module):
    """A transformer over word ids, initialised as is usual for one: small embeddings, mean of the positions."""

    def __init__(self, words: int, length: int, width: int = 16):
        super().__init__()
        self.words = nn.Embedding(words + 1, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.words(x) + self.place).mean(1)


def causal(shape):
    """Attention called by hand, with a mask and dropout."""

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Linear(shape[2], 3 * 8)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.parts(x[:, 0]).chunk(3, -1)
            seen = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
            return F.dropout(seen, 0.1, self.training)[:, -1]

    return Causal()


class Frozen(nn.Module):
    """A frozen part with BatchNorm and dropout below a part that learns."""

    def __init__(self, shape):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU()
        )
        self.top = nn.Linear(4 * prod(shape[1:]), 12)
        self.norm = nn.BatchNorm1d(12)
        self.backbone.requires_grad_(False)
        self.top.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.top(self.backbone(x).flatten(1)))


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(9)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


STACK = {f.__name__: f for f in (plain, batch_norm, group_norm, layer_norm, dropout, Attentive, causal, Frozen, Lazy)}
IN_TURN = {"LSTM": Recurrent, "LSTM with dropout": lambda shape: Recurrent(shape, 0.4)}
ALL = STACK | IN_TURN
