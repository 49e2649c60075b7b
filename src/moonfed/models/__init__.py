"""Encoders by name, and the one way to put a projection head and an output layer on any of them."""

from moonfed.models.cnn import Cnn
from moonfed.models.mlp import Mlp
from moonfed.models.model import Encoder, EncoderSpec, Model

ENCODERS: dict[str, type[Encoder]] = {"cnn": Cnn, "mlp": Mlp}

__all__ = ["ENCODERS", "Encoder", "EncoderSpec", "Model"]
