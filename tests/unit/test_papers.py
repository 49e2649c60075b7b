"""What was published, what recipes are made of, and how a verdict is reached."""

from pathlib import Path
from typing import Any

import pytest
import torch

from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.experiments.statistics import Interval
from moonfed.papers.published import Published, library
from moonfed.papers.readings import first_crossing, loss, seconds_per_round
from moonfed.papers.recipe import Cell, Contrast, Line, cell, contrasts
from moonfed.papers.recipe_result import Reading, difference_of, result_of
from moonfed.papers.recipe_trials import ReproductionOptions, required_trials, stacks
from moonfed.papers.recipes import RECIPES
from moonfed.papers.scale import scaled
from moonfed.papers.verdict import judge, judge_level, units
from moonfed.training.config import make_config

ASKED = [
    *(f"table{n}" for n in range(1, 13)),
    *(f"fig{n}" for n in (2, 5, 6, 7, 8, 9, 10, 11)),
    *("shi-table1", "shi-table2", "shi-table3", "shi-fig6", "shi-fig7", "xu-table1", "xu-table2", "xu-table3"),
    *("frilingos-fig1", "frilingos-fig2", "stragglers", "table3-cifar10", "table4-cifar10", "fig8-cifar10"),
]
FULL = ReproductionOptions(Path("out"))


def rows(*accuracies: float) -> list[Any]:
    return [{"round": i, "accuracy": a, "seconds": float(i)} for i, a in enumerate(accuracies, 1)]


def test_every_table_and_figure_has_a_recipe():
    assert sorted(RECIPES) == sorted(ASKED)


@pytest.mark.parametrize("id", ASKED)
def test_every_published_value_has_a_line_in_its_recipe(id):
    recipe = RECIPES[id]
    table = library().tables[recipe.published or id]
    assert table.document in library().documents
    assert table.place
    shown = {line.printed or line.place for line in recipe.lines}
    assert recipe.ours or set(table.places()) <= shown


def test_every_published_table_is_used():
    used = {recipe.published or recipe.id for recipe in RECIPES.values()} | {r.reference for r in RECIPES.values()}
    assert set(library().tables) <= used


def test_every_claim_in_words_is_tested_by_a_recipe_with_a_difference():
    for claim in library().claims:
        assert claim.document in library().documents
        assert any(RECIPES[id].contrasts for id in claim.recipes), claim.text


def test_figures_are_those_of_the_paper():
    tables = library().tables
    assert tables["table1"].value(("moon", "cifar10")) == 69.1
    assert tables["table1"].deviation(("solo", "cifar10")) == 5.1
    assert tables["table2"].value(("scaffold", "cifar100")) is None
    assert tables["table3"].value(("moon mu=10", "100 parties, 500 rounds")) == 61.8
    assert tables["flower"].value(("moon cifar10", "100")) == 70.71


def test_our_own_variants_show_no_published_value():
    ours = [recipe for recipe in RECIPES.values() if recipe.ours]
    assert {recipe.id for recipe in ours} == {"table3-cifar10", "table4-cifar10", "fig8-cifar10"}
    assert {name for recipe in ours for name in recipe.datasets} == {"cifar10"}
    for recipe in ours:
        found = result_of(recipe, ReproductionOptions(Path("nowhere")))
        assert all(line["published"] is None for line in found["lines"])
        assert all(difference["published"] is None for difference in found["differences"])


def test_our_own_variants_state_a_difference_the_way_it_was_published():
    texts = [
        d["text"] for d in result_of(RECIPES["table4-cifar10"], ReproductionOptions(Path("nowhere")))["differences"]
    ]
    assert "fedavg over fedprox, beta=5" in texts, "at beta 5 FedProx is printed behind FedAvg"


def test_a_trial_of_another_precision_is_another_trial(monkeypatch):
    monkeypatch.setattr("moonfed.papers.recipe_trials.pick_device", torch.device)  # also where there is no GPU

    def folder(dataset: str, precision: str) -> Path:
        return ReproductionOptions(Path("x"), run={"device": "cuda", "precision": precision}).folder(
            cell(dataset, "moon"), (0, 0)
        )

    for dataset in ("cifar10", "cifar100"):
        assert folder(dataset, "auto") == folder(dataset, "tf32") != folder(dataset, "fp16")


