"""Certificates: a federation's authority, its server's certificate, and how long they are still good."""

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
from moonfed.federation.pki.keys import content_of, pem, read_private, refuse_existing, write_new, write_private

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
MOST_DAYS = 36_500
SOON = timedelta(days=30)  # a certificate that ends within it is spoken of
ANEW = "sites know no other: begin anew with moonfed federation init, and invite the sites again"
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # a part of a host's name
SLACK = timedelta(minutes=5)  # between the clocks of two machines


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
    refuse_existing(folder / CA_CERTIFICATE)
    write_private(folder / CA_KEY, pem(key))
    write_new(folder / CA_CERTIFICATE, made.sign(key, SHA384()).public_bytes(Encoding.PEM))


def make_server_certificate(folder: Path, hosts: Sequence[str], days: int) -> ServerFiles:
    """Make a server's key and certificate for host names and addresses, signed by the authority in the folder."""
    key = generate_private_key(SECP384R1())
    made = _signed(folder, key.public_key(), checked_hosts(hosts), days)
    refuse_existing(folder / SERVER_CERTIFICATE)
    write_private(folder / SERVER_KEY, pem(key))
    write_new(folder / SERVER_CERTIFICATE, made.public_bytes(Encoding.PEM))
    return ServerFiles(folder / CA_CERTIFICATE, folder / SERVER_CERTIFICATE, folder / SERVER_KEY)


def renew_server_certificate(files: ServerFiles, days: int) -> datetime:
    """Sign the server's key once more, for the hosts of its certificate; say until when the new one is good.

    No site notices: all of them know the authority. The new certificate is written over the old one in one step, and
    ends with the authority at the latest.
    """
    old, key = _loaded(files.certificate), read_private(files.key)
    try:
        hosts = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        raise UserError(f"{files.certificate} names no host; make a new folder with moonfed federation init") from None
    made = _signed(files.authority.parent, key.public_key(), hosts, days)
    write_bytes(files.certificate, made.public_bytes(Encoding.PEM))
    return made.not_valid_after_utc


def _signed(
    folder: Path, public: EllipticCurvePublicKey, hosts: Sequence[x509.GeneralName], days: int
) -> x509.Certificate:
    authority = read_certificate(folder / CA_CERTIFICATE, ANEW)
    authority_key = read_private(folder / CA_KEY)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed server")])
    made = _certificate(name, authority.subject, public, days, authority.not_valid_after_utc)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    made = made.add_extension(_usage(signs_certificates=False), critical=True)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = made.add_extension(issuer, critical=False)
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return made.sign(authority_key, SHA384())


def read_certificate(path: Path, advice: str = "make a new one") -> x509.Certificate:
    """Read a certificate that is valid today."""
    found, now = _loaded(path), datetime.now(UTC)
    if found.not_valid_after_utc < now:
        raise UserError(f"{path} expired on {found.not_valid_after_utc:%d %B %Y}; {advice}")
    if found.not_valid_before_utc > now:
        raise UserError(
            f"{path} is valid from {found.not_valid_before_utc:%d %B %Y} on; is this machine's clock right?"
        )
    return found


def _loaded(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content_of(path))
    except ValueError as error:
        raise UserError(f"{path} should hold a certificate in PEM form: {short(error)}") from None


def expiring(files: ServerFiles) -> str | None:
    """Say in a line what to do where a certificate ends within a month."""
    now = datetime.now(UTC)
    for path, advice in ((files.authority, ANEW), (files.certificate, _renewal(files))):
        ends = _loaded(path).not_valid_after_utc
        if ends - now < SOON:
            return f"{path} ends on {ends:%d %B %Y}, in {max(0, (ends - now).days)} days; {advice}"
    return None


def check_server_files(files: ServerFiles) -> None:
    """Refuse, before anything listens, server files that no site would accept."""
    authority = read_certificate(files.authority, ANEW)
    certificate = read_certificate(files.certificate, _renewal(files))
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


def _renewal(files: ServerFiles) -> str:
    return f"renew it with moonfed federation renew {files.certificate.parent}"


def checked_hosts(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Refuse what no site could reach a server by: names and addresses are whole and stand for one machine."""
    if not hosts:
        raise UserError("a server certificate needs a host name or an address by which the sites reach it; give one")
    return [_host(text) for text in hosts]


def _host(text: str) -> x509.GeneralName:
    try:
        address = ip_address(text)
    except ValueError:
        pass
    else:
        if address.is_unspecified or address.is_multicast:
            raise UserError(f"{text} is no address of one machine; give the one by which the sites reach this one")
        return x509.IPAddress(address)
    if not text.isascii():
        raise UserError(f"a host name is written in ASCII, got {text!r}; use its xn-- form")
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or labels[-1].isdigit() or not all(LABEL.fullmatch(label) for label in labels):
        raise UserError(f"a host is a name such as fed.example.org or an address such as 10.77.0.1, got {text!r}")
    return x509.DNSName(text)


def check_days(days: int) -> None:
    """Refuse a lifetime that no certificate can have."""
    if not 1 <= days <= MOST_DAYS:
        raise UserError(f"a certificate needs a lifetime of 1 day to 100 years, got {days} days")


def _certificate(
    subject: x509.Name, issuer: x509.Name, public: EllipticCurvePublicKey, days: int, last: datetime | None = None
) -> x509.CertificateBuilder:
    check_days(days)
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    made = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    made = made.not_valid_before(now - SLACK).not_valid_after(min(ends, last or ends))
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
