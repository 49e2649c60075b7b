"""Bad input gets one line that says what was needed, and costs nobody a byte."""

import json
import random
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from commands import QUICK, SMALL, Answer, Attempt, bits, contents, moonfed, rows

from moonfed.run.config import SECTIONS, flag_of
from moonfed.run.rules import all_settings

# Values outside the range of every numeric setting, written down by hand; a new setting needs a line here.
OUT_OF_RANGE = {
    "parties": ("0", "-3", "1000001"),
    "beta": ("0", "-0.5"),
    "classes_per_party": ("0", "-1", "11"),
    "floor": ("0", "-1", "1000001"),
    "partition_seed": ("-1", str(2**32)),
    "projection": ("-1", "65537"),
    "rounds": ("0", "-1", "100001"),
    "epochs": ("0", "-1", "10001"),
    "evaluate_every": ("0", "-1", "1000001"),
    "batch": ("0", "-1", "1000001"),
    "lr": ("0", "-0.1"),
    "momentum": ("-0.1", "1", "1.5"),
    "weight_decay": ("-1e-9",),
    "fraction": ("0", "-0.5", "1.01"),
    "stragglers": ("-0.1", "1.1"),
    "seed": ("-1", str(2**32)),
    "threads": ("-1", "1025"),
    "mu": ("-0.25",),
    "temperature": ("0", "-1"),
    "negatives": ("0", "-1", "1001"),
    "server_momentum": ("-0.1", "1"),
}


def numeric() -> list[tuple[str, list[str], type]]:
    """Walk the settings: the name of each numeric one, the flags that set it and its type."""
    found: list[tuple[str, list[str], type]] = []
    for section, settings in SECTIONS.items():
        for name, field in settings.model_fields.items():
            kinds = {field.annotation, *get_args(field.annotation)} | {
                part for kind in get_args(field.annotation) for part in get_args(kind)
            }
            for kind in kinds & {int, float}:
                assert isinstance(kind, type)
                found.append((name, [flag_of(section, name)], kind))
    for name, homes in all_settings().items():
        for algorithm, field in homes:
            if field.type in (int, float):
                found.append((name, ["--algorithm", algorithm, "--" + name.replace("_", "-")], field.type))
    return found


NUMERIC = numeric()
TOO_FAR = [(name, [*flags, value]) for name, flags, _ in NUMERIC for value in OUT_OF_RANGE.get(name, ())]
WORDS = ("nan", "inf", "-inf", "many", "", "1e400", "0x10", "1,5")
NO_NUMBER = [(name, [*flags, value]) for name, flags, _ in NUMERIC for value in WORDS]
NO_WHOLE = [(name, [*flags, "1.5"]) for name, flags, kind in NUMERIC if kind is int]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds of moon; tests copy it."""
    folder = tmp_path_factory.mktemp("good") / "run"
    assert moonfed("run", *SMALL, "--out", folder).code == 0
    return folder


@pytest.fixture
def copy(good: Path, place: Path) -> Path:
    return Path(shutil.copytree(good, place / "run"))


def refused(answer: Answer) -> str:
    """Check that a command was refused as it should be, and return its one line."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("moonfed: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    return answer.err


def refuse(place: Path, *arguments: str | Path) -> str:
    """Give a command that must be refused, and check that every file below a folder is what it was."""
    before = contents(place)
    line = refused(moonfed(*arguments))
    assert contents(place) == before
    return line


def test_every_numeric_setting_has_values_that_are_out_of_range() -> None:
    assert set(OUT_OF_RANGE) == {name for name, _, _ in NUMERIC}


@pytest.mark.parametrize(("name", "flags"), TOO_FAR, ids=lambda part: " ".join(part) if isinstance(part, list) else "")
def test_a_value_out_of_range_is_refused_by_name(name: str, flags: list[str], place: Path) -> None:
    line = refuse(place, "run", *flags, *(["--partition", "shards"] if name == "classes_per_party" else []))
    assert name in line or name.replace("_", "-") in line
    assert flags[-1] in line


