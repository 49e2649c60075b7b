"""What a user relies on at the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import QUICK, moonfed, refused, rows

from moonfed.training.config import SECTIONS, flag_of
from moonfed.training.registry import all_settings, setting_flag


def entries(help: str) -> dict[str, str]:
    """Read the options of a help page: each flag with all that is said of it, however it was wrapped."""
    found: dict[str, str] = {}
    flag = ""
    for line in help.splitlines():
        text = " ".join(line.strip("│ ").split())
        if match := re.match(r"--(\[no-\])?([a-z0-9.-]+)(\[([a-z]+)\|)?", text):
            flag = f"--{match[2]}{match[4] or ''}"  # of --[no-]gamma and --stragglers-[keep|drop] the first
        found[flag] = f"{found.get(flag, '')} {text}"
    return found


def test_moonfed_alone_is_its_help_and_no_error() -> None:
    alone = moonfed()
    assert alone == moonfed("--help") == moonfed("-h")
    assert alone.code == 0
    assert alone.err == ""
    assert "Start with: moonfed compare moon fedavg" in alone.out
    for command in ("run", "compare", "partition", "runs"):
        assert f"│ {command} " in alone.out
        page = moonfed(command, "--help")
        assert page.code == 0
        assert f"moonfed {command}" in page.out


def test_the_installed_command_answers() -> None:
    script = Path(sys.executable).with_name("moonfed")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.fullmatch(r"moonfed \d+\.\d+\.\d+\n", done.stdout)


def test_every_setting_is_in_the_help_with_its_default() -> None:
    page = entries(moonfed("run", "--help").out)
    for section, settings in SECTIONS.items():
        for name, field in settings.model_fields.items():
            first, *others = flag_of(section, name).split("/")
            assert all("--[no-]" in page[first] or "|drop]" in page[first] for _ in others)
            if field.default is None:
                assert "default:" in page[first]
            elif not isinstance(field.default, bool):
                assert f"(default {field.default})" in page[first]
    for name, homes in all_settings().items():
        for algorithm, field in homes:
            owner = algorithm.removeprefix("fedavg+")  # a phase is the same with any algorithm
            assert f"{owner} {field.default}" in page[setting_flag(algorithm, name)]
    assert "(default 0.01)" in page["--lr"]
    assert "(default 10)" in page["--parties"]
    assert "(default keep)" in page["--stragglers-keep"]
    assert "(default off)" in page["--gamma"]
    assert "(default on)" in page["--compile"]
    assert "weight of the contrastive term (default moon 1.0)" in page["--mu"]


COMMANDS = (
    *("run", "compare", "sweep", "partition", "runs", "tune", "predict", "export", "report", "bench", "reproduce"),
    *("federate", "federation init", "federation admit", "federation renew", "federation start"),
    *("site init", "site join", "data list", "data get", "data check"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_leaves_half_of_80_columns_to_what_is_said_of_an_option(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = moonfed(*command.split(), "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    entry = re.compile(r"│ [* ]*(--)?[a-z].*?  +([^ ]+(?: [^ ]+)*) +│$")
    for line in (line for line in lines if line.startswith("│") and "--help" not in line):
        said = entry.match(line)
        assert said is None or said.start(2) <= 42, line
    assert "RANGE" not in "".join(lines)
    assert "[default" not in "".join(lines)
    assert "(default )" not in "".join(lines)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict", "run folder [required]"),
        ("predict", "a file or folder like the run's own data [required]"),
        ("reproduce", "table1, fig6, shi-table1, ...; all: every one"),
        ("compare", "default: those of the table [compare] in the --config file"),
        ("runs", "where to look (default runs)"),
    ],
)
def test_help_says_what_an_argument_is(command: str, said: str) -> None:
    assert said in " ".join(moonfed(command, "--help").out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["swep"], "No such command 'swep'. Did you mean 'sweep'? See moonfed --help"),
        (["run", "x"], "Got unexpected extra argument (x); see moonfed run --help"),
        (["data", "gte"], "No such command 'gte'. Did you mean 'get'? See moonfed data --help"),
    ],
)
def test_a_usage_error_suggests_once_and_names_the_help_page(words: list[str], said: str) -> None:
    assert refused(moonfed(*words)) == f"moonfed: {said}\n"


def test_a_setting_of_a_method_that_is_no_flag_here_is_named_as_it_is_given_here() -> None:
    said = refused(moonfed("run", "--algorithm", "fedntd", "--fedntd.temperature", "2"))
    assert "No such option: --fedntd.temperature; it is --temperature here" in said
    said = refused(moonfed("compare", "moon", "fedavg", "--mu", "3"))
    assert "No such option: --mu; settings of a method stand behind its name, fedprox:mu=VALUE" in said


def test_an_unknown_option_is_refused_without_nested_parentheses() -> None:
    line = refused(moonfed("run", "--parteis", "3"))
    assert "'--parties'" in line
    assert line.endswith("? See moonfed run --help\n")
    assert "(" not in line


def test_what_is_typed_beats_set_beats_the_file_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text("[data]\nbeta = 1\nparties = 5\nfloor = 20\n[run]\nseed = 4\n")
    layers = [[], ["--config", "settings.toml"], ["--set", "data.beta=2", "--set", "run.seed=5"]]
    typed = ["--beta", "3", "--seed", "6"]

    def beta_and_seed(*arguments: str) -> tuple[float, int]:
        value = moonfed("partition", "--json", *arguments).value
        return value["beta"], value["seed"]

    assert beta_and_seed(*layers[0]) == (0.5, 0)
    assert beta_and_seed(*layers[1]) == (1, 4)
    assert beta_and_seed(*layers[1], *layers[2]) == (2, 5)
    assert beta_and_seed(*layers[2], *layers[1]) == (2, 5)
    assert beta_and_seed(*layers[1], *layers[2], *typed) == (3, 6)
    assert len(moonfed("partition", "--json", *layers[1]).value["sizes"]) == 5


def test_a_run_records_the_settings_it_was_given_wherever_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[algorithm]\nname = "moon"\nmu = 2\ntemperature = 0.3\n[train]\nlr = 0.2\n[cohort]\nfraction = 0.5\n'
    )
    given = ["--config", file, "--set", "algorithm.mu=3", "--set", "train.lr=0.05", "--lr", "0.03", "--rounds", "1"]
    assert moonfed("run", *QUICK, *given, "--stragglers-drop", "--out", tmp_path / "run").code == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["algorithm"] == {"name": "moon", "server": None, "mu": 3, "temperature": 0.3, "negatives": 1}
    assert config["train"]["lr"] == 0.03
    assert config["cohort"]["fraction"] == 0.5
    assert config["cohort"]["stragglers_keep"] is False
    assert config["data"]["partition_seed"] == 0  # what was left open is recorded as it was decided
    assert len(rows(tmp_path / "run")[0]["cohort"]) == 2
