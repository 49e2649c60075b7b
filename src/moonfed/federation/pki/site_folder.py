"""A site's folder: its key, its settings, and what it knows of the coordinator."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_json, write_bytes, write_json
from moonfed.data.readers import ReaderOptions
from moonfed.federation.pki.certificates import CA_CERTIFICATE, read_certificate
from moonfed.federation.pki.coordinator_folder import INVITATION, check_name, split_address
from moonfed.federation.pki.keys import make_key_pair, read_private, read_public

SITE, KEY = "site.json", "site.key"


@dataclass(frozen=True)
class SiteSettings:
    """What a site is: its name, and where its rows are."""

    name: str
    share: int | None = None  # the rows that this party would hold in the simulated split
    data: str | None = None  # or its own rows: a file or a folder
    label: str | None = None  # the column with the class; default: label in a table, y in an .npz file
    text: str | None = None  # the column with the text; default: the coordinator's
    ignore: tuple[str, ...] = ()  # columns that are left out
    skip_bad_rows: bool = False
    device: str = "auto"
    threads: int = 0

    @property
    def reading(self) -> ReaderOptions:
        """How the site's own rows are to be read."""
        return ReaderOptions(label=self.label, text=self.text, ignore=self.ignore, skip_bad_rows=self.skip_bad_rows)


@dataclass(frozen=True)
class SitePlace:
    """A site's folder."""

    path: Path

    @property
    def settings(self) -> SiteSettings:
        """Read what the site is."""
        values: dict[str, Any] = read_json(self.path / SITE)
        try:
            values["ignore"] = tuple(values.get("ignore", ()))
            return SiteSettings(**values)
        except TypeError:
            known = ", ".join(SiteSettings.__dataclass_fields__)
            raise UserError(f"{self.path / SITE} should hold {known} and nothing else") from None

    @property
    def authority(self) -> Path:
        """The certificate by which the site knows the server."""
        return self.path / CA_CERTIFICATE

    @property
    def private(self) -> Path:
        """The site's own key."""
        return self.path / KEY

    @property
    def public(self) -> Path:
        """What the coordinator puts on its allow-list."""
        return self.path / f"{KEY}.pub"

    @property
    def memory(self) -> Path:
        """What the site remembers of its runs."""
        return self.path / "memory"

    def move(self, invitation: Path) -> None:
        """Take the address from a newer invitation."""
        write_json(self.path / INVITATION, read_json(invitation))

    def key(self) -> EllipticCurvePrivateKey:
        """Read the site's own key."""
        return read_private(self.private)

    def coordinator(self) -> EllipticCurvePublicKey:
        """Read the key by which the site knows the coordinator's asks."""
        return read_public(self.path / "coordinator.pub")

    def address(self) -> str:
        """Where the server listens."""
        return str(read_json(self.path / INVITATION).get("address"))


def make_site(path: Path, invitation: Path, settings: SiteSettings) -> SitePlace:
    """Make a site's folder from an invitation: a key that never leaves it, and what it knows of the federation."""
    check_name(settings.name)
    place = SitePlace(path)
    if (settings.share is None) == (settings.data is None):
        raise UserError("a site needs its rows: either --data PATH, or --share N for the rows of party N in the split")
    given = read_json(invitation)
    missing = {"address", "authority", "coordinator"} - {k for k, v in given.items() if isinstance(v, str)}
    if missing:
        raise UserError(f"{invitation} is no invitation: it lacks {', '.join(sorted(missing))}; ask the coordinator")
    split_address(given["address"])
    _check_invitation(invitation, given)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already, and no empty folder; a site needs a new or empty one")
    make_folder(path)
    path.chmod(0o700)  # the site's memory is nobody else's
    make_key_pair(place.private)
    write_bytes(place.authority, given["authority"].encode())
    write_bytes(path / "coordinator.pub", given["coordinator"].encode())
    write_json(path / INVITATION, given)
    write_bytes(path / SITE, (json.dumps(asdict(settings), indent=2) + "\n").encode())
    return place


def _check_invitation(invitation: Path, given: dict[str, str]) -> None:
    """Read the two things by which a site is to know its coordinator before anything is made of them."""
    with TemporaryDirectory() as folder:
        authority, key = Path(folder) / CA_CERTIFICATE, Path(folder) / "coordinator.pub"
        authority.write_text(given["authority"])
        key.write_text(given["coordinator"])
        try:
            read_certificate(authority)
            read_public(key)
        except UserError:
            raise UserError(
                f"{invitation} is no invitation: its authority or its coordinator's key is unreadable; ask for it again"
            ) from None
