"""The folders of a federation: the coordinator's, with its keys and its allow-list, and each site's."""

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_json, write_bytes, write_json
from moonfed.data.readers import ReaderOptions
from moonfed.federation.flower.processes import alone
from moonfed.federation.pki.certificates import (
    CA_CERTIFICATE,
    MOST_DAYS,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    ServerFiles,
    check_days,
    checked_hosts,
    make_authority,
    make_server_certificate,
    read_certificate,
    renew_server_certificate,
)
from moonfed.federation.pki.keys import make_key_pair, read_allow_list, read_private, read_public

COORDINATOR, INVITATION, SITES, SITE, KEY = "coordinator.key", "invitation.json", "sites", "site.json", "site.key"
AUTHORITY = 3650  # days by which the authority outlives the first certificate that it signs
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Home:
    """The coordinator's folder."""

    path: Path

    @property
    def files(self) -> ServerFiles:
        """Where the server's certificate and key lie."""
        return ServerFiles(self.path / CA_CERTIFICATE, self.path / SERVER_CERTIFICATE, self.path / SERVER_KEY)

    @property
    def sites(self) -> Path:
        """The allow-list: one public key a site."""
        return self.path / SITES

    @property
    def invitation(self) -> Path:
        """What every site is given: address, authority and the coordinator's public key."""
        return self.path / INVITATION

    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        return _split(str(read_json(self.invitation).get("address")))

    def move(self, host: str, port: int) -> None:
        """Listen elsewhere from now on."""
        write_json(self.invitation, read_json(self.invitation) | {"address": f"{host}:{port}"})

    def key(self) -> EllipticCurvePrivateKey:
        """Read the key with which asks are signed."""
        return read_private(self.path / COORDINATOR)

    def allowed(self) -> dict[str, EllipticCurvePublicKey]:
        """Read the allow-list."""
        return read_allow_list(self.sites)

    def admit(self, name: str, public: Path) -> None:
        """Put a site's public key on the allow-list."""
        check_name(name)
        key, place = read_public(public), self.sites / f"{name}.pub"
        if key == self.key().public_key():
            raise UserError(f"{public} is the coordinator's own key; a site sends its site.key.pub")
        for other in sorted(self.sites.glob("*.pub")):
            if other != place and read_public(other) == key:
                raise UserError(f"{public} is the key of {other.stem} already; each site needs a key of its own")
        if place.exists() and place.read_bytes() != public.read_bytes():
            raise UserError(f"{place} holds another key of a site of this name; delete it first if it is outdated")
        make_folder(self.sites)
        write_bytes(place, public.read_bytes())

    def renew(self, days: int) -> datetime:
        """Make a new server certificate from the same authority, while no federation runs here; say when it ends."""
        with alone(self.path, "a running federation"):
            return renew_server_certificate(self.files, days)


def make_home(path: Path, host: str, port: int, days: int) -> Home:
    """Make a coordinator's folder: authority, server certificate, the key that signs asks, and the invitation."""
    home, hosts = Home(path), sorted({host, "localhost", "127.0.0.1"})
    check_days(days)
    checked_hosts(hosts)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already, and no empty folder; a federation needs a new or empty one")
    make_authority(path, min(days + AUTHORITY, MOST_DAYS))
    make_server_certificate(path, hosts, days)
    public = make_key_pair(path / COORDINATOR)
    make_folder(home.sites)
    write_json(
        home.invitation,
        {
            "address": f"{host}:{port}",
            "authority": (path / CA_CERTIFICATE).read_text(),
            "coordinator": public.read_text(),
        },
    )
    write_app(path / "app")
    return home


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
    _split(given["address"])
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


def check_name(name: str) -> None:
    """Refuse a name that could not be the name of a file."""
    if not SITE_NAME.fullmatch(name):
        raise UserError(f"a site's name is up to 63 letters, digits, dots and dashes, got {name!r}")


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"an address is written HOST:PORT, got {address!r}")
    return host, int(port)


APP = """# What flwr run sends to SuperLink: the code is the moonfed that is installed on each machine.
[project]
name = "moonfed-federation"
version = "1.0.0"
description = "moonfed over Flower"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "moonfed"

[tool.flwr.app.components]
serverapp = "moonfed_app:server"
clientapp = "moonfed_app:site"

[tool.flwr.app.config]
home = ""
out = ""
config = ""
resume = false
"""
APP_CODE = '''"""The two apps of moonfed's federations, as Flower looks for them."""

from moonfed.federation.apps import server, site

__all__ = ["server", "site"]
'''


def write_app(folder: Path) -> None:
    """Write the folder that flwr run takes."""
    make_folder(folder)
    write_bytes(folder / "pyproject.toml", APP.encode())
    write_bytes(folder / "moonfed_app.py", APP_CODE.encode())
