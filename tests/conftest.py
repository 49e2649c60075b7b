"""One thread a process: the suite runs two processes on two cores, and bits depend on the number of threads."""

import os
from collections.abc import Iterator

import pytest

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)


@pytest.fixture
def float64() -> Iterator[None]:
    """Build every network of a test in double precision, so that rounding cannot hide a difference."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
