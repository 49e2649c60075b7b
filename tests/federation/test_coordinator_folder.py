"""The coordinator's folder: made completely or not at all, one key per site, and certificates that can be renewed."""

import json
import os
from pathlib import Path

import pytest
from commands import moonfed, refuse, refused

from moonfed.core.errors import UserError
from moonfed.federation.pki.certificates import check_server_files, read_certificate
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder, make_coordinator_folder
from moonfed.federation.pki.folder_lock import locked_folder
from moonfed.federation.pki.keys import make_key_pair


@pytest.fixture
def coordinator(tmp_path: Path) -> CoordinatorFolder:
    return make_coordinator_folder(tmp_path / "coordinator", "fed.example.org", 9443, 3)


@pytest.mark.parametrize(
    "words",
    [
        ("--host", ""),
        ("--host", "a b"),
        ("--host", "*"),
        ("--host", "höst"),
        ("--host", "10.0.0.300"),
        ("--host", "x", "--days", "40000"),
    ],
)
def test_what_cannot_be_made_is_rejected_before_anything_is_made(tmp_path: Path, words: tuple[str, ...]):
    refuse(tmp_path, "federation", "init", tmp_path / "new", *words)
    (tmp_path / "file").write_text("")
    assert "not an empty folder" in refuse(tmp_path, "federation", "init", tmp_path / "file", "--host", "x")


def test_a_site_is_made_of_a_whole_invitation_in_a_folder_of_its_own(coordinator: CoordinatorFolder, tmp_path: Path):
    def made(place: Path, invitation: Path) -> str:
        words = ("--invitation", invitation, "--name", "north", "--share", "0")
        return refuse(tmp_path, "site", "init", place, *words)

    (tmp_path / "file").write_text("")
    assert "not an empty folder" in made(tmp_path / "file", coordinator.invitation)
    given = json.loads(coordinator.invitation.read_text())
    for part in ("authority", "coordinator"):
        junk = tmp_path / f"{part}.json"
        junk.write_text(json.dumps(given | {part: "-----BEGIN NONSENSE-----"}))
        assert "cannot be read; ask the coordinator for a new one" in made(tmp_path / "new", junk)
        assert not (tmp_path / "new").exists()


def test_the_coordinators_own_key_is_not_admitted(coordinator: CoordinatorFolder):
    with pytest.raises(UserError, match="the coordinator's own key"):
        coordinator.admit("north", coordinator.path / "coordinator.key.pub")


def test_a_key_is_admitted_under_one_name_only(coordinator: CoordinatorFolder, tmp_path: Path):
    public = make_key_pair(tmp_path / "key")
    for _ in range(2):
        assert moonfed("federation", "admit", coordinator.path, "north", public).code == 0
    public.write_bytes(public.read_bytes().strip() + b" the same, with another comment\n")
    line = refuse(tmp_path, "federation", "admit", coordinator.path, "south", public)
    assert line == f"moonfed: {public} is already the key of north; each site needs a key of its own\n"
    assert moonfed("federation", "admit", coordinator.path, "south", make_key_pair(tmp_path / "other")).code == 0


def test_a_certificate_is_renewed_for_sites_that_know_the_old_authority(coordinator: CoordinatorFolder):
    authority, before = (
        coordinator.server_files.authority.read_bytes(),
        read_certificate(coordinator.server_files.certificate),
    )
    answer = moonfed("federation", "renew", coordinator.path, "--days", "100")
    assert answer.code == 0, answer
    after = read_certificate(coordinator.server_files.certificate)
    assert f"is valid until {after.not_valid_after_utc:%d %B %Y}" in answer.out
    assert (after.not_valid_after_utc - before.not_valid_after_utc).days == 97
    assert coordinator.server_files.authority.read_bytes() == authority
    check_server_files(coordinator.server_files)


def test_a_certificate_is_not_renewed_under_a_federation_that_runs(coordinator: CoordinatorFolder, tmp_path: Path):
    with locked_folder(coordinator.path, "a test"):
        line = refuse(tmp_path, "federation", "renew", coordinator.path)
    assert line == f"moonfed: {coordinator.path} is in use by a running federation; stop that first\n"
    assert "is not a coordinator's folder" in refused(moonfed("federation", "renew", tmp_path))


def test_a_folder_that_cannot_be_written_is_rejected_with_one_line(coordinator: CoordinatorFolder, tmp_path: Path):
    (coordinator.path / "lock").mkdir()
    assert f"make {coordinator.path} writable" in refused(moonfed("federation", "renew", coordinator.path))
    with (
        pytest.raises(UserError, match=r"cannot write .*nowhere/lock: No such file"),
        locked_folder(tmp_path / "nowhere", "x"),
    ):
        pass
    if os.getuid():  # root writes anywhere
        (coordinator.path / "lock").rmdir()
        coordinator.path.chmod(0o500)
        try:
            assert f"make {coordinator.path} writable" in refused(moonfed("federation", "renew", coordinator.path))
        finally:
            coordinator.path.chmod(0o700)
