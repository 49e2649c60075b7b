"""What the command line does before a command: help, version, completion and suggestions, all without torch."""

import inspect
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from commands import moonfed, refused

from moonfed.cli.main import COMMANDS, load

LARGE = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic")
WHAT_WAS_LOADED = f"""
import sys
from moonfed.cli import main
try:
    main()
finally:
    print("loaded:", *(name for name in {LARGE} if name in sys.modules))
"""


def start(
    *words: str, environment: dict[str, str] | None = None, how: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Start Python with the command line in a process of its own."""
    command = [sys.executable, *(how or ("-c", WHAT_WAS_LOADED)), *words]
    environment = os.environ | (environment or {})
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["-h"], [], ["rnu"], ["--parties", "3"]])
def test_nothing_large_is_loaded_before_a_command_is_known(words: list[str]) -> None:
    assert start(*words).stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("words", [["runs"], ["report"], ["predict"], ["export"], ["data"], ["data", "get"]])
def test_help_of_a_command_without_settings_does_not_load_torch(words: list[str]) -> None:
    answer = start(*words, "--help")
    assert "Usage: moonfed " in answer.stdout
    assert answer.stdout.splitlines()[-1] == "loaded:"


def test_a_command_is_loaded_when_it_is_called() -> None:
    assert "torch" in start("runs", "nowhere").stdout.splitlines()[-1]


def test_help_takes_less_than_half_a_second_of_a_core() -> None:
    """CPU time, which a busy machine changes little; the least of three."""

    def seconds(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(seconds("-c", "pass") for _ in range(3))
    assert min(seconds("-m", "moonfed", "--help") for _ in range(3)) - bare < 0.5


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    found = getattr(import_module(f"moonfed.cli.{COMMANDS[name].module}"), name)
    own = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert own is not None
    assert own.splitlines()[0] == load(name).help.splitlines()[0] == COMMANDS[name].help


def test_the_package_is_a_program() -> None:
    answer = start("--version", how=("-m", "moonfed"))
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, moonfed("--version").out, "")
    answer = start("rnu", how=("-m", "moonfed"))
    assert (answer.returncode, answer.stderr) == (2, moonfed("rnu").err)


def test_a_mistyped_command_gets_one_suggestion() -> None:
    assert refused(moonfed("rnu")) == "moonfed: No such command 'rnu'. Did you mean 'run'? See moonfed --help\n"
    assert refused(moonfed("zzzz")) == "moonfed: No such command 'zzzz'; see moonfed --help\n"


@pytest.mark.parametrize(
    ("words", "number", "said"),
    [
        ("moonfed r", "1", ["run", "runs", "report", "reproduce"]),
        ("moonfed data ", "2", ["list", "get", "check"]),
        ("moonfed run --part", "2", ["--partition", "--parties", "--partition-seed", "--party"]),
    ],
)
def test_a_shell_completes_commands_and_flags(words: str, number: str, said: list[str]) -> None:
    asked = {"_MOONFED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}
    *found, loaded = start(environment=asked).stdout.splitlines()
    assert found == said
    assert ("torch" in loaded) == words.startswith("moonfed run ")  # its flags come from the rules themselves


def test_completion_installs_itself(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    answer = start("--install-completion", "bash", environment=home, how=("-m", "moonfed"))
    assert answer.returncode == 0, answer.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    shown = start("--show-completion", "bash", environment=home, how=("-m", "moonfed"))
    assert "_MOONFED_COMPLETE=complete_bash" in shown.stdout
    assert shown.stdout.strip() == script.read_text().strip()