def test_the_defaults_of_the_settings_are_the_published_ones():
    config, setting = make_config({}), library().setting
    pairs = {
        "parties": config.data.parties,
        "beta": config.data.beta,
        "local_epochs": config.train.epochs,
        "lr": config.train.lr,
        "momentum": config.train.momentum,
        "weight_decay": config.train.weight_decay,
        "projection_dim": config.model.projection,
        "temperature": make_config({"algorithm": {"name": "moon"}}).algorithm.options["temperature"],
    }
    assert pairs == {name: setting[name] for name in pairs}
    assert make_config({}).data.partition == "dirichlet"
    assert setting["encoder"] == {name: IMAGE_SETS[name].encoder for name in setting["encoder"]}
    assert {IMAGE_SETS[name].batch for name in setting["encoder"]} == {setting["batch_size"]}


@pytest.mark.parametrize("id", ASKED)
def test_every_line_has_its_own_place_and_valid_settings(id):
    recipe = RECIPES[id]
    places = [line.place for line in recipe.lines]
    assert len(set(places)) == len(places)
    assert {place for c in recipe.contrasts for pair in c.pairs for place in pair} <= set(places)
    for line in recipe.lines:
        config = FULL.config(line.cell, (0, 1))
        assert (config.data.partition_seed, config.run.seed) == (0, 1)
        assert FULL.config(scaled(line.cell, "smoke"), (0, 1)).data.dataset == "digits"


def test_mu_is_the_published_one():
    for name in ("cifar10", "cifar100", "tinyimagenet"):
        for method in ("moon", "fedprox"):
            options = cell(name, method).settings["algorithm"]
            assert options["mu"] == library().setting[f"best_mu_{method}"][name]


def test_solo_trains_300_epochs_at_every_party():
    solo = next(line.cell for line in RECIPES["table3"].lines if line.place == ("solo", "100 parties"))
    assert solo.rounds * solo.settings["train"]["epochs"] == 300
    assert FULL.config(solo, (0, 0)).cohort.fraction == 1.0


def test_runs_that_tables_share_are_run_once():
    one, both = (required_trials([RECIPES[id] for id in ids], FULL) for ids in (["table1"], ["table1", "table2"]))
    assert one == both
    assert set(required_trials([RECIPES["fig8"]], FULL)) < set(required_trials([RECIPES["table3"]], FULL))
    assert set(required_trials([RECIPES["table12"]], FULL)) & set(one)


def test_a_run_that_is_read_twice_runs_to_the_later_round():
    lines = {line.place: line.cell for line in RECIPES["table3"].lines}
    early, late = (lines["fedavg", f"100 parties, {rounds} rounds"] for rounds in (250, 500))
    assert FULL.folder(early, (0, 0)) == FULL.folder(late, (0, 0))
    assert required_trials([RECIPES["table3"]], FULL)[FULL.folder(early, (0, 0))][0].train.rounds == 500


def test_trials_of_one_small_network_share_a_stack_and_large_and_timed_ones_stand_alone():
    assert [len(group) for group in stacks(required_trials([RECIPES["table1"]], FULL))] == [18] + [1] * 36
    assert {len(group) for group in stacks(required_trials([RECIPES["table11"]], FULL))} == {1}


def test_one_data_set_keeps_the_parts_that_it_is_sufficient_for():
    part = RECIPES["table1"].only("cifar10")
    assert part.datasets == ["cifar10"]
    assert {c.text for c in part.contrasts} >= {"moon over fedavg, cifar10"}
    assert not any("mean of the data sets" in c.text for c in part.contrasts)


def test_on_several_splits_the_split_is_the_unit():
    assert units({(0, 0): 1.0, (0, 1): 3.0}) == [1.0, 3.0]
    assert units({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 5.0}) == [2.0, 5.0]


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        (1.3, 3.4, 2.8, "holds"),
        (1.3, 2.7, 2.8, "holds, smaller"),
        (0.1, 0.2, None, "holds"),
        (-3.0, -0.1, 2.8, "contradicted"),
        (-0.1, 3.0, 2.8, "not shown"),
        (0.0, 3.0, 2.8, "not shown"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(low, high, margin, verdict):
    assert judge(Interval((low + high) / 2, low, high, 3), margin) == verdict


def test_one_trial_shows_nothing_and_none_was_not_run():
    assert judge(Interval(5.0, None, None, 1), 1.0) == "not shown"
    assert judge(None, 1.0) == "not run"
    assert judge_level(None, 1.0) == "not run"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.5, 0.9, "holds"), (-0.5, 1.1, "not shown"), (1.1, 2.0, "contradicted"), (-3.0, -1.1, "contradicted")],
)
def test_level_means_the_whole_interval_within_a_point(low, high, verdict):
    assert judge_level(Interval(0.0, low, high, 3), 1.0) == verdict


