"""A folder that holds something else, a damaged run, a full disk: one line, and nothing on disk is lost."""

import json
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, SMALL, Attempt, bits, contents, moonfed, refuse, refused, rows


def test_a_folder_that_holds_something_else_is_refused(copy: Path, place: Path) -> None:
    again = ["run", *SMALL, "--out"]
    assert "already holds moon on digits, seed 0; continue it with --resume" in refuse(place, *again, copy)
    other = refuse(place, *again, copy, "--lr", "0.5")
    assert "holds a run with other settings: train.lr was 0.01, now 0.5" in other
    assert "--resume" not in other, "it would be refused"
    (place / "notes.txt").write_text("mine")
    assert "is a file" in refuse(place, *again, "notes.txt")
    assert "Not a directory" in refuse(place, *again, "notes.txt/run")
    (place / "mine").mkdir()
    (place / "mine" / "notes.txt").write_text("mine")
    for resume in ([], ["--resume"]):
        assert "is not empty and holds no run" in refuse(place, *again, "mine", *resume)
    assert "File name too long" in refuse(place, *again, "x" * 300)
    assert "cannot write" in refuse(place, *again, "/proc/run")


def test_a_run_of_another_precision_is_not_continued_and_the_way_to_continue_it_is_named(
    copy: Path, place: Path
) -> None:
    there = json.loads((copy / "config.json").read_text())
    there["config"]["run"]["precision"], there["identity"] = "tf32", "0" * 16
    (copy / "config.json").write_text(json.dumps(there))
    said = refuse(place, "run", *SMALL, "--out", copy, "--resume")
    assert "run.precision was tf32, now fp32 (--precision tf32 resumes it)" in said


def test_a_comparison_starts_nothing_when_one_of_its_folders_is_refused(place: Path) -> None:
    (place / "all" / "moon" / "seed-1").mkdir(parents=True)
    (place / "all" / "moon" / "seed-1" / "notes.txt").write_text("mine")
    line = refuse(place, "compare", "fedavg", "moon", "--seeds", "0,1", *SMALL, "--out", "all")
    assert "moon/seed-1 is not empty" in line


def test_resuming_with_other_settings_is_refused_and_names_them(copy: Path, place: Path) -> None:
    line = refuse(place, "run", *SMALL, "--lr", "0.02", "--engine", "sequential", "--out", copy, "--resume")
    assert "train.lr was 0.01, now 0.02" in line
    assert "engine" not in line
    line = refuse(place, "run", *SMALL, "--algorithm", "fedavg", "--out", copy, "--resume")
    assert "algorithm.name was moon, now fedavg" in line
    line = refuse(place, "run", *SMALL, "--rounds", "1", "--out", copy, "--resume")
    assert "has done 2 rounds, more than the 1 asked for" in line


def edited(**changes: Any) -> Callable[[Path], None]:
    """Change entries of a JSON file; None takes one away."""

    def edit(path: Path) -> None:
        value = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))

    return edit


def cut(length: int) -> Callable[[Path], Any]:
    """Keep the first bytes of a file, or all but the last if the number is negative."""
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def filled(content: bytes) -> Callable[[Path], Any]:
    """Put something else in place of a file."""
    return lambda path: path.write_bytes(content)


def altered(old: bytes, new: bytes) -> Callable[[Path], Any]:
    """Put other bytes in place of the first that read so."""
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new, 1))


MANIFEST, STATE, PARTY = (f"checkpoint/{n}" for n in ("manifest.json", "state-2.safetensors", "party-3-2.safetensors"))
DAMAGE: list[tuple[str, Callable[[Path], Any], str]] = [
    (MANIFEST, edited(format=2), "has checkpoint format 2, this version of moonfed reads 1"),
    (MANIFEST, edited(data="0" * 64), "was run with other data (00000000, now "),
    (MANIFEST, edited(identity="0" * 16), "was run with other settings (00000000, now "),
    (MANIFEST, edited(round="two"), "manifest.json is damaged"),
    (MANIFEST, edited(round=-1), "manifest.json is damaged"),
    (MANIFEST, edited(round=1), "does not hold the 1 round of its checkpoint"),
    (MANIFEST, edited(memory=None), "manifest.json is damaged"),
    (MANIFEST, edited(surplus=1), "manifest.json is damaged"),
    (MANIFEST, edited(log_bytes=5), "rounds.jsonl is missing or damaged"),
    (MANIFEST, cut(30), "manifest.json cannot be read"),
    (MANIFEST, filled(b""), "manifest.json cannot be read"),
    (MANIFEST, filled(b"[]"), "should hold a JSON object"),
    (MANIFEST, filled(bytes(range(256))), "manifest.json cannot be read"),
    (MANIFEST, filled(b"[" * 100_000), "manifest.json cannot be read"),
    (STATE, cut(0), "state-2.safetensors cannot be read"),
    (STATE, cut(5), "state-2.safetensors cannot be read"),
    (STATE, cut(80_000), "state-2.safetensors cannot be read"),
    (STATE, cut(-1), "state-2.safetensors cannot be read"),
    (STATE, filled(b"x" * 1000), "state-2.safetensors cannot be read"),
    (STATE, altered(b"[128,64]", b"[64,128]"), "state-2.safetensors is damaged"),
    (STATE, altered(b'"F32"', b'"I32"'), "state-2.safetensors is damaged"),
    (STATE, Path.unlink, "state-2.safetensors cannot be read"),
    (PARTY, cut(100_000), "party-3-2.safetensors cannot be read"),
    (PARTY, Path.unlink, "party-3-2.safetensors cannot be read"),
    (PARTY, lambda path: shutil.copy(path.with_name("party-2-2.safetensors"), path), "party-3-2.safetensors"),
    (PARTY, lambda path: shutil.copy(path.with_name("party-3-1.safetensors"), path), "party-3-2.safetensors"),
    ("rounds.jsonl", cut(-1), "rounds.jsonl is missing or damaged"),
    ("rounds.jsonl", cut(0), "rounds.jsonl is missing or damaged"),
    ("rounds.jsonl", filled(bytes(range(256)) * 9), "rounds.jsonl is missing or damaged"),
    ("rounds.jsonl", Path.unlink, "rounds.jsonl is missing or damaged"),
    ("config.json", cut(40), "config.json cannot be read"),
    ("config.json", filled(b"{}"), "config.json is damaged"),
    ("config.json", edited(config=3), "config.json is damaged"),
    ("config.json", edited(before=3), "config.json is damaged"),
]


