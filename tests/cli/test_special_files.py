"""Pipes, sockets, devices and links in place of files: every reader refuses them at once, in one line."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from arrow_files import save_hugging_face
from commands import SMALL, refuse
from user_rows import four_clips, people, write_images

from moonfed.core.errors import UserError
from moonfed.storage.run_folder import check_place


def pipe(path: Path) -> None:
    """Make a named pipe, whose reader waits for a writer."""
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    """Make a socket."""
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def device(path: Path) -> None:
    """Make a link to a device that never ends."""
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    """Make a link to itself."""
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    """Make a link to nothing."""
    path.symlink_to("nowhere")


SPECIAL = [(pipe, "it is a named pipe"), (unix_socket, "it is a socket"), (device, "it is a device")]
LINKS = [(loop, "a link that leads nowhere or to itself"), (dangling, "a link that leads nowhere or to itself")]
TOO_MANY, MISSING = "Too many levels of symbolic links", "No such file or directory"


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.npz", "rows.parquet"])
@pytest.mark.parametrize(("make", "line"), [*SPECIAL, *LINKS], ids=lambda part: getattr(part, "__name__", ""))
def test_rows_from_what_is_no_file_are_refused(make: Callable[[Path], None], line: str, name: str, place: Path) -> None:
    make(place / name)
    said = refuse(place, "run", "--data", name)
    assert name in said
    assert line in said
    people(place / "people.csv")
    assert line in refuse(place, "run", "--data", "people.csv", "--label", "kind", "--test", name)


@pytest.mark.parametrize(
    ("make", "line"),
    [*SPECIAL, (loop, TOO_MANY), (dangling, MISSING), (Path.mkdir, "Is a directory")],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_settings_from_what_is_no_file_are_refused(make: Callable[[Path], None], line: str, place: Path) -> None:
    make(place / "settings.toml")
    assert f"cannot read settings.toml: {line}" in refuse(place, "run", "--config", "settings.toml")


@pytest.mark.parametrize(
    ("make", "line"),
    [*SPECIAL, (loop, TOO_MANY), (dangling, MISSING), (Path.mkdir, "a folder inside a class folder")],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_an_image_or_a_clip_that_is_no_file_is_a_bad_row(make: Callable[[Path], None], line: str, place: Path) -> None:
    write_images(place / "shades")
    make(place / "shades" / "dark" / "odd.png")
    said = refuse(place, "run", "--data", "shades")
    assert "shades has a bad row of 17: dark/odd.png" in said
    assert line in said
    four_clips(place / "sounds")
    make(place / "sounds" / "a" / "odd.wav")
    said = refuse(place, "run", "--data", "sounds")
    assert "sounds has a bad row of 5: a/odd.wav" in said
    assert line in said


@pytest.mark.parametrize("suffix", ["png", "wav"])
def test_a_folder_of_nothing_but_pipes_is_refused(suffix: str, place: Path) -> None:
    for name in "ab":
        (place / "all" / name).mkdir(parents=True)
        os.mkfifo(place / "all" / name / f"0.{suffix}")
    assert "all has no readable" in refuse(place, "run", "--data", "all")


def hugging_face(folder: Path, image: Path | None = None) -> None:
    """Save a small data set; its images may be one file elsewhere."""
    column = list(range(8)) if image is None else [{"bytes": None, "path": str(image)}] * 8
    table = pyarrow.table({"n": column, "label": ["a", "b"] * 4})
    save_hugging_face(folder, [table], {} if image is None else {"n": {"_type": "Image"}})


@pytest.mark.parametrize("name", ["data-0.arrow", "state.json", "dataset_info.json", "dataset_dict.json"])
@pytest.mark.parametrize(("make", "line"), SPECIAL, ids=lambda part: getattr(part, "__name__", ""))
def test_a_hugging_face_folder_with_what_is_no_file_is_refused(
    make: Callable[[Path], None], line: str, name: str, place: Path
) -> None:
    hugging_face(place / "saved")
    (place / "saved" / name).unlink(missing_ok=True)
    make(place / "saved" / name)
    said = refuse(place, "run", "--data", "saved")
    assert f"saved/{name} cannot be read: {line}" in said


@pytest.mark.parametrize(("make", "line"), SPECIAL, ids=lambda part: getattr(part, "__name__", ""))
def test_an_image_that_a_hugging_face_folder_names_must_be_a_file(
    make: Callable[[Path], None], line: str, place: Path
) -> None:
    make(place / "odd.png")
    hugging_face(place / "saved", place / "odd.png")
    assert f"saved row 0 (unreadable: {line}" in refuse(place, "run", "--data", "saved")


@pytest.mark.parametrize("name", ["cifar10", "flights", "tinyimagenet", "spoken-digits"])
@pytest.mark.parametrize(("make", "line"), SPECIAL, ids=lambda part: getattr(part, "__name__", ""))
def test_an_archive_of_a_data_set_must_be_a_file(
    make: Callable[[Path], None], line: str, name: str, place: Path
) -> None:
    make(place / "archive")
    assert line in refuse(place, "data", "get", name, "--from", "archive")


@pytest.mark.parametrize(("make", "line"), SPECIAL, ids=lambda part: getattr(part, "__name__", ""))
def test_a_run_folder_with_a_pipe_for_its_settings_is_refused(
    make: Callable[[Path], None], line: str, place: Path
) -> None:
    (place / "run").mkdir()
    make(place / "run" / "config.json")
    assert line in refuse(place, "run", *SMALL, "--out", "run")


@pytest.mark.parametrize("command", [["run"], ["compare", "moon", "fedavg", "--seeds", "0"], ["sweep", "--mu", "1,2"]])
@pytest.mark.parametrize(
    ("make", "out", "line"),
    [
        (loop, "made", "leads to itself or nowhere"),
        (loop, "made/run", "leads to itself or nowhere"),
        (dangling, "made", "leads to itself or nowhere"),
        (pipe, "made", "made"),
        (Path.mkdir, "made/a\udc80b", "with a name in UTF-8, got 'made/a\\udc80b"),
    ],
)
def test_a_place_that_cannot_become_a_run_folder_is_refused(
    make: Callable[[Path], None], out: str, line: str, command: list[str], place: Path
) -> None:
    make(place / "made")
    assert line in refuse(place, *command, *SMALL, "--out", out)


def test_a_name_that_no_file_can_have_is_refused_in_python() -> None:
    with pytest.raises(UserError, match="with a name in UTF-8"):
        check_place(Path("a\0b"))
