"""Keys and certificates: made so that nobody else can read them, read with suspicion, and believed by nobody else."""

import contextlib
import os
import socket
import ssl
import stat
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from flwr.supercore.primitives.asymmetric import uses_nist_ec_curve

from moonfed.core.errors import UserError
from moonfed.federation.keys import (
    ServerFiles,
    check_server_files,
    make_authority,
    make_server_certificate,
    make_site_key,
    read_allow_list,
    read_certificate,
    read_private,
    read_public,
)

HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An authority and its server's files."""
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder, 30)
    return make_server_certificate(folder, HOSTS, 30)


def resigned(files, folder, begin, end, without_hosts=False):
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


def test_an_expired_certificate_is_believed_by_no_site_and_started_by_no_server(made, tmp_path):
    expired = resigned(made, tmp_path, day(-30), day(-1))
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        handshake(expired, made.authority)
    with pytest.raises(UserError, match=r"again\.pem expired on .*; make a new one"):
        check_server_files(expired)


def test_a_certificate_of_tomorrow_is_not_believed_today(made, tmp_path):
    early = resigned(made, tmp_path, day(1), day(30))
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        handshake(early, made.authority)
    with pytest.raises(UserError, match=r"valid from .* is this machine's clock right\?"):
        check_server_files(early)


def test_a_certificate_of_a_foreign_authority_is_not_believed(made, tmp_path):
    make_authority(tmp_path, 30)
    foreign = make_server_certificate(tmp_path, HOSTS, 30)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(foreign, made.authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, None)
    with pytest.raises(UserError, match=r"server\.pem was not signed by .*ca\.crt"):
        check_server_files(foreign._replace(authority=made.authority))


