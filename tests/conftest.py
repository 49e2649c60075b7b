"""One thread a process: the suite runs two processes on two cores, and bits depend on the number of threads."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from commands import SMALL, moonfed

torch.set_num_threads(1)


@pytest.fixture
def float64() -> Iterator[None]:
    """Build every network of a test in double precision, so that rounding cannot hide a difference."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds of moon; tests copy it."""
    folder = tmp_path_factory.mktemp("good") / "run"
    assert moonfed("run", *SMALL, "--out", folder).code == 0
    return folder


@pytest.fixture
def copy(good: Path, place: Path) -> Path:
    return Path(shutil.copytree(good, place / "run"))
