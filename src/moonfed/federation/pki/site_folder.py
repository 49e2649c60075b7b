"""A site's folder: its key, its settings, and the invitation by which it knows the coordinator."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_json, write_bytes, write_json
from moonfed.data.readers import ReaderOptions
from moonfed.federation.pki.certificates import CA_CERTIFICATE, check_dates, parse_certificate
from moonfed.federation.pki.coordinator_folder import INVITATION, check_new_folder, check_site_name, parse_address
from moonfed.federation.pki.keys import make_key_pair, parse_public, read_private, read_public

SITE, SITE_KEY, COORDINATOR_PUBLIC_KEY = "site.json", "site.key", "coordinator.pub"


@dataclass(frozen=True)
class SiteSettings:
    """A site's name, where its rows are, and how it trains; written to site.json under these names."""

    name: str
    share: int | None = None  # use the rows that this party would hold in the simulated split
    data: str | None = None  # or the site's own rows: a file or a folder
    label: str | None = None  # the label column; default: label in a table, y in an .npz file
    text: str | None = None  # the text column; default: the coordinator's
    ignore: tuple[str, ...] = ()  # columns to omit
    skip_bad_rows: bool = False
    device: str = "auto"
    threads: int = 0
    test: str | None = None  # test rows of the site's own, on which its personal model is judged

    @property
    def reader_options(self) -> ReaderOptions:
        """How the site's own rows are read."""
        return ReaderOptions(label=self.label, text=self.text, ignore=self.ignore, skip_bad_rows=self.skip_bad_rows)


@dataclass(frozen=True)
class SiteFolder:
    """Access to the files of a site."""

    path: Path

    @property
    def settings(self) -> SiteSettings:
        """Read the site's settings."""
        values: dict[str, Any] = read_json(self.path / SITE)
        try:
            values["ignore"] = tuple(values.get("ignore", ()))
            return SiteSettings(**values)
        except TypeError:
            known = ", ".join(SiteSettings.__dataclass_fields__)
            raise UserError(f"{self.path / SITE} should hold {known} and nothing else") from None

    @property
    def authority(self) -> Path:
        """The certificate by which the site recognises the server."""
        return self.path / CA_CERTIFICATE

    @property
    def private_key_path(self) -> Path:
        """The site's private key."""
        return self.path / SITE_KEY

    @property
    def public_key_path(self) -> Path:
        """The public key that the coordinator puts on its allow-list."""
        return self.path / f"{SITE_KEY}.pub"

    @property
    def memory_folder(self) -> Path:
        """The state that the site keeps between rounds, one folder per run."""
        return self.path / "memory"

    def update_invitation(self, invitation: Path) -> None:
        """Take the coordinator's address from a newer invitation."""
        write_json(self.path / INVITATION, read_json(invitation))

    def private_key(self) -> EllipticCurvePrivateKey:
        """Read the site's private key."""
        return read_private(self.private_key_path)

    def coordinator_key(self) -> EllipticCurvePublicKey:
        """Read the public key that verifies the coordinator's requests."""
        return read_public(self.path / COORDINATOR_PUBLIC_KEY)

    def address(self) -> str:
        """Read the coordinator's address, HOST:PORT."""
        return str(read_json(self.path / INVITATION).get("address"))


def make_site_folder(path: Path, invitation: Path, settings: SiteSettings) -> SiteFolder:
    """Make a site's folder from an invitation, with a new private key that never leaves it."""
    check_site_name(settings.name)
    folder = SiteFolder(path)
    if (settings.share is None) == (settings.data is None):
        raise UserError("a site needs rows: either --data PATH, or --share N for the rows of party N in the split")
    if settings.test is not None and settings.data is None:
        raise UserError("--test names test rows of a site's own, so it needs --data PATH for its training rows")
    content = _read_invitation(invitation)
    check_new_folder(path, "a site")
    make_folder(path)
    path.chmod(0o700)  # other users of the machine must not read the site's memory
    make_key_pair(folder.private_key_path)
    write_bytes(folder.authority, content["authority"].encode())
    write_bytes(path / COORDINATOR_PUBLIC_KEY, content["coordinator"].encode())
    write_json(path / INVITATION, content)
    write_bytes(path / SITE, (json.dumps(asdict(settings), indent=2) + "\n").encode())
    return folder


def _read_invitation(path: Path) -> dict[str, Any]:
    """Read an invitation and check that its address, certificate and key can be used."""
    content = read_json(path)
    missing = {"address", "authority", "coordinator"} - {k for k, v in content.items() if isinstance(v, str)}
    if missing:
        raise UserError(f"{path} is not an invitation: {', '.join(sorted(missing))} is missing; ask the coordinator")
    parse_address(content["address"])
    try:
        check_dates(parse_certificate(content["authority"].encode(), path), path)
        parse_public(content["coordinator"].encode(), path)
    except UserError:
        raise UserError(
            f"{path} is not a valid invitation: its certificate or its coordinator's key cannot be read; "
            "ask the coordinator for a new one"
        ) from None
    return content
