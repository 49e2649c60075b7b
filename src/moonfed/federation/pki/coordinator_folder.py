"""The coordinator's folder: its keys, its certificates and its allow-list."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_json, write_bytes, write_json
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
    renew_server_certificate,
)
from moonfed.federation.pki.folder_lock import alone
from moonfed.federation.pki.keys import make_key_pair, read_allow_list, read_private, read_public

COORDINATOR, INVITATION, SITES = "coordinator.key", "invitation.json", "sites"
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
        return split_address(str(read_json(self.invitation).get("address")))

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
    return home


def check_name(name: str) -> None:
    """Refuse a name that could not be the name of a file."""
    if not SITE_NAME.fullmatch(name):
        raise UserError(f"a site's name is up to 63 letters, digits, dots and dashes, got {name!r}")


def split_address(address: str) -> tuple[str, int]:
    """Take HOST:PORT apart."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"an address is written HOST:PORT, got {address!r}")
    return host, int(port)
