"""Data of one's own: files and folders in, a data set out."""

from moonfed.data.own.build import Applied, apply, name_of, own_data
from moonfed.data.own.settings import OwnSettings
from moonfed.data.own.torchset import from_torch

__all__ = ["Applied", "OwnSettings", "apply", "from_torch", "name_of", "own_data"]
