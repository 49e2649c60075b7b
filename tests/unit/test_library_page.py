"""docs/library.md and the README's example run as they are printed."""

import re
import shlex
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from commands import moonfed

from moonfed.training.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), flags=re.M | re.S)


def run_blocks(page: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a page's blocks of Python one after the other and return the names they defined."""
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(page, "python")
    assert found
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["fedavg"])  # so that the page's own is forgotten afterwards
    del ALGORITHMS["mine"]
    for number, block in enumerate(found):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)  # noqa: S102 (our own page)
    return names


@pytest.mark.trains
@pytest.mark.filterwarnings("ignore")
def test_every_block_of_the_library_page_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_blocks("docs/library.md", monkeypatch)
    assert set(names["result"].accuracy_by_party) == {"north", "south", "west"}
    assert names["result"].accuracy > 0.9
    for line in (line for block in blocks("docs/library.md", "bash") for line in block.splitlines()):
        answer = moonfed(*shlex.split(line, comments=True)[1:])
        assert answer.code == 0, (line, answer.err)


@pytest.mark.trains
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_the_readme_trains(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = run_blocks("README.md", monkeypatch)["both"]
    assert min(run.accuracy for result in both.results.values() for run in result.runs) > 0.9
    assert len(blocks("README.md", "python")[0].splitlines()) <= 14, "twelve lines, and an empty one or two"