@pytest.mark.parametrize(("name", "damage", "line"), DAMAGE)
@pytest.mark.parametrize("more", [[], ["--rounds", "3"]], ids=["finished", "going-on"])
def test_a_damaged_run_is_refused_by_file_and_left_as_it_is(
    name: str, damage: Callable[[Path], Any], line: str, more: list[str], copy: Path, place: Path
) -> None:
    damage(copy / name)
    assert line in refuse(place, "run", *SMALL, *more, "--out", copy, "--resume")


@pytest.mark.parametrize("name", [STATE, PARTY, "rounds.jsonl"])
def test_a_single_altered_byte_is_noticed_wherever_it_is(name: str, copy: Path, place: Path) -> None:
    content = (copy / name).read_bytes()
    head = min(len(content), 900)  # of the safetensors, the part that says what the bytes mean
    draw = random.Random(0)
    for at in [*draw.sample(range(head), 25), *draw.sample(range(len(content)), 10)]:
        (copy / name).write_bytes(content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :])
        assert Path(name).name in refuse(place, "run", *SMALL, "--rounds", "3", "--out", copy, "--resume")
    (copy / name).write_bytes(content)
    assert moonfed("run", *SMALL, "--out", copy, "--resume").code == 0


def test_a_file_of_another_run_is_told_from_its_own(copy: Path, place: Path) -> None:
    assert moonfed("run", *SMALL, "--seed", "1", "--out", "other").code == 0
    shutil.copy(place / "other" / PARTY, copy / PARTY)
    assert "it belongs to another run" in refuse(place, "run", *SMALL, "--rounds", "3", "--out", copy, "--resume")


def test_one_damaged_trial_keeps_a_comparison_from_touching_the_others(place: Path) -> None:
    asked = ["compare", "moon", "fedavg", "--seeds", "0,1", *QUICK, "--out", "all"]
    assert moonfed(*asked, "--rounds", "1").code == 0
    cut(1000)(place / "all" / "fedavg" / "seed-1" / "checkpoint" / "state-1.safetensors")
    assert "seed-1/checkpoint/state-1.safetensors" in refuse(place, *asked, "--rounds", "2", "--resume")


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    """A file system of its own with room for one round of four parties and a little more."""
    folder = place / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1300k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_no_round_and_the_run_goes_on_once_there_is_room(disk: Path, good: Path) -> None:
    asked = ["run", *SMALL, "--out", disk / "run"]
    answer = moonfed(*asked)
    assert answer.code == 2
    *progress, line = answer.err.splitlines()
    assert "No space left on device" in line
    assert [word.split()[1] for word in progress] == ["1/2"]
    assert len(rows(disk / "run")) == 1
    assert moonfed(*asked, "--resume").code == 2
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    assert moonfed(*asked, "--resume").code == 0
    assert bits(disk / "run") == bits(good)


def test_a_log_for_tensorboard_that_cannot_be_written_is_refused_in_one_line(copy: Path) -> None:
    (copy / "tensorboard").write_text("mine")
    line = refused(moonfed("run", *SMALL, "--rounds", "3", "--tensorboard", "--out", copy, "--resume"))
    assert "cannot write" in line
    assert (copy / "tensorboard").read_text() == "mine"


def room(size: int) -> None:
    """Let this process write no file beyond a size, as a full disk would not."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [0, 1000, 100_000], ids=["nothing", "not-the-settings", "not-the-weights"])
def test_a_file_that_cannot_be_written_whole_leaves_the_one_before(size: int, copy: Path, place: Path) -> None:
    more = ["run", *SMALL, "--rounds", "3", "--out", copy, "--resume"]
    before = contents(copy)
    # What it says cannot go to a file either.
    answer = Attempt(*more, prepare=room, given=size, screen="/dev/null").end()
    assert answer.code == 2
    after = contents(copy)
    if size > 1000:
        del before["config.json"], after["config.json"]
    assert after == before
    assert moonfed(*more).code == 0
    assert moonfed("run", *SMALL, "--rounds", "3", "--out", place / "undisturbed").code == 0
    assert bits(copy) == bits(place / "undisturbed")
