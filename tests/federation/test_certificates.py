"""Certificates: made for given hosts and days, trusted by those who hold the authority's, and by nobody else."""

import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
)

from moonfed.core.errors import UserError
from moonfed.federation.pki.certificates import (
    ServerFiles,
    check_server_files,
    expiry_warning,
    make_authority,
    make_server_certificate,
    read_certificate,
    renew_server_certificate,
)
from moonfed.federation.pki.keys import read_private

HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An authority and its server's files."""
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder, 30)
    return make_server_certificate(folder, HOSTS, 30)


def resigned(
    files: ServerFiles, folder: Path, begin: datetime, end: datetime, without_hosts: bool = False
) -> ServerFiles:
    """The server's certificate once more, by its own authority, valid from one day to another."""
    old, authority = read_certificate(files.certificate), read_certificate(files.authority)
    new = x509.CertificateBuilder(authority.subject, old.subject, old.public_key(), x509.random_serial_number())
    new = new.not_valid_before(begin).not_valid_after(end)
    for extension in old.extensions:
        if not (without_hosts and isinstance(extension.value, x509.SubjectAlternativeName)):
            new = new.add_extension(extension.value, extension.critical)
    path = folder / "again.pem"
    key = read_private(files.authority.with_name("ca.key"))
    path.write_bytes(new.sign(key, SHA384()).public_bytes(Encoding.PEM))
    return files._replace(certificate=path)


def day(days):
    return datetime.now(UTC) + timedelta(days=days)


