"""Key pairs of sites and coordinator, readable by their owner only, and the allow-list of public keys."""

import contextlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, short, unwritable, write_bytes

GROUP_AND_OTHERS = 0o077  # the permission bits of everybody but the owner


def make_key_pair(path: Path) -> Path:
    """Make a private key at a path and its public key beside it (.pub), in the format that Flower's nodes read."""
    key, public = generate_private_key(SECP384R1()), path.with_name(path.name + ".pub")
    make_folder(path.parent)
    refuse_existing(public)
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_new(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def read_private(path: Path) -> EllipticCurvePrivateKey:
    """Read a private key; reject one that other users of the machine can read."""
    content = read_file(path)
    if path.stat().st_mode & GROUP_AND_OTHERS:
        raise UserError(f"{path} can be read by other users of this machine; run chmod 600 {path}")
    try:
        if b"OPENSSH PRIVATE KEY" in content:
            key = load_ssh_private_key(content, None)
        else:
            key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} should hold a private key without a passphrase: {short(error)}") from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP384R1):
        raise _wrong_kind(path, key)
    return key


def read_public(path: Path) -> EllipticCurvePublicKey:
    """Read a public key."""
    return parse_public(read_file(path), path)


def parse_public(content: bytes, path: Path) -> EllipticCurvePublicKey:
    """Parse a public key that came from a file."""
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} should hold a public key in OpenSSH format: {short(error)}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise _wrong_kind(path, key)
    return key


def read_allow_list(folder: Path) -> dict[str, EllipticCurvePublicKey]:
    """Read the public keys that may take part: a folder with one <site>.pub per site, no key twice."""
    if not folder.is_dir():
        raise UserError(f"{folder} should be a folder with one <site>.pub per site; it does not exist")
    allowed: dict[str, EllipticCurvePublicKey] = {}
    owners: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.pub")):
        key, site = read_public(path), path.name.removesuffix(".pub")
        point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        if point in owners:
            raise UserError(f"{folder} has the same key for {owners[point]} and {site}; delete one of the two")
        allowed[site], owners[point] = key, site
    if not allowed:
        raise UserError(f"{folder} holds no <site>.pub; add the sites' public keys with moonfed federation admit")
    return allowed


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read; an existing file is never overwritten.

    This does not go through moonfed.core.files: the file must be private from its creation on (O_EXCL, mode 0600).
    """
    refuse_existing(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, this fails if another process was faster
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_new(path: Path, content: bytes) -> None:
    """Write a new public file; an existing file is never overwritten."""
    refuse_existing(path)
    write_bytes(path, content)


def refuse_existing(path: Path) -> None:
    """Reject a path at which there is a file already."""
    if path.exists() or path.is_symlink():
        raise _exists(path)


def _exists(path: Path) -> UserError:
    return UserError(f"{path} exists and is not overwritten; move it away, or use another folder")


def read_file(path: Path) -> bytes:
    """Read a file, or say in one line why it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None


def _wrong_kind(path: Path, key: object) -> UserError:
    curve = getattr(getattr(key, "curve", None), "name", type(key).__name__.strip("_"))
    return UserError(f"{path} is a key of the wrong kind ({curve}); use ECDSA on P-384: ssh-keygen -t ecdsa -b 384")


def private_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Encode a private key in the format that TLS servers read."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
