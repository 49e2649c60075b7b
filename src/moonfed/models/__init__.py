"""Encoders by name, and the model that adds a projection head and an output layer to any of them."""

from moonfed.models.audio_encoder import AudioEncoder
from moonfed.models.cnn import Cnn
from moonfed.models.layers import frozen_parts, frozen_tensors, normalises_rows, tensors_of_roles, trained_tensors
from moonfed.models.mlp import Mlp
from moonfed.models.model import Encoder, EncoderSpec, Model
from moonfed.models.resnet import Resnet8, Resnet18, Resnet50
from moonfed.models.text_encoder import TextEncoder

ENCODERS: dict[str, type[Encoder]] = {
    "cnn": Cnn,
    "mlp": Mlp,
    "resnet8": Resnet8,
    "resnet18": Resnet18,
    "resnet50": Resnet50,
    "sound": AudioEncoder,
    "text": TextEncoder,
}

__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderSpec",
    "Model",
    "frozen_parts",
    "frozen_tensors",
    "normalises_rows",
    "tensors_of_roles",
    "trained_tensors",
]
