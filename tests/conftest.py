"""One thread a process: the suite runs two processes on two cores, and bits depend on the number of threads."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from commands import SMALL, moonfed
from home import Home, serving

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in commands that it starts with &
for name in ("COLUMNS", "LINES"):  # pytest-xdist sets them, and tables are as wide as COLUMNS says
    os.environ.pop(name, None)

FOLDERS_AS_MARKERS = ("gpu", "federation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of some folders by the folder's name; skip those of tests/gpu where there is no GPU."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in FOLDERS_AS_MARKERS:
            item.add_marker(folder)
        if folder == "gpu" and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is not there yet; what a test publishes is taken back after it."""
    from moonfed.data.catalog.image_sets import IMAGE_SETS
    from moonfed.data.catalog.sources import ORIGINS

    for name in list(IMAGE_SETS):
        monkeypatch.setitem(IMAGE_SETS, name, IMAGE_SETS[name])
        monkeypatch.setitem(ORIGINS, name, ORIGINS[name])
    monkeypatch.setenv("MOONFED_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def home() -> Iterator[Home]:
    """A web server on this machine that has the small CIFAR-10."""
    from publishing import ARCHIVE, NAME

    with serving() as home:
        home.files[NAME] = ARCHIVE
        yield home