def handshake(files, authority, name="localhost", plain=False):
    """Shake hands over TLS through a real socket; return what the server's side then heard."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.certificate, files.key)
    heard = []

    def serve(listener):
        connection, _ = listener.accept()
        connection.settimeout(10)
        try:
            with server.wrap_socket(connection, server_side=True) as safe:
                heard.append(safe.recv(100))
                safe.sendall(b"welcome")
        except (ssl.SSLError, OSError):
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=10) as connection:
                if plain:
                    with contextlib.suppress(ConnectionError):  # hung up on
                        connection.sendall(b"update without TLS" * 10)
                        assert b"welcome" not in connection.recv(100)
                else:
                    client = ssl.create_default_context(cafile=authority)
                    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
                    with client.wrap_socket(connection, server_hostname=name) as safe:
                        safe.sendall(b"update")
                        assert safe.recv(100) == b"welcome"
        finally:
            thread.join(10)
    return heard


@pytest.mark.parametrize("name", HOSTS)
def test_a_site_that_holds_the_authoritys_certificate_believes_the_server_by_name_and_by_address(made, name):
    check_server_files(made)
    assert handshake(made, made.authority, name) == [b"update"]


def test_an_expired_certificate_is_trusted_by_no_site_and_started_by_no_server(made, tmp_path):
    expired = resigned(made, tmp_path, day(-30), day(-1))
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        handshake(expired, made.authority)
    with pytest.raises(UserError, match=r"again\.pem expired on .*; renew it with moonfed federation renew"):
        check_server_files(expired)


def test_a_certificate_of_tomorrow_is_not_trusted_today(made, tmp_path):
    early = resigned(made, tmp_path, day(1), day(30))
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        handshake(early, made.authority)
    with pytest.raises(UserError, match=r"not valid before .* is this machine's clock right\?"):
        check_server_files(early)


def test_a_certificate_of_a_foreign_authority_is_not_trusted(made, tmp_path):
    make_authority(tmp_path, 30)
    foreign = make_server_certificate(tmp_path, HOSTS, 30)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(foreign, made.authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, None)
    with pytest.raises(UserError, match=r"server\.pem was not signed by .*ca\.crt"):
        check_server_files(foreign._replace(authority=made.authority))


def test_a_certificate_for_another_host_is_not_trusted(made):
    for name in ("example.org", "127.0.0.2"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            handshake(made, made.authority, name)


def test_a_certificate_without_a_host_is_rejected_before_the_server_starts(made, tmp_path):
    nameless = resigned(made, tmp_path, day(-1), day(30), without_hosts=True)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(nameless, made.authority)
    with pytest.raises(UserError, match="names no host"):
        check_server_files(nameless)


def test_nothing_is_received_from_a_site_that_does_not_use_tls(made):
    assert handshake(made, made.authority, plain=True) == []


def test_another_key_than_the_certificates_is_rejected(made, tmp_path):
    make_authority(tmp_path, 30)
    other = make_server_certificate(tmp_path, HOSTS, 30)
    with pytest.raises(UserError, match=r"server\.key is not the key of"):
        check_server_files(ServerFiles(made.authority, made.certificate, other.key))


def test_the_lifetime_is_the_given_days_and_hosts_are_named(made):
    found = read_certificate(made.certificate)
    assert abs(found.not_valid_after_utc - day(30)) < timedelta(hours=1)
    hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(a) for a in hosts.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_certificate_that_cannot_be_made_or_read_is_rejected_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"lifetime is 1 day to 100 years, got 0"):
        make_authority(tmp_path, 0)
    make_authority(tmp_path, 1)
    with pytest.raises(UserError, match="needs a host name or an address"):
        make_server_certificate(tmp_path, [], 1)
    with pytest.raises(UserError, match="ASCII"):
        make_server_certificate(tmp_path, ["höst"], 1)
    with pytest.raises(UserError, match=r"lifetime is 1 day to 100 years, got -1"):
        make_server_certificate(tmp_path, HOSTS, -1)
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(UserError, match=r"ca\.crt should hold a certificate in PEM format"):
        make_server_certificate(tmp_path, HOSTS, 1)


@pytest.mark.parametrize(
    "host", ["", " ", "a b", "*", "*.example.org", "a..b", "-a", "a-", "x" * 64, "256.1.1.1", "0.0.0.0"]
)
def test_a_host_that_no_site_could_reach_is_rejected(tmp_path, host):
    make_authority(tmp_path, 1)
    with pytest.raises(UserError, match=r"a host is a name such as|not the address of one machine"):
        make_server_certificate(tmp_path, [host], 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "ca.key"]


@pytest.mark.parametrize("age", [(-30, -1), (-1, 3)])
def test_a_renewed_certificate_is_of_the_same_hosts_key_and_authority(tmp_path, age):
    make_authority(tmp_path, 400)
    files = make_server_certificate(tmp_path, HOSTS, 30)
    before, key = read_certificate(files.certificate), files.key.read_bytes()
    resigned(files, tmp_path, day(age[0]), day(age[1])).certificate.replace(files.certificate)
    ends = renew_server_certificate(files, 90)
    after = read_certificate(files.certificate)
    assert after.not_valid_after_utc == ends
    assert abs(ends - day(90)) < timedelta(minutes=5)
    assert after.serial_number != before.serial_number
    assert {e.oid: e.value for e in after.extensions} == {e.oid: e.value for e in before.extensions}
    assert files.key.read_bytes() == key
    check_server_files(files)
    for name in HOSTS:
        assert handshake(files, files.authority, name) == [b"update"]


def test_no_certificate_outlives_its_authority(tmp_path):
    make_authority(tmp_path, 50)
    files = make_server_certificate(tmp_path, HOSTS, 365)
    authority = read_certificate(files.authority)
    assert read_certificate(files.certificate).not_valid_after_utc == authority.not_valid_after_utc
    assert renew_server_certificate(files, 365) == authority.not_valid_after_utc


def test_a_certificate_that_expires_within_a_month_is_reported_and_no_other(tmp_path):
    make_authority(tmp_path, 400)
    files = make_server_certificate(tmp_path, HOSTS, 31)
    assert expiry_warning(files) is None
    renew_server_certificate(files, 12)
    line = expiry_warning(files)
    assert line is not None
    assert line.startswith(f"{files.certificate} expires on {day(12):%d %B %Y}, in 1")
    assert line.endswith(f"renew it with moonfed federation renew {tmp_path}")
    other = tmp_path / "other"
    make_authority(other, 20)
    last = expiry_warning(make_server_certificate(other, HOSTS, 365))
    assert last is not None
    assert "ca.crt expires on" in last
    assert "moonfed federation init" in last