def test_the_loss_averages_the_rounds_that_the_accuracy_averages():
    log: list[Any] = [{"losses": {"supervised": float(n), "contrastive": 1.0}} for n in range(1, 41)]
    assert loss(log) == pytest.approx(sum(range(31, 41)) / 10 + 1)
    assert loss(log[:8]) == pytest.approx(8.5)


def test_the_first_crossing_is_the_first_and_never_is_one_round_more():
    log = rows(0.1, 0.5, 0.4, 0.5)
    assert first_crossing(log, 0.5) == 2
    assert first_crossing(log, 0.6) == 5


def test_a_round_is_timed_without_the_first():
    assert seconds_per_round(rows(0.1, 0.1, 0.1, 0.1)) == 3.0


def lines_of(table: dict[str, list[float]], measure: str = "accuracy") -> Any:
    run = Cell({"data": {"dataset": "cifar10"}, "train": {"rounds": 1}})
    return {
        (row, "here"): (Line(row, "here", run, measure), {(0, i): Reading(v) for i, v in enumerate(values)})
        for row, values in table.items()
    }


def printed(**values: float) -> Published:
    return Published("t", "moon", "Table 0", "", ("here",), {k: (v,) for k, v in values.items()})


def test_a_difference_is_paired_by_seed():
    lines = lines_of({"moon": [0.709, 0.716, 0.696], "fedavg": [0.69, 0.69, 0.67]})
    (contrast,) = contrasts(["moon"], "fedavg", ["here"])
    found = difference_of(contrast, lines, printed(moon=69.1, fedavg=66.3), smoke=False)
    # 1.9, 2.6 and 2.6 points: mean 2.367, deviation 0.404, half the interval 4.303 * 0.404 / sqrt(3) = 1.004
    assert found["measured"]["mean"] == pytest.approx(0.023667, abs=1e-6)
    assert (found["measured"]["low"], found["measured"]["high"]) == pytest.approx((0.013626, 0.033707), abs=1e-5)
    assert (found["published"], found["verdict"]) == (pytest.approx(0.028), "holds")


def test_a_seed_that_one_method_lacks_is_left_out():
    lines = lines_of({"moon": [0.70, 0.71, 0.72], "fedavg": [0.69, 0.69]})
    found = difference_of(contrasts(["moon"], "fedavg", ["here"])[0], lines, printed(), smoke=False)
    assert [trial["value"] for trial in found["by_trial"]] == pytest.approx([0.01, 0.02])


def test_a_difference_is_stated_the_way_it_was_published():
    lines = lines_of({"moon": [0.60, 0.601], "fedavg": [0.62, 0.621]})
    found = difference_of(contrasts(["moon"], "fedavg", ["here"])[0], lines, printed(moon=69.47, fedavg=70.68), False)
    assert found["text"] == "fedavg over moon, here"
    assert found["published"] == pytest.approx(0.0121)
    assert found["measured"]["mean"] == pytest.approx(0.02)
    assert found["verdict"] == "holds"


def test_fewer_rounds_are_ahead():
    lines = lines_of({"moon": [27.0, 29.0], "fedavg": [100.0, 100.0]}, "rounds")
    found = difference_of(contrasts(["moon"], "fedavg", ["here"])[0], lines, printed(moon=27, fedavg=100), False)
    assert (found["measured"]["mean"], found["published"]) == (72.0, 73.0)


def test_a_mean_over_pairs_is_taken_seed_by_seed_and_not_run_if_a_part_is_missing():
    lines = lines_of({"a": [3.0, 5.0], "b": [1.0, 1.0], "c": []})
    here = {row: (row, "here") for row in "abc"}
    both = Contrast("mean", ((here["a"], here["b"]), (here["a"], here["a"])))
    assert [t["value"] for t in difference_of(both, lines, printed(), False)["by_trial"]] == [1.0, 2.0]
    part = Contrast("mean", ((here["a"], here["b"]), (here["a"], here["c"])))
    assert difference_of(part, lines, printed(), False)["verdict"] == "not run"


def test_a_smoke_test_says_so_in_its_verdict():
    lines = lines_of({"moon": [2.0, 2.1], "fedavg": [1.0, 1.0]})
    found = difference_of(contrasts(["moon"], "fedavg", ["here"])[0], lines, printed(), smoke=True)
    assert found["verdict"] == "smoke: holds"
