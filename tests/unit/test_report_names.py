"""Names of methods on a page, and runs that a page leaves out."""

import re
from pathlib import Path

from commands import moonfed, refused


def test_a_graph_of_many_edges_has_a_short_name_on_the_page_and_in_files(place: Path):
    for name, step in (("one", 1), ("two", 2)):
        edges = " ".join(f"{i}-{j}" for i in range(12) for j in range(i + step, 12))
        words = ("--algorithm", "moon", "--topology", edges, "--parties", "12", "--rounds", "1", "--epochs", "1")
        assert moonfed("run", *words, "--model", "mlp", "--batch", "8", "--out", f"runs/{name}").code == 0
    answer = moonfed("report", "runs", "-o", "page.html", "--figures", "figures", "--tsne", "0")
    assert answer.code == 0, answer.err
    assert "Warning" not in answer.err
    page = Path("page.html").read_text()
    assert len(re.findall(r"moon\+gossip:topology=0-1 0-2 0-3\.\.\.[0-9a-f]{6}<", page)) > 0
    assert max(len(path.name) for path in Path("figures").iterdir()) < 100


def test_a_run_of_an_algorithm_that_is_not_registered_is_left_out_by_name(place: Path):
    for name in ("mine", "plain"):
        words = ("--algorithm", "fedavg", "--parties", "4", "--rounds", "1", "--epochs", "1", "--model", "mlp")
        assert moonfed("run", *words, "--out", f"runs/{name}").code == 0
    config = Path("runs/mine/config.json")
    config.write_text(config.read_text().replace('"name": "fedavg"', '"name": "fedmine"'))
    answer = moonfed("report", "runs", "-o", "page.html", "--tsne", "0")
    assert answer.code == 0, answer.err
    assert "runs/mine is of fedmine, an algorithm that is not registered here" in answer.err
    states = {run["folder"]: run["state"] for run in moonfed("runs", "runs", "--json").value}
    assert states["runs/mine"] == "of an algorithm that is not registered here"
    assert "fedmine, an algorithm that is not registered here" in refused(
        moonfed("report", "runs/mine", "-o", "p.html")
    )
