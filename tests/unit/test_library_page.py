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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["docs/library.md", pytest.param("README.md", marks=pytest.mark.trains)])
def test_every_block_of_python_runs(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(page, "python")
    assert found
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["fedavg"])  # so that the page's own is forgotten afterwards
    del ALGORITHMS["mine"]
    for number, block in enumerate(found):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)  # noqa: S102 (our own page)
    result = names["both"]["moon"] if page == "README.md" else names["result"]
    assert set(result.accuracy_by_party) == {"north", "south", "west"}
    assert result.accuracy > 0.9
    for line in (line for block in blocks(page, "bash") for line in block.splitlines() if page != "README.md"):
        answer = moonfed(*shlex.split(line, comments=True)[1:])
        assert answer.code == 0, (line, answer.err)
