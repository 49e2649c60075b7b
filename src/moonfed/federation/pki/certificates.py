"""Certificates: the federation's own authority, the server's certificate, and checks of their validity."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, short, write_bytes
from moonfed.federation.pki.keys import private_pem, read_file, read_private, refuse_existing, write_new, write_private

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
MAX_LIFETIME_DAYS = 36_500
EXPIRY_WARNING = timedelta(days=30)  # a certificate that expires sooner is reported
CLOCK_TOLERANCE = timedelta(minutes=5)  # between the clocks of two machines
NEW_AUTHORITY = "sites trust no other authority: run moonfed federation init again and send new invitations"
HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # between two dots of a host name


class ServerFiles(NamedTuple):
    """The paths of the files with which a server proves its identity."""

    authority: Path  # sent to every site
    certificate: Path
    key: Path


def make_authority(folder: Path, days: int) -> None:
    """Make the authority of a federation: its certificate goes to every site, its key stays."""
    key = generate_private_key(SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed federation")])
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    make_folder(folder)
    refuse_existing(folder / CA_CERTIFICATE)
    write_private(folder / CA_KEY, private_pem(key))
    write_new(folder / CA_CERTIFICATE, builder.sign(key, SHA384()).public_bytes(Encoding.PEM))


def make_server_certificate(folder: Path, hosts: Sequence[str], days: int) -> ServerFiles:
    """Make a server's key and certificate for host names and addresses, signed by the authority in the folder."""
    key = generate_private_key(SECP384R1())
    certificate = _sign_certificate(folder, key.public_key(), parse_hosts(hosts), days)
    refuse_existing(folder / SERVER_CERTIFICATE)
    write_private(folder / SERVER_KEY, private_pem(key))
    write_new(folder / SERVER_CERTIFICATE, certificate.public_bytes(Encoding.PEM))
    return ServerFiles(folder / CA_CERTIFICATE, folder / SERVER_CERTIFICATE, folder / SERVER_KEY)


def renew_server_certificate(files: ServerFiles, days: int) -> datetime:
    """Sign the server's key again for the same hosts, and return when the new certificate expires.

    Sites need nothing new, since they trust the authority. The new certificate replaces the old one atomically and
    expires no later than the authority.
    """
    old, key = parse_certificate(read_file(files.certificate), files.certificate), read_private(files.key)
    try:
        hosts = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        raise UserError(f"{files.certificate} names no host; make a new folder with moonfed federation init") from None
    certificate = _sign_certificate(files.authority.parent, key.public_key(), hosts, days)
    write_bytes(files.certificate, certificate.public_bytes(Encoding.PEM))
    return certificate.not_valid_after_utc


def _sign_certificate(
    folder: Path, public: EllipticCurvePublicKey, hosts: Sequence[x509.GeneralName], days: int
) -> x509.Certificate:
    authority = read_certificate(folder / CA_CERTIFICATE, NEW_AUTHORITY)
    authority_key = read_private(folder / CA_KEY)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed server")])
    builder = _builder(name, authority.subject, public, days, authority.not_valid_after_utc)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(authority_key, SHA384())


def read_certificate(path: Path, advice: str = "make a new one") -> x509.Certificate:
    """Read a certificate that is valid today."""
    certificate = parse_certificate(read_file(path), path)
    check_dates(certificate, path, advice)
    return certificate


def parse_certificate(content: bytes, path: Path) -> x509.Certificate:
    """Parse a certificate that came from a file, whatever its dates."""
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise UserError(f"{path} should hold a certificate in PEM format: {short(error)}") from None


def check_dates(certificate: x509.Certificate, path: Path, advice: str = "make a new one") -> None:
    """Reject a certificate that has expired or is not valid yet."""
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        raise UserError(f"{path} expired on {certificate.not_valid_after_utc:%d %B %Y}; {advice}")
    if certificate.not_valid_before_utc > now:
        start = f"{certificate.not_valid_before_utc:%d %B %Y}"
        raise UserError(f"{path} is not valid before {start}; is this machine's clock right?")


def expiry_warning(files: ServerFiles) -> str | None:
    """Return a warning if a certificate expires within a month."""
    now = datetime.now(UTC)
    for path, advice in ((files.authority, NEW_AUTHORITY), (files.certificate, _renewal(files))):
        expiry = parse_certificate(read_file(path), path).not_valid_after_utc
        if expiry - now < EXPIRY_WARNING:
            return f"{path} expires on {expiry:%d %B %Y}, in {max(0, (expiry - now).days)} days; {advice}"
    return None


def check_server_files(files: ServerFiles) -> None:
    """Reject server files that no site would accept, before anything listens."""
    authority = read_certificate(files.authority, NEW_AUTHORITY)
    certificate = read_certificate(files.certificate, _renewal(files))
    if read_private(files.key).public_key() != certificate.public_key():
        raise UserError(f"{files.key} is not the key of {files.certificate}; make both with moonfed federation init")
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise UserError(
            f"{files.certificate} was not signed by {files.authority}; make both with moonfed federation init"
        ) from None
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        raise UserError(
            f"{files.certificate} names no host (subjectAltName), so no site would accept it; make a new one"
        ) from None


def _renewal(files: ServerFiles) -> str:
    return f"renew it with moonfed federation renew {files.certificate.parent}"


def parse_hosts(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Parse host names and addresses; reject those by which no site could reach one machine."""
    if not hosts:
        raise UserError("a server certificate needs a host name or an address by which the sites reach it; give one")
    return [_parse_host(text) for text in hosts]


def _parse_host(text: str) -> x509.GeneralName:
    try:
        address = ip_address(text)
    except ValueError:
        pass
    else:
        if address.is_unspecified or address.is_multicast:
            raise UserError(f"{text} is not the address of one machine; use the one by which the sites reach it")
        return x509.IPAddress(address)
    if not text.isascii():
        raise UserError(f"a host name must be ASCII, got {text!r}; use its xn-- form")
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or labels[-1].isdigit() or not all(HOST_LABEL.fullmatch(label) for label in labels):
        raise UserError(f"a host is a name such as fed.example.org or an address such as 10.77.0.1, got {text!r}")
    return x509.DNSName(text)


def check_days(days: int) -> None:
    """Reject a lifetime that a certificate cannot have."""
    if not 1 <= days <= MAX_LIFETIME_DAYS:
        raise UserError(f"a certificate's lifetime is 1 day to 100 years, got {days} days")


def _builder(
    subject: x509.Name, issuer: x509.Name, public: EllipticCurvePublicKey, days: int, latest: datetime | None = None
) -> x509.CertificateBuilder:
    check_days(days)
    now = datetime.now(UTC)
    expiry = now + timedelta(days=days)
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_TOLERANCE).not_valid_after(min(expiry, latest or expiry))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
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
