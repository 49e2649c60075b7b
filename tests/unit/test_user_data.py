"""User data from file to report: which rows are tested, and what a run reports of its parties."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import bits, moonfed
from user_rows import QUICK, people, write_csv

from moonfed import fit
from moonfed.data.readers import ReaderOptions, apply_encoding, read_dataset
from moonfed.data.readers.holdout import hold_out
from moonfed.training.user_data import OWN


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_every_party_with_two_rows_has_training_and_test_rows(seed: int, share: float):
    rng = np.random.Generator(np.random.PCG64(seed))
    parties = np.sort(np.concatenate([np.repeat(np.arange(6), 2), rng.integers(0, 6, 200)]))
    labels = rng.integers(0, 3, len(parties))
    train, test = hold_out(labels, parties, share, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels)
    for party in range(6):
        mine, held = (parties == party).sum(), (parties[test] == party).sum()
        wanted = min(max(1, round(share * mine)), mine - 1)
        assert max(1, wanted - 3) <= held <= wanted, "three rows, one of each class, are bound to the training"


def test_held_out_rows_have_the_class_proportions_and_depend_on_the_seed():
    labels, parties = np.tile(np.repeat([0, 1, 2], [10, 20, 70]), 2), np.repeat([0, 1], 100)
    _, test = hold_out(labels, parties, 0.2, 0)
    for party in (0, 1):
        assert np.bincount(labels[test[parties[test] == party]]).tolist() == [2, 4, 14]
    assert hold_out(labels, parties, 0.2, 0)[1].tolist() == test.tolist()
    assert hold_out(labels, parties, 0.2, 1)[1].tolist() != test.tolist()


def test_classes_are_rounded_by_the_largest_remainders_and_their_order_breaks_ties():
    own, largest = np.repeat([0, 1, 2, 3], [3, 5, 3, 3]), np.repeat([0, 1, 2, 3], 20)  # the largest keeps a row of each
    labels, parties = np.concatenate([own, largest]), np.repeat([0, 1], [14, 80])
    for seed in range(5):
        _, test = hold_out(labels, parties, 0.25, seed)
        held = np.bincount(labels[test[parties[test] == 0]], minlength=4)
        assert held.tolist() == [1, 1, 1, 1], "due are 0.75, 1.25, 0.75, 0.75, together 4 of 14 rows"
        _, test = hold_out(labels, parties, 0.2, seed)
        held = np.bincount(labels[test[parties[test] == 0]], minlength=4)
        assert held.tolist() == [1, 1, 1, 0], "due are 0.6, 1.0, 0.6, 0.6, together 3 of 14 rows"


def test_the_only_row_of_a_class_is_trained_on(place: Path):
    labels = np.array([0] * 9 + [1])
    for seed in range(20):
        assert 9 in hold_out(labels, np.zeros(10, dtype=int), 0.5, seed)[0]


def test_a_table_with_a_site_column_is_a_natural_federation(place: Path):
    data = read_dataset(people(place / "people.csv"), ReaderOptions(label="kind", party="site"))
    assert data.class_names == ("x", "y")
    assert data.party_names == ("a", "b", "c")
    assert data.party is not None
    assert data.test_party is not None
    assert torch.bincount(data.party).tolist() == [16, 16, 16]
    assert torch.bincount(data.test_party).tolist() == [4, 4, 4]
    assert data.encoder == "mlp"
    weight = data.inputs[:, 3]  # age, blue, red, weight
    assert abs(float(weight.mean())) < 1e-6
    assert abs(float(weight.std(correction=0)) - 1) < 1e-6


def test_the_run_names_its_parties_and_tests_the_global_model_on_their_user_rows(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    answer = moonfed("run", *own, "--rounds", "3", "--out", "run")
    assert answer.code == 0, answer.err
    assert "party" in answer.out
    assert "people.csv: 48 training rows and 12 test rows (held out)" in answer.err
    told = json.loads((place / "run" / "config.json").read_text())
    assert told["parties"] == ["a", "b", "c"]
    assert told["classes"] == ["x", "y"]
    assert told["config"]["data"]["partition"] == "natural"
    assert told["config"]["data"]["parties"] == 3
    final = json.loads((place / "run" / "evaluation.json").read_text())
    parties = final["by_party"]
    assert {k: (p["training_rows"], p["test_rows"]) for k, p in parties.items()} == dict.fromkeys("abc", (16, 4))
    right = sum(p["accuracy"] * p["test_rows"] for p in parties.values())
    assert right / 12 == pytest.approx(final["accuracy"])
    assert final["accuracy_at_party"] == [p["accuracy"] for p in parties.values()]


def test_a_comparison_shows_every_method_at_every_party_and_solo_by_its_own_models(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    answer = moonfed("compare", "fedavg", "solo", "centralised", *own, *QUICK, "--seeds", "0,1")
    assert answer.code == 0, answer.err
    table = answer.out[answer.out.index("test rows ") :]
    assert all(f"\n {party} " in table for party in "abc")
    assert {"fedavg", "solo", "centralised"} <= set(table.split())


def test_a_party_column_may_be_split_anew(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    value = moonfed("partition", *own, "--partition", "iid", "--parties", "4", "--json").value
    assert value["sizes"] == [12] * 4
    assert value["party_names"] is None
    value = moonfed("partition", *own, "--json", "--plot", "map.png").value
    assert value["party_names"] == ["a", "b", "c"]
    assert value["class_counts"] == [[16, 0], [8, 8], [8, 8]]
    assert (place / "map.png").stat().st_size > 1000
    shown = moonfed("partition", *own).out
    assert " a " in shown
    assert "natural" in shown


def test_a_run_on_user_data_resumes_to_the_same_bits_and_refuses_other_data(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site", "--epochs", "1", "--lr-schedule", "constant"]
    assert moonfed("run", *own, "--rounds", "4", "--out", "whole").code == 0
    assert moonfed("run", *own, "--rounds", "2", "--out", "parts").code == 0
    people(place / "people.csv", 63)
    line = moonfed("run", *own, "--rounds", "4", "--out", "parts", "--resume")
    assert line.code == 2
    people(place / "people.csv")
    assert moonfed("run", *own, "--rounds", "4", "--out", "parts", "--resume").code == 0
    assert (
        bits(place / "parts")["tensors"]["final.safetensors"] == bits(place / "whole")["tensors"]["final.safetensors"]
    )
    encoding = [(place / name / "encoding.json").read_bytes() for name in ("whole", "parts")]
    assert encoding[0] == encoding[1]


def test_settings_of_user_data_come_from_files_and_assignments_too(place: Path):
    people(place / "people.csv")
    own = {"path": "people.csv", "label": "kind", "party": "site"}
    lines = [f'{name} = "{value}"' for name, value in own.items()]
    (place / "my.toml").write_text("\n".join(["[data]", *lines, 'ignore = "age, colour"']))
    one = moonfed("partition", "--config", "my.toml", "--json")
    sets = [part for name, value in own.items() for part in ("--set", f"data.{name}={value}")]
    other = moonfed("partition", *sets, "--json")
    assert one.value == other.value
    assert "1 number," in one.err
    assert "2 numbers and 1 category," in other.err


def test_runs_without_user_data_keep_their_identity():
    from moonfed.training.config import make_config

    assert make_config({}).identity == "f4dc620c035f2974"
    assert set(OWN) < set(make_config({}).data.model_dump())


def test_a_report_of_user_data_names_the_parties(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    assert moonfed("run", *own, *QUICK, "--out", "run").code == 0
    answer = moonfed("report", "run", "-o", "page.html", "--tsne", "0")
    assert answer.code == 0, answer.err
    assert "people" in (place / "page.html").read_text()


def test_test_rows_may_come_from_another_file(place: Path, caplog: pytest.LogCaptureFixture):
    people(place / "people.csv")
    write_csv(place / "later.csv", ["kind", "weight", "colour", "age"], [["x", 0, "red", 20], ["y", 12, "green", 21]])
    settings = ReaderOptions(label="kind", party="site", test="later.csv")
    caplog.set_level(logging.INFO, "moonfed")
    data = read_dataset("people.csv", settings)
    assert caplog.messages[0] == "later.csv does not name the party of its rows: there is no accuracy by party"
    assert len(data.labels) == 60
    assert data.test_labels.tolist() == [0, 1]
    assert data.test_party is None
    assert data.test_inputs[1, 1:3].tolist() == [0, 0], "green does not occur in training"


def test_an_encoding_reads_later_rows_in_the_same_way_as_the_training_rows(place: Path):
    people(place / "people.csv")
    data = read_dataset("people.csv", ReaderOptions(label="kind", party="site", test="people.csv"))
    assert data.encoding is not None
    kept = json.loads(json.dumps(data.encoding))
    again = apply_encoding(kept, "people.csv")
    assert torch.equal(again.inputs, data.inputs)
    assert again.labels is not None
    write_csv(place / "new.csv", ["weight", "age", "colour"], [[1, 2, "red"]])
    assert apply_encoding(kept, "new.csv").labels is None
    site = read_dataset("people.csv", ReaderOptions(label="kind", party="site"), encoding=kept)
    mean = data.encoding["details"]["columns"][0]["mean"]
    assert site.encoding is not None
    assert site.encoding["details"]["columns"][0]["mean"] == mean, "a site uses the shared encoding"


def test_a_party_smaller_than_a_batch_trains_and_leaves_the_batch_of_the_others_as_it_is(place: Path):
    rows: list[list[object]] = [[k, "xy"[k % 2], "b" if k < 6 else "a"] for k in range(40)]
    write_csv(place / "t.csv", ["n", "label", "who"], rows)
    for name, more, steps in (("run", [], 1 + 1), ("half", ["--validation", "0.5"], 1 + 1)):
        answer = moonfed("run", "--data", "t.csv", "--party", "who", *QUICK, "--out", name, *more)
        assert answer.code == 0, answer.err
        assert json.loads((place / name / "config.json").read_text())["config"]["train"]["batch"] == 16
        last = json.loads((place / name / "rounds.jsonl").read_text().splitlines()[-1])
        assert (last["cohort"], last["steps"]) == ([0, 1], steps)


def test_simulated_parties_of_user_data_can_fill_a_batch(place: Path):
    people(place / "people.csv", 300)
    own = ["--data", "people.csv", "--label", "kind", "--parties", "5", "--beta", "0.1"]
    split = moonfed("partition", *own, "--json").value
    assert min(split["sizes"]) >= 16
    assert moonfed("run", *own, *QUICK, "--out", "run").code == 0
    assert json.loads((place / "run" / "config.json").read_text())["config"]["data"]["floor"] == 16
    assert min(moonfed("partition", *own, "--floor", "3", "--json").value["sizes"]) < 16


def test_a_failure_names_the_party(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site", "--lr", "1e30"]
    answer = moonfed("run", *own)
    assert answer.code == 1
    assert "party a is not finite" in answer.err


def test_what_is_judged_on_held_out_rows_says_so_everywhere(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site", "--validation", "0.25"]
    answer = moonfed("run", *own, *QUICK, "--out", "run")
    assert answer.code == 0, answer.err
    assert "test rows" not in answer.out
    assert "held-out rows" in answer.out
    final = json.loads((place / "run" / "evaluation.json").read_text())
    rows = [(at["training_rows"], at["test_rows"]) for at in final["by_party"].values()]
    assert rows == [(12, 4)] * 3, "12 of 16 were trained on"
    compared = moonfed("compare", "fedavg", "centralised", *own, *QUICK, "--seeds", "0")
    assert "test rows" not in compared.out
    assert moonfed("report", "run", "-o", "page.html", "--tsne", "0").code == 0
    page = (place / "page.html").read_text().lower()
    assert "accuracies are on rows held out of training" in page
    assert "held-out accuracy by method" in page
    assert "test accuracy" not in page
    result = fit("mlp", "people.csv", label="kind", party="site", validation=0.25, rounds=1, epochs=1, progress=False)
    assert repr(result).endswith("on rows held out of training>")