def test_a_certificate_for_another_host_is_not_believed(made):
    for name in ("example.org", "127.0.0.2"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            handshake(made, made.authority, name)


def test_a_certificate_without_a_host_is_refused_before_the_server_starts(made, tmp_path):
    nameless = resigned(made, tmp_path, day(-1), day(30), without_hosts=True)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(nameless, made.authority)
    with pytest.raises(UserError, match="names no host"):
        check_server_files(nameless)


def test_nothing_is_heard_from_a_site_that_does_not_speak_tls(made):
    assert handshake(made, made.authority, plain=True) == []


def test_another_key_than_the_certificates_is_refused(made, tmp_path):
    make_authority(tmp_path, 30)
    other = make_server_certificate(tmp_path, HOSTS, 30)
    with pytest.raises(UserError, match=r"server\.key is not the key of"):
        check_server_files(ServerFiles(made.authority, made.certificate, other.key))


def test_the_lifetime_is_the_days_asked_for_and_hosts_are_named(made):
    found = read_certificate(made.certificate)
    assert abs(found.not_valid_after_utc - day(30)) < timedelta(hours=1)
    hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(a) for a in hosts.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_private_files_are_for_their_owner_alone_and_never_written_over(tmp_path):
    before = os.umask(0)
    try:
        make_authority(tmp_path, 1)
        make_server_certificate(tmp_path, HOSTS, 1)
        make_site_key(tmp_path / "north")
    finally:
        os.umask(before)
    for name in ("ca.key", "server.key", "north"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for again in (
        lambda: make_authority(tmp_path, 1),
        lambda: make_server_certificate(tmp_path, HOSTS, 1),
        lambda: make_site_key(tmp_path / "north"),
    ):
        with pytest.raises(UserError, match="is there already and is not written over"):
            again()
    (tmp_path / "north").unlink()
    with pytest.raises(UserError, match=r"north\.pub is there already"):
        make_site_key(tmp_path / "north")
    del content["north"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content, "and nothing is left lying about"


def test_a_sites_key_is_one_that_flower_and_ssh_read(tmp_path):
    public = make_site_key(tmp_path / "north")
    key = read_private(tmp_path / "north")
    assert public.name == "north.pub"
    assert read_public(public) == key.public_key()
    assert uses_nist_ec_curve(key.public_key())
    assert key.curve.name == "secp384r1"
    assert (tmp_path / "north").read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public.read_bytes().startswith(b"ecdsa-sha2-nistp384 ")


def ssh_keygen(*arguments):
    try:
        return subprocess.run(["ssh-keygen", *arguments], check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        pytest.skip("needs ssh-keygen")


def test_keys_of_ssh_keygen_are_read_and_ours_by_it(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    ssh_keygen("-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(theirs))
    assert read_private(theirs).public_key() == read_public(tmp_path / "theirs.pub")
    public = make_site_key(ours)
    assert ssh_keygen("-y", "-f", str(ours)).split()[:2] == public.read_text().split()[:2]


def private(path, key, form=PrivateFormat.OpenSSH, secret=None):
    encryption = BestAvailableEncryption(secret) if secret else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, form, encryption))
    path.chmod(0o600)
    return path


def test_a_private_key_that_cannot_serve_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "key"
    for key, kind in ((Ed25519PrivateKey.generate(), "Ed25519"), (generate_private_key(SECP256R1()), "secp256r1")):
        with pytest.raises(
            UserError, match=rf"wrong kind \({kind}.*\); use ECDSA on P-384: ssh-keygen -t ecdsa -b 384"
        ):
            read_private(private(path, key))
    make_site_key(tmp_path / "site")
    locked = private(path, read_private(tmp_path / "site"), PrivateFormat.PKCS8, b"secret")
    with pytest.raises(UserError, match="without a passphrase"):
        read_private(locked)
    for content in (b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense", (tmp_path / "site").read_bytes()[:200]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"should hold a private key"):
            read_private(path)
    with pytest.raises(UserError, match=r"nowhere cannot be read: No such file"):
        read_private(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"cannot be read: Is a directory"):
        read_private(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_private_key_that_others_can_read_is_refused(tmp_path, mode):
    make_site_key(tmp_path / "site")
    (tmp_path / "site").chmod(mode)
    with pytest.raises(UserError, match=r"can be read by others on this machine; a private key needs chmod 600"):
        read_private(tmp_path / "site")


def test_the_allow_list_is_a_folder_of_public_keys_by_site(tmp_path):
    keys = tmp_path / "keys"
    for site in ("north", "south"):
        make_site_key(keys / site)
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    for site in ("north", "south"):
        (keys / f"{site}.pub").rename(allowed / f"{site}.pub")
    (allowed / "README").write_text("not a key")
    found = read_allow_list(allowed)
    assert list(found) == ["north", "south"]
    assert found["north"] == read_private(keys / "north").public_key()


def test_an_allow_list_that_cannot_serve_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match="should be a folder"):
        read_allow_list(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no <site>\.pub"):
        read_allow_list(tmp_path)
    public = make_site_key(tmp_path / "north")
    (tmp_path / "south.pub").write_bytes(public.read_bytes().strip() + b" another comment\n")
    with pytest.raises(UserError, match="one key under two names, north and south"):
        read_allow_list(tmp_path)
    (tmp_path / "south.pub").write_text("ecdsa-sha2-nistp384 nonsense")
    with pytest.raises(UserError, match=r"south\.pub should hold a public key in OpenSSH form"):
        read_allow_list(tmp_path)
    other = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "south.pub").write_bytes(other)
    with pytest.raises(UserError, match=r"south\.pub is a key of the wrong kind"):
        read_allow_list(tmp_path)


def test_a_certificate_that_cannot_be_made_or_read_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"lifetime of 1 day to 100 years, got 0"):
        make_authority(tmp_path, 0)
    make_authority(tmp_path, 1)
    with pytest.raises(UserError, match="needs a host name or an address"):
        make_server_certificate(tmp_path, [], 1)
    with pytest.raises(UserError, match="ASCII"):
        make_server_certificate(tmp_path, ["höst"], 1)
    with pytest.raises(UserError, match=r"lifetime of 1 day to 100 years, got -1"):
        make_server_certificate(tmp_path, HOSTS, -1)
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(UserError, match=r"ca\.crt should hold a certificate in PEM form"):
        make_server_certificate(tmp_path, HOSTS, 1)
