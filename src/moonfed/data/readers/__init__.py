"""Data of one's own: files and folders in, a data set out."""

from moonfed.data.readers.assemble import Applied, apply, name_of, read_dataset
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.torch_dataset import from_torch

__all__ = ["Applied", "ReaderOptions", "apply", "from_torch", "name_of", "read_dataset"]
