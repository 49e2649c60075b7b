"""What is said of a model: by class, by party, in confusion."""

import json

import pytest
import torch
from commands import QUICK, moonfed, rows
from worlds import context_for, run_one, settings, some_digits, trained

from moonfed.core.types import PartyInfo
from moonfed.training.evaluate import Score, evaluate


def test_a_score_follows_from_its_confusion():
    score = Score(torch.tensor([[3, 1, 0], [0, 2, 2], [1, 0, 1]]), 0.5)
    assert score.accuracy == 6 / 10
    assert score.by_class == [3 / 4, 2 / 4, 1 / 2]
    assert score.at_party(PartyInfo(0, 10, (10, 0, 0))) == 3 / 4
    assert score.at_party(PartyInfo(1, 8, (2, 2, 4))) == (2 * 3 / 4 + 2 * 2 / 4 + 4 * 1 / 2) / 8


def test_a_class_without_test_rows_counts_neither_as_right_nor_as_wrong():
    score = Score(torch.tensor([[3, 1, 0], [0, 0, 0], [1, 0, 1]]), 0.5)
    assert score.at_party(PartyInfo(0, 8, (2, 4, 2))) == (2 * 3 / 4 + 2 * 1 / 2) / 4
    assert score.at_party(PartyInfo(1, 8, (0, 8, 0))) is None


def test_evaluation_counts_every_test_row_once():
    trial = run_one(settings("fedavg", model__norm="batch"))
    data, bench = some_digits(), context_for(trial.config)
    score = evaluate(bench.nets.inference, data, trial.state.model)
    assert score.confusion.sum(1).tolist() == torch.bincount(data.test_labels, minlength=10).tolist()


def test_every_nth_round_is_evaluated_and_the_last_one_always():
    _, (found,) = trained(settings("fedavg", run__evaluate_every=3, train__rounds=7))
    assert [row["round"] for row in found if row["accuracy"] is not None] == [3, 6, 7]
    _, (every,) = trained(settings("fedavg", train__rounds=7))
    assert [found[i]["accuracy"] for i in (2, 5, 6)] == [every[i]["accuracy"] for i in (2, 5, 6)]


def test_party_models_are_scored_on_request():
    """With one party the averaged model is the party's own."""
    config = settings("fedavg", run__evaluate_parties=True, data__parties=1, train__rounds=2, model__norm="batch")
    _, (found,) = trained(config)
    for row in found:
        assert row["accuracy_of_party"] == {"0": pytest.approx(row["accuracy"])}
    _, (many,) = trained(settings("moon", run__evaluate_parties=True, cohort__fraction=0.5))
    assert all(set(row["accuracy_of_party"]) == {str(party) for party in row["cohort"]} for row in many)


@pytest.mark.parametrize("name", ["moon", "solo"])
def test_a_run_leaves_an_evaluation_that_agrees_with_its_last_row(tmp_path, name):
    assert moonfed("run", *QUICK, "--rounds", "2", "--algorithm", name, "--out", tmp_path / "run").code == 0
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    last = rows(tmp_path / "run")[-1]
    assert {k: found[k] for k in found if k in last} == {k: last[k] for k in found if k in last}
    confusion = torch.tensor(found["confusion"])
    assert float(confusion.diagonal().sum() / confusion.sum()) == pytest.approx(found["accuracy"])
