"""What docs/own-data.md says is typed as it stands, plus flags that make it short."""

import re
import shlex
from pathlib import Path

import pytest
from commands import moonfed

TEXT = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()
PREPARE, PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
SHORT = {"run": ["--rounds", "1", "--epochs", "1"], "compare": ["--rounds", "1", "--epochs", "1"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder in which the first file of the page was run."""
    made = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        run(PREPARE)
    return made


def run(text: str) -> None:
    """Run a block of Python as a file of its own."""
    exec(compile(text, "prepare.py", "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)


def test_every_command_of_the_page_runs_and_shows_the_parties(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    lines = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL) for line in block.splitlines()]
    typed = [shlex.split(line) for line in lines if line.startswith("moonfed") and "PATH" not in line]
    assert [words[1] for words in typed] == ["partition", "run", "compare", "run"]
    for words in typed:
        answer = moonfed(*words[1:], *SHORT.get(words[1], []))
        assert answer.code == 0, (words, answer.err)
        source = words[words.index("--data") + 1]
        (said,) = [line for line in answer.err.splitlines() if line.startswith(f"{source}: ")]
        if source != "sentences.csv":  # what packages say of themselves changes with their versions
            assert said in TEXT
        assert re.search(r"party +rows", answer.out)


def test_the_python_of_the_page_prints_what_it_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(folder)
    run(PYTHON)
    assert capsys.readouterr().out in TEXT


def test_the_bad_rows_of_the_page_are_refused_as_it_says(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    lines = (folder / "penguins.csv").read_text().splitlines()
    lines[16] += ",extra"
    lines[29] = lines[29].replace("Adelie", " ")
    lines[40] = lines[40].replace("4650.0", '"4,650"')
    (folder / "broken.csv").write_text("\n".join(lines))
    words = re.search(r"\$ moonfed (.*)\n(.*)\n", TEXT)
    assert words is not None
    answer = moonfed(*shlex.split(words[1]))
    assert answer.code == 2
    assert answer.err.strip() == words[2]
