"""moonfed run --model my_file.py:Encoder: errors in it are reported in one line, and changes of it are noticed."""

import json
from pathlib import Path

import pytest
from commands import QUICK, bits, moonfed

ENCODER = """
from torch import nn

class Encoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4)).requires_grad_(False)
        self.body = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        self.lstm = nn.LSTM(36, 8, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.lstm(self.body(self.first(x)).view(len(x), 4, 36))[0][:, -1]
"""
ASKED = ["run", *(word for word in QUICK if word not in ("--model", "mlp")), "--model", "my_file.py:Encoder"]


@pytest.fixture
def file(place: Path) -> Path:
    path = place / "my_file.py"
    path.write_text(ENCODER)
    return path


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_resumed_run_with_dropout_frozen_layers_and_an_lstm_has_the_same_bits(file: Path, engine: str) -> None:
    asked = [*ASKED, "--engine", engine]
    assert moonfed(*asked, "--rounds", "4", "--out", "whole").code == 0
    assert moonfed(*asked, "--rounds", "2", "--out", "parts").code == 0
    assert moonfed(*asked, "--rounds", "4", "--out", "parts", "--resume").code == 0
    assert bits(Path("whole")) == bits(Path("parts"))


def test_the_same_encoder_gives_the_same_run_wherever_its_file_is(file: Path, place: Path) -> None:
    assert moonfed(*ASKED, "--rounds", "1", "--out", "here").code == 0
    (place / "there").mkdir()
    file.rename(place / "there" / "my_file.py")
    moved = [word.replace("my_file.py", "there/my_file.py") for word in ASKED]
    assert moonfed(*moved, "--rounds", "2", "--out", "here", "--resume").code == 0


def test_a_changed_file_is_noticed_on_resume(file: Path) -> None:
    assert moonfed(*ASKED, "--rounds", "1", "--out", "run").code == 0
    file.write_text(ENCODER.replace("0.3", "0.4"))
    answer = moonfed(*ASKED, "--rounds", "2", "--out", "run", "--resume")
    assert answer.code == 2
    assert "model.model was my_file.py:Encoder@" in answer.err
    assert json.loads(Path("run/config.json").read_text())["config"]["model"]["model"].startswith("my_file.py:Encoder@")


