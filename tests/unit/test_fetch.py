"""One file over HTTP, from a real server that truncates, stalls, lies and dies."""

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from home import Home, serving
from official import Recorder, described

from moonfed.data.catalog.download import RemoteFile, RetryPolicy, download
from moonfed.data.catalog.monitor import SILENT, SourceError

CONTENT = np.random.default_rng(0).bytes(300_000)
QUICK = RetryPolicy(tries=4, timeout=2.0, pause=0.001)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as home:
        home.files["a.bin"] = CONTENT
        yield home


def asked(home: Home) -> RemoteFile:
    return described(home.url("a.bin"), CONTENT)


def starts(home: Home) -> list[int | None]:
    return [request.start for request in home.log]


def fails(home: Home, folder: Path, policy: RetryPolicy = QUICK) -> str:
    """Fetch what cannot be fetched, and return the one line."""
    with pytest.raises(SourceError) as caught:
        download(asked(home), folder, SILENT, policy)
    line = str(caught.value)
    assert "\n" not in line
    assert not (folder / "a.bin").exists()
    return line


def test_a_file_comes_whole_with_progress_and_leaves_nothing_beside_it(home: Home, tmp_path: Path) -> None:
    monitor = Recorder()
    path = download(asked(home), tmp_path / "new", monitor, QUICK)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["a.bin"]
    done = [update[1] for update in monitor.updates]
    assert done == sorted(done)
    assert monitor.updates[-1] == ("a.bin", len(CONTENT), len(CONTENT), "bytes")


def test_a_file_that_is_there_is_not_fetched_again(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    download(asked(home), tmp_path, SILENT, QUICK)
    assert home.log == []


def test_a_file_that_is_there_and_damaged_is(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1] + b"?")
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT


def test_a_lost_connection_is_resumed_at_the_byte_where_it_was_lost(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.faults = ["short 1000", "short 2000"]
    caplog.set_level(logging.INFO, "moonfed")
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 3000]
    assert sum(request.sent for request in home.log) == len(CONTENT)
    assert caplog.messages[0] == "a.bin: the connection was lost after 1,000 of 300,000 bytes; trying again"


def test_the_part_that_an_earlier_try_left_is_resumed(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "short 1000"]
    assert "lost after 2,000 of 300,000 bytes" in fails(home, tmp_path, QUICK._replace(tries=2))
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:2000]
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 2000]


def test_a_complete_partial_file_is_used_without_another_byte(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert [request.sent for request in home.log] == [0]


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * 400_000], ids=["short", "too-long"])
def test_a_damaged_piece_is_noticed_and_the_file_fetched_anew(left: bytes, home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(left)
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert starts(home) == [len(left), None]


def test_a_server_that_ignores_ranges_starts_from_the_beginning(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "whole"]
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert [request.sent for request in home.log] == [1000, len(CONTENT)]


def test_a_range_that_was_not_requested_is_refused(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "shifted"]
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, None]


def test_a_busy_server_is_asked_again_but_not_for_ever(home: Home, tmp_path: Path) -> None:
    home.faults = ["500", "503", "429"]
    assert download(asked(home), tmp_path / "a", SILENT, QUICK).read_bytes() == CONTENT
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
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT


def test_a_different_file_of_the_same_name_is_refused_and_deleted(home: Home, tmp_path: Path) -> None:
    home.faults = ["other"]
    line = fails(home, tmp_path)
    assert "a.bin is a different file: its md5 is " in line
    assert f"expected {asked(home).md5}" in line
    assert list(tmp_path.iterdir()) == []
    assert download(asked(home), tmp_path, SILENT, QUICK).read_bytes() == CONTENT


def test_a_truncated_reply_of_unknown_length_is_detected_by_its_checksum(home: Home, tmp_path: Path) -> None:
    home.faults = ["unmeasured"]
    assert download(asked(home), tmp_path / "a", SILENT, QUICK).read_bytes() == CONTENT
    home.files["a.bin"], whole = CONTENT[:-5], asked(home)
    home.faults = ["unmeasured"]
    with pytest.raises(SourceError, match="is a different file"):
        download(whole, tmp_path / "b", SILENT, QUICK)


def test_far_more_than_expected_is_refused_before_the_disk_is_full(home: Home, tmp_path: Path) -> None:
    home.faults = ["huge"]
    assert "the server offers 1,000,000,000,000 bytes, expected 300,000" in fails(home, tmp_path)
    home.faults = ["endless"]
    assert "bytes, expected 300,000" in fails(home, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_does_not_answer_fails_at_once_with_one_line(home: Home, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody = RemoteFile(f"http://127.0.0.1:{port}/a.bin", "0" * 32, 1)
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"^a.bin: no answer \(Connection refused\)$"):
        download(nobody, tmp_path, SILENT, RetryPolicy())
    assert time.monotonic() - began < 5


def test_a_server_that_says_nothing_is_waited_for_but_not_for_ever(home: Home, tmp_path: Path) -> None:
    home.faults = ["silent"]
    assert "no answer (timed out)" in fails(home, tmp_path, QUICK._replace(timeout=0.1))


def test_a_short_network_outage_is_waited_for(home: Home, tmp_path: Path) -> None:
    home.faults = ["short 1000", "silent"]
    assert download(asked(home), tmp_path, SILENT, QUICK._replace(timeout=1.0)).read_bytes() == CONTENT
    assert starts(home) == [None, 1000, 1000]
