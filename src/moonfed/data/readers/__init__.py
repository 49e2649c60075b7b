"""Readers of user data: files and folders in, a data set out."""

from moonfed.data.readers.assemble import EncodedRows, apply_encoding, dataset_name, read_dataset
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.torch_dataset import from_torch

__all__ = ["EncodedRows", "ReaderOptions", "apply_encoding", "dataset_name", "from_torch", "read_dataset"]
