"""Keys: private from their creation, checked when read, and each under one name."""

import os
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from flwr.supercore.primitives.asymmetric import uses_nist_ec_curve

from moonfed.core.errors import UserError
from moonfed.federation.pki.certificates import make_authority, make_server_certificate
from moonfed.federation.pki.keys import make_key_pair, read_allow_list, read_private, read_public

HOSTS = ("localhost", "127.0.0.1")


def test_private_files_are_for_their_owner_alone_and_never_written_over(tmp_path):
    before = os.umask(0)
    try:
        make_authority(tmp_path, 1)
        make_server_certificate(tmp_path, HOSTS, 1)
        make_key_pair(tmp_path / "north")
    finally:
        os.umask(before)
    for name in ("ca.key", "server.key", "north"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for again in (
        lambda: make_authority(tmp_path, 1),
        lambda: make_server_certificate(tmp_path, HOSTS, 1),
        lambda: make_key_pair(tmp_path / "north"),
    ):
        with pytest.raises(UserError, match="exists and is not overwritten"):
            again()
    (tmp_path / "north").unlink()
    with pytest.raises(UserError, match=r"north\.pub exists"):
        make_key_pair(tmp_path / "north")
    del content["north"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content, "and no temporary file is left"


def test_a_sites_key_is_one_that_flower_and_ssh_read(tmp_path):
    public = make_key_pair(tmp_path / "north")
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
    public = make_key_pair(ours)
    assert ssh_keygen("-y", "-f", str(ours)).split()[:2] == public.read_text().split()[:2]


def private(path, key, form=PrivateFormat.OpenSSH, secret=None):
    encryption = BestAvailableEncryption(secret) if secret else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, form, encryption))
    path.chmod(0o600)
    return path


def test_a_private_key_that_cannot_be_used_is_rejected_with_what_to_do(tmp_path):
    path = tmp_path / "key"
    for key, kind in ((Ed25519PrivateKey.generate(), "Ed25519"), (generate_private_key(SECP256R1()), "secp256r1")):
        with pytest.raises(
            UserError, match=rf"wrong kind \({kind}.*\); use ECDSA on P-384: ssh-keygen -t ecdsa -b 384"
        ):
            read_private(private(path, key))
    make_key_pair(tmp_path / "site")
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
def test_a_private_key_that_others_can_read_is_rejected(tmp_path, mode):
    make_key_pair(tmp_path / "site")
    (tmp_path / "site").chmod(mode)
    with pytest.raises(UserError, match=r"can be read by other users of this machine; run chmod 600"):
        read_private(tmp_path / "site")


def test_the_allow_list_is_a_folder_of_public_keys_by_site(tmp_path):
    keys = tmp_path / "keys"
    for site in ("north", "south"):
        make_key_pair(keys / site)
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    for site in ("north", "south"):
        (keys / f"{site}.pub").rename(allowed / f"{site}.pub")
    (allowed / "README").write_text("not a key")
    found = read_allow_list(allowed)
    assert list(found) == ["north", "south"]
    assert found["north"] == read_private(keys / "north").public_key()


def test_an_allow_list_that_cannot_be_used_is_rejected_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match="should be a folder"):
        read_allow_list(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no <site>\.pub"):
        read_allow_list(tmp_path)
    public = make_key_pair(tmp_path / "north")
    (tmp_path / "south.pub").write_bytes(public.read_bytes().strip() + b" another comment\n")
    with pytest.raises(UserError, match="the same key for north and south"):
        read_allow_list(tmp_path)
    (tmp_path / "south.pub").write_text("ecdsa-sha2-nistp384 nonsense")
    with pytest.raises(UserError, match=r"south\.pub should hold a public key in OpenSSH format"):
        read_allow_list(tmp_path)
    other = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "south.pub").write_bytes(other)
    with pytest.raises(UserError, match=r"south\.pub is a key of the wrong kind"):
        read_allow_list(tmp_path)
