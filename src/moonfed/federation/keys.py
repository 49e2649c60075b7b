"""Keys and certificates: a federation's authority, its server's certificate, one key a site, and the allow-list."""

import contextlib
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moonfed.core.errors import UserError
from moonfed.data.disk import make_folder, short, unwritable, write_bytes

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
SLACK = timedelta(minutes=5)  # between the clocks of two machines
OTHERS = 0o077  # the permission bits of everybody but the owner


class ServerFiles(NamedTuple):
    """Where the files lie with which a server proves who it is."""

    authority: Path  # goes to every site
    certificate: Path
    key: Path


def make_authority(folder: Path, days: int) -> None:
    """Make the authority of a federation: its certificate goes to every site, its key stays."""
    key = generate_private_key(SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed federation")])
    made = _certificate(name, name, key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_usage(signs_certificates=True), critical=True)
    make_folder(folder)
    _refuse_existing(folder / CA_CERTIFICATE)
    write_private(folder / CA_KEY, _pem(key))
    _write_new(folder / CA_CERTIFICATE, made.sign(key, SHA384()).public_bytes(Encoding.PEM))


def make_server_certificate(folder: Path, hosts: Sequence[str], days: int) -> ServerFiles:
    """Make a server's key and certificate for host names and addresses, signed by the authority in the folder."""
    if not hosts:
        raise UserError("a server certificate needs a host name or an address by which the sites reach it; give one")
    authority = read_certificate(folder / CA_CERTIFICATE)
    authority_key = read_private(folder / CA_KEY)
    key = generate_private_key(SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed server")])
    made = _certificate(name, authority.subject, key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([_host(text) for text in hosts]), critical=False)
    made = made.add_extension(_usage(signs_certificates=False), critical=True)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = made.add_extension(issuer, critical=False)
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    _refuse_existing(folder / SERVER_CERTIFICATE)
    write_private(folder / SERVER_KEY, _pem(key))
    _write_new(folder / SERVER_CERTIFICATE, made.sign(authority_key, SHA384()).public_bytes(Encoding.PEM))
    return ServerFiles(folder / CA_CERTIFICATE, folder / SERVER_CERTIFICATE, folder / SERVER_KEY)


def make_site_key(path: Path) -> Path:
    """Make a site's key, private beside public with .pub behind its name, in the form that Flower's nodes read."""
    key, public = generate_private_key(SECP384R1()), path.with_name(path.name + ".pub")
    make_folder(path.parent)
    _refuse_existing(public)
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    _write_new(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def read_private(path: Path) -> EllipticCurvePrivateKey:
    """Read a private key that nobody else on the machine can read."""
    content = _content(path)
    if path.stat().st_mode & OTHERS:
        raise UserError(f"{path} can be read by others on this machine; a private key needs chmod 600 {path}")
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
    """Read a site's public key."""
    try:
        key = load_ssh_public_key(_content(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} should hold a public key in OpenSSH form: {short(error)}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise _wrong_kind(path, key)
    return key


def read_allow_list(folder: Path) -> dict[str, EllipticCurvePublicKey]:
    """Read who may take part: a folder with one <site>.pub a site, no key twice."""
    if not folder.is_dir():
        raise UserError(f"{folder} should be a folder with one <site>.pub a site; there is none")
    found: dict[str, EllipticCurvePublicKey] = {}
    owners: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.pub")):
        key, site = read_public(path), path.name.removesuffix(".pub")
        point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        if point in owners:
            raise UserError(f"{folder} has one key under two names, {owners[point]} and {site}; delete one of the two")
        found[site], owners[point] = key, site
    if not found:
        raise UserError(f"{folder} holds no <site>.pub; put the public key of every site that may take part there")
    return found


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate that is valid today."""
    try:
        found = x509.load_pem_x509_certificate(_content(path))
    except ValueError as error:
        raise UserError(f"{path} should hold a certificate in PEM form: {short(error)}") from None
    now = datetime.now(UTC)
    if found.not_valid_after_utc < now:
        raise UserError(f"{path} expired on {found.not_valid_after_utc:%d %B %Y}; make a new one")
    if found.not_valid_before_utc > now:
        raise UserError(
            f"{path} is valid from {found.not_valid_before_utc:%d %B %Y} on; is this machine's clock right?"
        )
    return found


def check_server_files(files: ServerFiles) -> None:
    """Refuse, before anything listens, server files that no site would accept."""
    authority, certificate = read_certificate(files.authority), read_certificate(files.certificate)
    if read_private(files.key).public_key() != certificate.public_key():
        raise UserError(f"{files.key} is not the key of {files.certificate}; make the two together")
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise UserError(f"{files.certificate} was not signed by {files.authority}; make it in its folder") from None
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        raise UserError(
            f"{files.certificate} names no host (subjectAltName), so that no site accepts it; make a new one"
        ) from None


def write_private(path: Path, content: bytes) -> None:
    """Write a new private file whole, for its owner's eyes alone; an old one is never written over."""
    _refuse_existing(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, this fails where somebody else was faster
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_new(path: Path, content: bytes) -> None:
    _refuse_existing(path)
    write_bytes(path, content)


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise _exists(path)


def _exists(path: Path) -> UserError:
    return UserError(f"{path} is there already and is not written over; move it away, or use another folder")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None


def _wrong_kind(path: Path, key: object) -> UserError:
    curve = getattr(getattr(key, "curve", None), "name", type(key).__name__.strip("_"))
    return UserError(f"{path} is a key of the wrong kind ({curve}); use ECDSA on P-384: ssh-keygen -t ecdsa -b 384")


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError:
        raise UserError(f"a host name is written in ASCII, got {text!r}; use its xn-- form") from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, public: EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    if not 1 <= days <= 36_500:
        raise UserError(f"a certificate needs a lifetime of 1 day to 100 years, got {days} days")
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    made = made.not_valid_before(now - SLACK).not_valid_after(now + timedelta(days=days))
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