@pytest.mark.parametrize(("name", "flags"), [*NO_NUMBER, *NO_WHOLE])
def test_what_is_no_number_is_refused_by_name(name: str, flags: list[str], place: Path) -> None:
    assert f".{name} needs" in refuse(place, "run", *flags)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--algorithm", "mooon"], 'no algorithm "mooon"; did you mean moon?'),
        (["--dataset", "digit"], 'no data set "digit"; did you mean digits?'),
        (["--partition", "dirichelt"], 'no partition "dirichelt"; did you mean dirichlet?'),
        (["--model", "cn"], 'no encoder "cn"; did you mean cnn?'),
        (["--server", "fedavgn"], 'no server rule "fedavgn"; did you mean fedavg'),
        (["--engine", "stackd"], 'no run.engine "stackd"; did you mean stacked?'),
        (["--norm", "grup"], 'no model.norm "grup"; did you mean group?'),
        (["--sampling", "by-row"], 'no cohort.sampling "by-row"; did you mean by-rows?'),
        (["--algorithm", "fedavgm", "--momentum-form", "plan"], 'did you mean plain?'),
        (["--set", "algorithm.temprature=1"], 'no setting of moon "temprature"; did you mean temperature?'),
        (["--set", "train.epoch=1"], 'no setting in [train] "epoch"; did you mean epochs?'),
        (["--set", "trian.lr=1"], 'no section of settings "trian"; did you mean train?'),
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_the_nearest_known_one(arguments: list[str], line: str, place: Path) -> None:
    assert line in refuse(place, "run", *arguments)


