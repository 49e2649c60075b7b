"""docs/methods.md, docs/graphs.md and docs/which-method.md: every method is there, and their commands run."""

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from commands import moonfed

from moonfed.training.registry import ALGORITHMS, PHASES

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ["--epochs", "1", "--rounds", "1", "--model", "mlp"]
PAGES = ("methods", "graphs", "which-method")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def commands(name: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", page(name), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("moonfed ")]


@pytest.mark.parametrize("line", [line for name in PAGES for line in commands(name)])
def test_every_command_of_the_pages_runs(line: str, place: Path) -> None:
    Path("edges.csv").write_text("0,1\n1,2\n2,3\n3,4\n")
    words = shlex.split(line, comments=True)[1:]
    answer = moonfed(*words, *QUICK)
    assert answer.code == 0, answer.err


def test_no_page_has_a_gap_to_fill() -> None:
    for path in [*DOCS.glob("*.md"), *(DOCS.parent / "results").rglob("*.md")]:
        assert not re.search(r"@[A-Z]+@", path.read_text()), path


def test_the_table_of_methods_has_every_method_once() -> None:
    whole = page("methods").split("## Combinations")[0]
    table = [line for line in whole.splitlines() if line.startswith("| `")]
    named = [name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert sorted(named) == sorted([*ALGORITHMS, *(f"...+{phase}" for phase in PHASES)])


def test_every_newer_method_has_a_paragraph_that_cites_its_paper() -> None:
    heads = [part.split(").")[0] for part in page("methods").split("\n\n") if part.startswith("**")]
    older = {"centralised", "solo", "moon", "moon-l2", "scaffold", "scaffold-niid", "fedavg", "fedprox", "fedavgm"}
    for name in ALGORITHMS.keys() - older - {"fednova", "median", "trimmed-mean"}:
        (head,) = [head for head in heads if f"`{name}`" in head]
        assert re.search(r"(19|20)\d\d", head), f"{name} has a paper with a year"


@pytest.mark.parametrize(
    ("data", "split"),
    [*(("digits", split) for split in ("dirichlet-0.1", "two-classes", "dirichlet-0.5")), ("cifar10", "dirichlet-0.1")],
)
def test_the_tables_of_the_results_page_follow_from_the_committed_trials(data: str, split: str) -> None:
    tool = runpy.run_path(str(DOCS.parent / "tools" / "methods_table.py"))
    trials = (DOCS.parent / "results" / "methods" / f"{data}.jsonl").read_text().splitlines()
    table = tool["table"]([json.loads(line) for line in trials], split, tool["WORKLOADS"][data].processor)
    assert "\n".join(table) in (DOCS.parent / "results" / "methods.md").read_text()


def test_the_table_of_graphs_follows_from_the_committed_trials() -> None:
    tool = runpy.run_path(str(DOCS.parent / "tools" / "graph_results.py"))
    trials = (DOCS.parent / "results" / "methods" / "graphs.jsonl").read_text().splitlines()
    table = tool["table"]([json.loads(line) for line in trials])
    assert "\n".join(table) in (DOCS.parent / "results" / "methods.md").read_text()
