"""Runs without a server on the command line: what is typed, what is said, what is refused."""

import json
from pathlib import Path

import pytest
from commands import QUICK, moonfed, refuse, rows

import moonfed as library
from moonfed.core.errors import UserError

RING = ["--topology", "ring", *QUICK, "--rounds", "2"]


def test_run_closes_with_the_parties_models_and_saves_the_consensus_model(place: Path) -> None:
    answer = moonfed("run", "--algorithm", "moon", *RING, "--out", place / "run")
    assert answer.code == 0
    last = rows(place / "run")[-1]
    words = f"parties' models: mean {last['accuracy']:.1%}, worst {last['worst_accuracy']:.1%}; consensus model "
    assert words + f"{last['consensus_accuracy']:.1%}, consensus distance" in answer.out
    evaluation = json.loads((place / "run" / "evaluation.json").read_text())
    assert evaluation["accuracy"] == last["consensus_accuracy"]
    found = moonfed("runs", place, "--json").value
    assert found[0]["algorithm"] == "moon+gossip"


def test_ditto_on_a_graph_has_a_consensus_model_and_no_global_one(place: Path) -> None:
    answer = moonfed("run", "--algorithm", "ditto+gossip", *QUICK, "--rounds", "1", "--parties", "3")
    assert answer.code == 0, answer.err
    assert "consensus model: " in answer.out
    assert "global model" not in answer.out


def test_compare_gives_every_method_the_same_graph(place: Path) -> None:
    asked = ["compare", "moon", "fedavg", *RING, "--seeds", "0", "--out", place / "both"]
    answer = moonfed(*asked)
    assert answer.code == 0
    assert "Models of the parties" in answer.out
    assert "mlp, without a server (ring)" in " ".join(answer.out.split())
    assert "Of the consensus models, on the test rows" in " ".join(answer.out.split())
    for name in ("moon", "fedavg"):
        algorithm = json.loads((place / "both" / name / "seed-0" / "config.json").read_text())["config"]["algorithm"]
        assert (algorithm["server"], algorithm["topology"]) == ("gossip", "ring")
    report = moonfed("report", place / "both", "--out", place / "report.html")
    assert report.code == 0
    page = (place / "report.html").read_text()
    assert "Models of the parties" in page
    assert "consensus distance" in page.lower()


def test_the_json_of_a_comparison_has_the_graph_and_its_figures(place: Path) -> None:
    graph, server = (
        moonfed("compare", "fedavg", *words, "--seeds", "0", "--json", "--out", place / str(at)).value[0]
        for at, words in enumerate((RING, [*QUICK, "--rounds", "2"]))
    )
    last = rows(place / "0" / "fedavg" / "seed-0")[-1]
    assert graph["graph"] == {
        "topology": "ring",
        "mean_of_parties": last["accuracy"],
        "worst_party": last["worst_accuracy"],
        "consensus_model": last["consensus_accuracy"],
        "consensus_distance": last["consensus_distance"],
    }
    assert "graph" not in server


def test_personal_models_on_a_graph_are_listed_apart_with_dittos_consensus_model(place: Path) -> None:
    asked = ["compare", "ditto", "fedavg", *RING, "--seeds", "0", "--out", place / "both"]
    answer = moonfed(*asked)
    assert answer.code == 0
    text = " ".join(answer.out.split())
    assert text.count("Models of the parties") == 2
    assert "Accuracies of parties are on rows like their own" in text
    last = rows(place / "both" / "ditto" / "seed-0")[-1]
    assert f"{100 * last['global_accuracy']:.1f}" in answer.out


def test_in_python_a_graphs_accuracies_are_the_mean_over_the_parties() -> None:
    run = library.fit(data="digits", algorithm=library.fedavg(topology="ring"), parties=3, rounds=2, epochs=1).runs[0]
    assert run.accuracy == run.final_accuracy == run.rows[-1]["accuracy"] != run.evaluation["accuracy"]


def test_a_file_of_edges_stands_in_the_settings_so_that_a_run_resumes_without_it(place: Path) -> None:
    edges = place / "edges.csv"
    edges.write_text("0,1\n1,2\n1,0\n")
    answer = moonfed("run", "--topology", edges, *QUICK, "--rounds", "1", "--out", place / "run")
    assert answer.code == 0
    assert "is not connected" in answer.err, "the fourth party is in no line"
    config = json.loads((place / "run" / "config.json").read_text())["config"]
    assert config["algorithm"]["topology"] == "0-1 1-2"
    edges.unlink()
    again = ["run", "--topology", "0-1 1-2", *QUICK, "--rounds", "2", "--out", place / "run", "--resume"]
    assert moonfed(*again).code == 0
    assert len(rows(place / "run")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "--all", "--topology", "ring"], "cannot be set for all; name the methods instead"),
        (["run", "--topology", "random:2", "--parties", "2"], "with 2 parties; use --topology complete"),
        (["run", "--topology", "rign"], "or a list of them ('0-1 1-2'), got 'rign'"),
        (["run", "--algorithm", "scaffold", "--topology", "ring"], "scaffold has rules of its own at the server"),
        (["run", "--algorithm", "moon+fednova", "--topology", "ring"], "moon+fednova has rules of its own"),
        (["run", "--server", "median", "--topology", "ring"], "moon+median has rules of its own at the server"),
        (["compare", "moon", "solo", "--topology", "ring"], "solo has rules of its own at the server"),
        (["run", "--topology", "torus", "--parties", "7"], "7 parties make one row"),
        (["run", "--topology-changes", "every-round"], "--topology-changes is of use with --topology alone; add that"),
        (["run", "--topology", "random:3", "--topology-changes", "daily"], 'no gossip.topology_changes "daily"'),
        (["run", "--topology", "9" * 5000 + "-1"], "or a list of them ('0-1 1-2'), got '999"),
        (["run", "--set", "algorithm.topology=3"], "topology needs a word, got 3"),
        (["run", "--topology", "/dev/null"], "it is a device, a regular file is needed"),
        (["compare", "moon", "--set", "algorithm.mu=5"], "compare takes algorithm settings within its methods"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(place: Path, words: list[str], said: str) -> None:
    assert said in refuse(place, *words)


def test_a_graph_in_python_is_a_keyword_of_the_algorithm() -> None:
    graph = library.moon(mu=5, topology="torus")
    assert (graph.name, graph.aggregator.topology) == ("moon+gossip", "torus")  # type: ignore[attr-defined]
    assert library.moon(mu=5, server="gossip", topology="torus") == graph
    with pytest.raises(UserError, match="topology needs a word, got None"):
        library.moon(topology=None)  # type: ignore[arg-type]


def test_before_any_party_mixed_the_parties_models_are_the_consensus_model(place: Path) -> None:
    nobody = ["--stragglers", "1", "--stragglers-drop", "--rounds", "1"]
    assert moonfed("run", "--topology", "ring", *QUICK, *nobody, "--out", "run").code == 0
    (row,) = rows(place / "run")
    assert row["accuracy"] == row["worst_accuracy"] == row["consensus_accuracy"]
    assert row["consensus_distance"] == 0.0
    line = refuse(place, "export", "run", "--party", "0", "--out", "model.onnx")
    assert "which saves the consensus model; omit --party" in line
