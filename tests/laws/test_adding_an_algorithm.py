"""docs/adding-an-algorithm.md does what it says: its file, its test and its commands are run as printed."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from inspect import get_annotations
from pathlib import Path
from types import ModuleType
from typing import ClassVar, get_origin

import pytest

from moonfed.cli.flags import _flags
from moonfed.core.algorithm import Preset
from moonfed.core.errors import UserError
from moonfed.core.phase import Phase, Query
from moonfed.core.rules import Aggregator, LocalRule, ServerOptimizer, setting
from moonfed.training.config import SECTIONS
from moonfed.training.registry import ALGORITHMS, check_options, check_settings
from moonfed.training.rule_options import setting_flag

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-algorithm.md").read_text(encoding="utf-8")
BLOCKS = {
    title or kind: body
    for kind, title, body in re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', TEXT, re.M | re.S)
}
RULE, LAWS = "src/moonfed/algorithms/fedmax.py", "tests/laws/test_fedmax.py"
EACH_COMMAND = """
import json, sys
from moonfed.cli.main import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""


def load(path: Path, name: str, code: str) -> ModuleType:
    """Import a block of code as a module of that name."""
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_tests_hold_for_the_pages_algorithm(tmp_path, monkeypatch):
    rule = load(tmp_path / "fedmax.py", "moonfed.algorithms.fedmax", BLOCKS[RULE])
    monkeypatch.setitem(sys.modules, rule.__name__, rule)
    monkeypatch.setitem(ALGORITHMS, "fedmax", rule.PRESET)
    laws = load(tmp_path / "test_fedmax.py", "test_fedmax", BLOCKS[LAWS])
    tests = [value for name, value in vars(laws).items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_the_pages_commands_run_and_its_flag_is_in_the_help(tmp_path):
    shutil.copytree(
        ROOT / "src" / "moonfed", tmp_path / "src" / "moonfed", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / RULE).write_text(BLOCKS[RULE], encoding="utf-8")
    lines = BLOCKS["console"].splitlines()
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ moonfed ")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(
        [sys.executable, "-c", EACH_COMMAND, json.dumps(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert bare("\n".join(line for line in lines if line.startswith("│"))) in bare(ran.stdout)
    assert ran.stdout.count("on the test set after round 2") == 2
    assert "fedmax:evenness=0.9" in ran.stdout


def bare(text: str) -> str:
    """Text without the frame round it."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def test_the_page_shows_every_hook_there_is():
    for rule in (LocalRule, Aggregator, ServerOptimizer, Query, Phase):
        for name, value in vars(rule).items():
            if callable(value) and not name.startswith("_"):
                names = value.__code__.co_varnames[1 : value.__code__.co_argcount]
                assert f"| `{name}({', '.join(names)})` |" in TEXT
        for name in (name for name, kind in get_annotations(rule).items() if get_origin(kind) is ClassVar):
            assert re.search(rf"`{name}\b", TEXT), f"{rule.__name__}.{name}"


@dataclass(frozen=True)
class Skewed(LocalRule):
    beta: float = setting(2.0, "a setting whose name is that of the Dirichlet concentration", ge=0)


@dataclass(frozen=True)
class AlsoSkewed(Aggregator):
    beta: float = setting(1.0, "the same name in another role", ge=0)


def test_a_setting_with_the_name_of_a_flag_gets_the_algorithms_name_before_it(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "skewed", Preset("skewed", Skewed))
    names = {flag.key for flag in _flags("algorithm", SECTIONS["algorithm"])}
    assert "algorithm_skewed_beta" in names
    assert "algorithm_beta" not in names
    assert (setting_flag("skewed", "beta"), setting_flag("moon", "mu")) == ("--skewed.beta", "--mu")
    with pytest.raises(UserError, match=r"skewed.beta needs a value >= 0, got -1.0; set it with --skewed.beta"):
        check_options("skewed", None, {"beta": -1})


def test_rules_of_two_roles_cannot_declare_the_same_setting():
    with pytest.raises(ValueError, match="both declare beta"):
        check_settings([Preset("one", Skewed), Preset("other", aggregator=AlsoSkewed)])