def test_an_unknown_name_in_a_comparison_is_refused_the_same_way(place: Path) -> None:
    assert "did you mean moon?" in refuse(place, "compare", "mooon", "fedavg")
    assert "did you mean mu?" in refuse(place, "compare", "moon:muu=1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["run", "--nothing"],
        ["run", "surplus"],
        ["run", "--mu"],
        ["run", "--gamma=3"],
        ["compare"],
        ["compare", "moon", "moon"],
        ["compare", "moon", "--seeds", ""],
        ["compare", "moon", "--seeds", "a"],
        ["compare", "moon", "--seeds", "0,0"],
        ["compare", "moon", "--seeds", "0,4-2"],
        ["compare", "moon", "--seeds", "0-99999999999"],
        ["compare", "moon", "--seeds", "9" * 5000],
        ["compare", "moon", "--seeds", str(2**32)],
        ["compare", "moon", "--seeds", "1", "--seed", "1"],
        ["compare", "moon", "--set", "algorithm.mu=1"],
        ["compare", "moon:mu"],
        ["compare", "moon:mu=1,"],
        ["compare", "moon+nothing"],
        ["compare", "scaffold+fedavg"],
        ["run", "--algorithm", "two\nlines"],
        ["run", "--rounds", "9" * 5000],
        ["run", "--set", "train.rounds=" + "9" * 5000],
        ["run", "--set", "train.lr=" + "[" * 3000],
        ["run", "--straggler-work", "0.9-0.1"],
        ["run", "--straggler-work", "half"],
        ["run", "--device", "gpu"],
        ["run", "--device", "cuda:" + "9" * 20],
        ["partition", "--plot", "picture.gif"],
        ["partition", "--plot", "no/such/folder/picture.png"],
        ["partition", "--seed", "x"],
        ["runs", "nowhere"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_a_command_that_makes_no_sense_is_refused_in_one_line(arguments: list[str], place: Path) -> None:
    refuse(place, *arguments)


@pytest.mark.parametrize("value", ["mu=1", "train", "train.lr", ".lr=1", "=", "train=1"])
def test_an_assignment_without_section_name_and_value_is_refused(value: str, place: Path) -> None:
    assert "SECTION.NAME=VALUE" in refuse(place, "run", "--set", value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[train]\nlr = "fast"', "train.lr needs a number, got 'fast'"),
        ("[train]\nlr = true", "train.lr needs"),
        ("[train]\nlr = [0.1]", "train.lr needs a number"),
        ("[train]\nlr = 2020-01-01", "train.lr needs a number"),
        ("[train]\nlr = nan", "train.lr needs a finite number"),
        ("[train]\nrounds = 2.5", "train.rounds needs a whole number, got 2.5"),
        ("[train]\nrounds = true", "train.rounds needs"),
        ("[train.rounds]\nmost = 2", "train.rounds needs a whole number"),
        ('[run]\ngamma = "maybe"', "run.gamma needs true or false, got 'maybe'"),
        ("[run]\ngamma = 2.5", "run.gamma needs true or false"),
        ("[algorithm]\nname = 3", "algorithm.name needs a word, got 3"),
        ("[algorithm]\nmu = true", "moon.mu needs a number, got True"),
        ("[algorithm]\nmu = [1]", "moon.mu needs a number, got [1]"),
        ("[algorithm]\nnegatives = 1.5", "moon.negatives needs a whole number, got 1.5"),
        ("[algorithm]\nmu = inf", "moon.mu needs a finite number"),
        ("train = 3", "train stands outside a section"),
        ("lr = 0.1", "lr stands outside a section"),
        ("[train]\nlearning_rate = 0.1", 'no setting in [train] "learning_rate"'),
        ("[trian]\nlr = 0.1", 'no section of settings "trian"; did you mean train?'),
        ("[train]\nlr = 0.1\nlr = 0.2", "is not TOML"),
        ("[train\nlr = 0.1", "is not TOML"),
        ("train: {lr: 0.1}", "is not TOML"),
        ("[train]\nlr = " + "[" * 3000, "is not TOML"),
        ("[train]\nlr = " + "9" * 5000, "is not TOML"),
    ],
)
def test_a_config_file_that_is_wrong_is_refused_with_what_is_wrong(text: str, line: str, place: Path) -> None:
    (place / "settings.toml").write_text(text)
    assert line in refuse(place, "run", "--config", "settings.toml")


def test_a_config_file_that_cannot_be_read_is_refused(place: Path) -> None:
    assert "No such file" in refuse(place, "run", "--config", "nowhere.toml")
    assert "Is a directory" in refuse(place, "run", "--config", str(place))
    (place / "binary.toml").write_bytes(bytes(range(256)))
    assert "is not TOML" in refuse(place, "run", "--config", "binary.toml")


def test_more_parties_than_rows_are_refused(place: Path) -> None:
    assert "the data has 1415" in refuse(place, "run", "--parties", "1416", "--floor", "1")
    assert "the data has 1415" in refuse(place, "partition", "--parties", "200", "--floor", "10")


def test_a_batch_larger_than_a_party_is_refused_and_the_one_that_is_named_works(place: Path) -> None:
    many = ["run", "--model", "mlp", "--epochs", "1", "--rounds", "1", "--parties", "10", "--out", "run"]
    line = refuse(place, *many, "--batch", "300")
    found = re.search(r"party \d+ has (\d+) rows, fewer than a batch of 300; use --batch (\d+)", line)
    assert found is not None
    assert found[1] == found[2]
    above = refuse(place, *many, "--batch", str(int(found[2]) + 1))
    assert f"use --batch {found[2]} " in above
    assert moonfed(*many, "--batch", found[2]).code == 0


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-pure", "quantity"])
def test_a_floor_that_no_split_holds_ends_the_search(partition: str, place: Path) -> None:
    impossible = ["--partition", partition, "--parties", "20", "--beta", "0.01", "--floor", "60"]
    assert "no split in 1000 draws" in refuse(place, "partition", *impossible)
    assert "needs beta > 0" in refuse(place, "partition", "--partition", partition, "--beta", "0")


def test_a_class_must_find_a_party_that_holds_it(place: Path) -> None:
    few = ["--partition", "shards", "--parties", "4", "--classes-per-party", "2"]
    assert "no class is left out" in refuse(place, "partition", *few)


@pytest.mark.parametrize(
    ("local", "server"),
    [("moon", "scaffold"), ("scaffold", "fedavg"), ("scaffold", "fedavgm"), ("fedavg", "scaffold-niid")],
)
def test_two_rules_that_do_not_fit_are_refused_by_name(local: str, server: str, place: Path) -> None:
    line = refuse(place, "run", "--algorithm", local, "--server", server)
    assert f"{local}+{server} does not fit" in line
    assert "control" in line


def test_a_setting_of_another_algorithm_is_refused_and_says_whose_it_is(place: Path) -> None:
    line = refuse(place, "run", "--algorithm", "fedavg", "--mu", "1")
    assert "fedavg takes no mu (fedprox, moon, moon-l2 would)" in line
    assert "scaffold takes no server_momentum (fedavgm would)" in refuse(
        place, "compare", "scaffold:server_momentum=0.9"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused(device: str, place: Path) -> None:
    assert "use --device cpu" in refuse(place, "run", *SMALL, "--device", device)


def test_a_folder_that_holds_something_else_is_refused(copy: Path, place: Path) -> None:
    again = ["run", *SMALL, "--out"]
    assert "already holds moon on digits, seed 0; continue it with --resume" in refuse(place, *again, copy)
    (place / "notes.txt").write_text("mine")
    assert "is a file" in refuse(place, *again, "notes.txt")
    assert "Not a directory" in refuse(place, *again, "notes.txt/run")
    (place / "mine").mkdir()
    (place / "mine" / "notes.txt").write_text("mine")
    for resume in ([], ["--resume"]):
        assert "is not empty and holds no run" in refuse(place, *again, "mine", *resume)
    assert "File name too long" in refuse(place, *again, "x" * 300)
    assert "cannot write" in refuse(place, *again, "/proc/run")


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
    (MANIFEST, edited(round=1), "does not hold the 1 rounds of its checkpoint"),
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
    assert "it is of another run" in refuse(place, "run", *SMALL, "--rounds", "3", "--out", copy, "--resume")


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


# A weight decay of 250 at a rate of 0.01 multiplies every weight by -1.5 a step: the loss overflows in round 4.
RUNAWAY = [*QUICK, "--lr", "0.01", "--momentum", "0"]


def test_a_loss_that_is_not_finite_ends_the_run_by_party_round_and_step(place: Path) -> None:
    asked = ["run", *RUNAWAY, "--weight-decay", "250", "--out", "run"]
    failed = moonfed(*asked, "--rounds", "9")
    assert failed.code == 1
    assert failed.out == ""
    *progress, line = failed.err.splitlines()
    assert [word.split()[1] for word in progress] == ["1/9", "2/9", "3/9"]
    assert re.match(r"moonfed: the loss of party \d+ is not finite at step \d+ in round 4 \(supervised nan", line)
    assert "The last good state, of round 3, is in run" in line
    (listed,) = moonfed("runs", "--json", ".").value
    assert listed["state"].startswith("failed: the loss of party")
    assert listed["rounds"] == 3
    again = moonfed(*asked, "--rounds", "9", "--resume")
    assert again.code == 1
    assert again.err.splitlines()[-1] == line


def test_the_last_good_state_before_a_failure_is_that_of_a_run_that_ended_there(place: Path) -> None:
    asked = ["run", *RUNAWAY, "--weight-decay", "250", "--rounds"]
    assert moonfed(*asked, "9", "--out", "failed").code == 1
    assert moonfed(*asked, "3", "--out", "failed", "--resume").code == 0
    assert moonfed(*asked, "3", "--out", "undisturbed").code == 0
    assert bits(place / "failed") == bits(place / "undisturbed")
    assert [run["state"] for run in moonfed("runs", "--json", ".").value] == ["finished", "finished"]


def test_a_model_that_overflows_on_the_test_rows_alone_ends_the_run_too(place: Path) -> None:
    failed = moonfed("run", *RUNAWAY, "--weight-decay", "300", "--rounds", "9", "--out", "run")
    assert failed.code == 1
    assert "the model after round 2 is not finite" in failed.err.splitlines()[-1]
    assert len(rows(place / "run")) == 1


def test_a_method_that_fails_does_not_take_the_others_with_it(place: Path) -> None:
    failed = moonfed("compare", "fedprox:mu=1e30", "fedavg", "--seeds", "0", *SMALL, "--out", "all", "--json")
    assert failed.code == 1
    assert "is not finite" in failed.err.splitlines()[-1]
    bad, well = failed.value
    assert (bad["mean"], bad["std"], bad["seeds"], len(bad["failures"])) == (None, None, [], 1)
    assert (well["seeds"], well["failures"]) == ([0], [])
    assert len(rows(place / "all" / "fedavg" / "seed-0")) == 2
