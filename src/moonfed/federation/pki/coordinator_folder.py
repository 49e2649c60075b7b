"""The coordinator's folder: certificates, signing key, invitation and allow-list."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_json, write_bytes, write_json
from moonfed.federation.pki.certificates import (
    CA_CERTIFICATE,
    MAX_LIFETIME_DAYS,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    ServerFiles,
    check_days,
    make_authority,
    make_server_certificate,
    parse_hosts,
    renew_server_certificate,
)
from moonfed.federation.pki.folder_lock import locked_folder
from moonfed.federation.pki.keys import make_key_pair, read_allow_list, read_private, read_public

COORDINATOR_KEY, INVITATION, ALLOW_LIST = "coordinator.key", "invitation.json", "sites"
AUTHORITY_EXTRA_DAYS = 3650  # by which the authority outlives the first certificate that it signs
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class CoordinatorFolder:
    """Access to the files of a coordinator."""

    path: Path

    @property
    def server_files(self) -> ServerFiles:
        """The paths of the server's certificate and key."""
        return ServerFiles(self.path / CA_CERTIFICATE, self.path / SERVER_CERTIFICATE, self.path / SERVER_KEY)

    @property
    def allow_list_folder(self) -> Path:
        """The folder with one public key per site."""
        return self.path / ALLOW_LIST

    @property
    def invitation(self) -> Path:
        """The file that every site is given: address, authority and the coordinator's public key."""
        return self.path / INVITATION

    def address(self) -> tuple[str, int]:
        """Read host and port at which the sites reach the coordinator."""
        return parse_address(str(read_json(self.invitation).get("address")))

    def set_address(self, host: str, port: int) -> None:
        """Change the address in the invitation."""
        write_json(self.invitation, read_json(self.invitation) | {"address": f"{host}:{port}"})

    def private_key(self) -> EllipticCurvePrivateKey:
        """Read the key that signs requests."""
        return read_private(self.path / COORDINATOR_KEY)

    def allow_list(self) -> dict[str, EllipticCurvePublicKey]:
        """Read the public keys of the sites that may take part."""
        return read_allow_list(self.allow_list_folder)

    def admit(self, name: str, public: Path) -> None:
        """Add a site's public key to the allow-list."""
        check_site_name(name)
        key, target = read_public(public), self.allow_list_folder / f"{name}.pub"
        if key == self.private_key().public_key():
            raise UserError(f"{public} is the coordinator's own key; use the site's site.key.pub")
        for other in sorted(self.allow_list_folder.glob("*.pub")):
            if other != target and read_public(other) == key:
                raise UserError(f"{public} is already the key of {other.stem}; each site needs a key of its own")
        if target.exists() and target.read_bytes() != public.read_bytes():
            raise UserError(f"{target} holds another key for {name}; delete it first if it is outdated")
        make_folder(self.allow_list_folder)
        write_bytes(target, public.read_bytes())

    def renew_certificate(self, days: int) -> datetime:
        """Sign a new server certificate while no federation runs here; return when it expires."""
        with locked_folder(self.path, "a running federation"):
            return renew_server_certificate(self.server_files, days)


def make_coordinator_folder(path: Path, host: str, port: int, days: int) -> CoordinatorFolder:
    """Make a coordinator's folder: authority, server certificate, signing key and invitation."""
    folder, hosts = CoordinatorFolder(path), sorted({host, "localhost", "127.0.0.1"})
    check_days(days)
    parse_hosts(hosts)
    check_new_folder(path, "a federation")
    make_authority(path, min(days + AUTHORITY_EXTRA_DAYS, MAX_LIFETIME_DAYS))
    make_server_certificate(path, hosts, days)
    public = make_key_pair(path / COORDINATOR_KEY)
    make_folder(folder.allow_list_folder)
    write_json(
        folder.invitation,
        {
            "address": f"{host}:{port}",
            "authority": (path / CA_CERTIFICATE).read_text(),
            "coordinator": public.read_text(),
        },
    )
    return folder


def check_new_folder(path: Path, purpose: str) -> None:
    """Reject a path that is a file or a folder with something in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} exists and is not an empty folder; {purpose} needs a new or empty one")


def check_site_name(name: str) -> None:
    """Reject a name that could not be a file name."""
    if not SITE_NAME.fullmatch(name):
        raise UserError(f"a site's name has up to 63 letters, digits, dots and dashes, got {name!r}")


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"an address is written HOST:PORT, got {address!r}")
    return host, int(port)
