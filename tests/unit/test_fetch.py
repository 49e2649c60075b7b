"""One file over HTTP, from a real server that truncates, stalls, lies and dies."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from home import Home, serving
from official import described

from moonfed.data.catalog.download import File, Patience, fetch
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch

CONTENT = np.random.default_rng(0).bytes(300_000)
QUICK = Patience(tries=4, timeout=2.0, pause=0.001)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as home:
        home.files["a.bin"] = CONTENT
        yield home


def asked(home: Home) -> File:
    return described(home.url("a.bin"), CONTENT)


def starts(home: Home) -> list[int | None]:
    return [request.start for request in home.log]


def fails(home: Home, folder: Path, patience: Patience = QUICK) -> str:
    """Fetch what cannot be fetched, and return the one line."""
    with pytest.raises(SourceError) as caught:
        fetch(asked(home), folder, QUIET, patience)
    line = str(caught.value)
    assert "\n" not in line
    assert not (folder / "a.bin").exists()
    return line


def test_a_file_comes_whole_with_progress_and_leaves_nothing_beside_it(home: Home, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int, str]] = []
    path = fetch(asked(home), tmp_path / "new", Watch(moved=lambda *told: seen.append(told)), QUICK)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["a.bin"]
    done = [told[1] for told in seen]
    assert done == sorted(done)
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT), "bytes")


def test_a_file_that_is_there_is_not_fetched_again(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    fetch(asked(home), tmp_path, QUIET, QUICK)
    assert home.log == []


def test_a_file_that_is_there_and_damaged_is(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1] + b"?")
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT


def test_a_reply_that_breaks_off_is_continued_where_it_broke_off(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "short 2000"]
    said: list[str] = []
    assert fetch(asked(home), tmp_path, Watch(said=said.append), QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 3000]
    assert sum(request.sent for request in home.log) == len(CONTENT)
    assert said[0] == "a.bin: the connection broke off after 1,000 of 300,000 bytes; trying again"


def test_what_an_earlier_try_left_is_continued(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "short 1000"]
    assert "broke off after 2,000 of 300,000 bytes" in fails(home, tmp_path, QUICK._replace(tries=2))
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:2000]
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 2000]


def test_what_was_complete_but_for_its_name_needs_no_byte_more(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT
    assert [request.sent for request in home.log] == [0]


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * 400_000], ids=["short", "too-long"])
def test_a_damaged_piece_is_noticed_and_the_file_fetched_anew(left: bytes, home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(left)
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT
    assert starts(home) == [len(left), None]


def test_a_server_that_knows_no_pieces_starts_from_the_beginning(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "whole"]
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT
    assert [request.sent for request in home.log] == [1000, len(CONTENT)]


def test_another_piece_than_the_one_asked_for_is_not_taken(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "shifted"]
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, None]


def test_a_busy_server_is_asked_again_but_not_for_ever(home: Home, tmp_path: Path) -> None:
    home.faults = ["500", "503", "429"]
    assert fetch(asked(home), tmp_path / "a", QUIET, QUICK).read_bytes() == CONTENT
    home.log.clear()
    home.faults = ["500"] * 9
    assert "the server answers 500 Internal Server Error" in fails(home, tmp_path / "b")
    assert len(home.log) == QUICK.tries


def test_a_file_that_is_not_there_is_asked_for_once(home: Home, tmp_path: Path) -> None:
    home.files.clear()
    assert "the server answers 404 Not Found" in fails(home, tmp_path)
    assert len(home.log) == 1


def test_a_file_that_has_moved_is_followed(home: Home, tmp_path: Path) -> None:
    home.faults = ["moved"]
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT


def test_something_else_under_the_same_name_is_refused_and_not_kept(home: Home, tmp_path: Path) -> None:
    home.faults = ["other"]
    line = fails(home, tmp_path)
    assert "something else came: md5 " in line
    assert f"needed {asked(home).md5}" in line
    assert list(tmp_path.iterdir()) == []
    assert fetch(asked(home), tmp_path, QUIET, QUICK).read_bytes() == CONTENT


def test_a_reply_of_unknown_length_that_breaks_off_is_told_by_its_checksum(home: Home, tmp_path: Path) -> None:
    home.faults = ["unmeasured"]
    assert fetch(asked(home), tmp_path / "a", QUIET, QUICK).read_bytes() == CONTENT
    home.files["a.bin"], whole = CONTENT[:-5], asked(home)
    home.faults = ["unmeasured"]
    with pytest.raises(SourceError, match="something else came"):
        fetch(whole, tmp_path / "b", QUIET, QUICK)


def test_far_more_than_expected_is_refused_before_the_disk_is_full(home: Home, tmp_path: Path) -> None:
    home.faults = ["huge"]
    assert "1,000,000,000,000 bytes are offered, 300,000 were expected" in fails(home, tmp_path)
    home.faults = ["endless"]
    assert "300,000 were expected" in fails(home, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nobody_at_home_is_one_line_at_once(home: Home, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody = File(f"http://127.0.0.1:{port}/a.bin", "0" * 32, 1)
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"^a.bin: no answer \(Connection refused\)$"):
        fetch(nobody, tmp_path, QUIET, Patience())
    assert time.monotonic() - began < 5


def test_a_server_that_says_nothing_is_waited_for_but_not_for_ever(home: Home, tmp_path: Path) -> None:
    home.faults = ["silent"]
    assert "no answer (timed out)" in fails(home, tmp_path, QUICK._replace(timeout=0.1))


def test_a_network_that_is_gone_for_a_moment_is_waited_for(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "silent"]
    assert fetch(asked(home), tmp_path, QUIET, QUICK._replace(timeout=0.1)).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 1000]