BODY = "class Encoder(nn.Module):\n def __init__(self):\n  super().__init__()\n  self.l = nn.Linear(64, 8)\n"
SEES = BODY + " def forward(self, x):\n  return "
BAD = {
    "no such class": ("class Encode: pass", 'no class or function "Encoder" in my_file.py; did you mean Encode?'),
    "not Python": ("def Encoder(:", "my_file.py cannot be imported: SyntaxError: invalid syntax (line 3)"),
    "import fails": (
        "import nowhere",
        "my_file.py cannot be imported: ModuleNotFoundError: No module named 'nowhere' (l",
    ),
    "exits": ("import sys; sys.exit(3)", "my_file.py cannot be imported: SystemExit: 3 (line 3)"),
    "not an encoder": ("Encoder = 3", "my_file.py:Encoder is an int; an encoder must be a torch.nn.Module"),
    "makes something else": (
        "def Encoder(): return 'net'",
        "my_file.py:Encoder makes a str, an encoder must be a torch.nn.M",
    ),
    "wants too much": (
        "def Encoder(width, depth): pass",
        "my_file.py:Encoder needs the parameters width, depth; an encoder may",
    ),
    "cannot be built": (
        "def Encoder(shape): return nn.Linear(shape[9], 1)",
        "cannot be built for inputs [1, 8, 8]: Ind",
    ),
    "shape error": (SEES + "self.l(x)", "fails on a batch of shape [2, 1, 8, 8]: RuntimeError: mat1 and mat2 shapes"),
    "line of the error": (SEES + "self.l(x)", "(my_file.py, line 8)"),
    "a tuple": (
        SEES + "self.l(x.flatten(1)), 1",
        "returns a tuple of 2, an encoder must return one tensor [batch, features]; r",
    ),
    "one number": (
        SEES + "self.l(x.flatten(1)).sum(1)",
        "returns [2] for a batch of shape [2, 1, 8, 8], an encoder must return",
    ),
    "batch lost": (SEES + "self.l(x.flatten(1))[:1]", "returns [1, 8] for a batch of shape [2, 1, 8, 8]"),
    "NaN": (SEES + "self.l(x.flatten(1)) / 0", "returns numbers that are not finite for the first 2 training rows"),
    "whole numbers": (
        SEES + "self.l(x.flatten(1)).long()",
        "returns torch.int64, an encoder must return torch.float32",
    ),
    "no gradient": (SEES + "self.l(x.flatten(1)).detach()", "no gradient reaches the parameters of my_file.py:Encoder"),
    "no parameters": ("Encoder = nn.Flatten", "my_file.py:Encoder has no parameters"),
    "two shapes": (
        SEES + "self.l(x.flatten(1))[:, : 3 if self.training else 8]",
        "returns [2, 8] for 2 rows in eval mode and [2, 3] for 2 rows in training mode",
    ),
    "one row squeezed away": (SEES + "self.l(x.flatten(1)).squeeze()", "returns [8] for a batch of shape [1, 1, 8, 8]"),
    "a batch of two alone": (
        SEES + "self.l(x.flatten(1).view(-1, 64)[:2])",
        "returns [2, 8] for a batch of shape [16, ",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_in_an_encoder_is_reported_in_one_line(name: str, file: Path) -> None:
    code, words = BAD[name]
    file.write_text(f"from torch import nn\n\n{code}\n")
    answer = moonfed(*ASKED, "--out", "run")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert words in answer.err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("nowhere.py:Encoder", "no file nowhere.py with the encoder Encoder"),
        ("my_file.py", "a custom encoder is named FILE.py:NAME, for example my_file.py:Encoder; got 'my_file.py'"),
        ("my_file.py:", "a custom encoder is named FILE.py:NAME"),
        ("Encoder@0123", "a custom encoder is named FILE.py:NAME"),
        ("cnnn", 'no encoder "cnnn"; did you mean cnn?'),
    ],
)
def test_a_name_without_an_encoder_is_refused(asked: str, words: str, file: Path) -> None:
    answer = moonfed(*ASKED[:-1], asked, "--out", "run")
    assert answer.code == 2
    assert words in answer.err


def test_a_custom_encoder_has_its_own_normalisation(file: Path) -> None:
    answer = moonfed(*ASKED, "--norm", "batch", "--out", "run")
    assert answer.code == 2
    assert "omit --norm batch" in answer.err


@pytest.mark.parametrize(
    "code",
    [
        "def Encoder(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 8))",
        "def Encoder(wide=8): return nn.Sequential(nn.Flatten(), nn.Linear(64, wide))",
        "def Encoder(what): return nn.Sequential(nn.Flatten(), nn.Linear(8 * what[2], 8))",
        "def Encoder(wide=8, *, shape, words): return nn.Sequential(nn.Flatten(), nn.Linear(64 + words, wide))",
        "Encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))",
        "from beside import wide\ndef Encoder(): return nn.Sequential(nn.Flatten(), nn.Linear(64, wide))",
        "from moonfed.models.mlp import Mlp as Encoder",
    ],
)
def test_a_factory_is_called_with_the_parameters_it_has(code: str, file: Path, place: Path) -> None:
    (place / "beside.py").write_text("wide = 8\n")
    file.write_text(f"from torch import nn\n{code}\n")
    assert moonfed(*ASKED, "--rounds", "1", "--out", "run").code == 0


def test_a_report_runs_no_code_that_a_run_folder_names(file: Path) -> None:
    assert moonfed(*ASKED, "--rounds", "1", "--out", "run").code == 0
    file.write_text("raise SystemExit('run')")
    assert moonfed("report", "run").code == 0
    assert "no code is run because a run folder or a coordinator names it" in Path("report.html").read_text()
