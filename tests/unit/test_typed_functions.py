"""What type checkers know of the package: every algorithm's keywords, and no name that is not there."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import moonfed

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "write_algorithm_stub.py"


def test_the_stub_is_what_the_registry_says() -> None:
    spec = importlib.util.spec_from_file_location("write_algorithm_stub", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.STUB.read_text(encoding="utf-8") == tool.stub_text(), "run python tools/write_algorithm_stub.py"


CALLS = {
    "moon(nu=3)": 'No parameter named "nu"',
    "moon(mu='large')": "cannot be assigned to parameter",
    "moon(server=3)": "cannot be assigned to parameter",
    "moon(5)": "Expected 0 positional arguments",
    "fit(round=3)": 'No parameter named "round"',
    "moonfed.mooon()": "is not a known attribute",
    "moon(mu=3, server='fedavgm', server_momentum=0.9)": None,
    "moonfed.trimmed_mean(trim=0.1).name": None,
    "compare([moon, fedavg(), 'fedprox'])": None,
    "fit(algorithm=moon).accuracy": None,
    "moonfed.MoonClassifier(rounds=3)": None,
}


def test_a_type_checker_catches_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    head = "import moonfed\nfrom moonfed import compare, fedavg, fit, moon\n\n"
    (tmp_path / "calls.py").write_text(head + "\n".join(f"_ = {call}" for call in CALLS) + "\n")
    settings = {"extraPaths": [str(Path(moonfed.__file__).parents[1])], "include": ["calls.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not start here: {done.stderr[-200:]}")
    found = {
        item["range"]["start"]["line"] - head.count("\n"): item["message"]
        for item in json.loads(done.stdout)["generalDiagnostics"]
    }
    for line, (call, said) in enumerate(CALLS.items()):
        assert (said is None) == (line not in found), call
        assert said is None or said in found[line], call
