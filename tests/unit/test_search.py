"""Which settings a search tries with which seeds, and what it concludes about the best."""

import itertools

import pytest

from moonfed.core.errors import UserError
from moonfed.experiments.search import choose, estimate, plan_search, stages


def carried_out(plan, accuracy):
    """Go through a plan's stages with an accuracy for every setting and seed."""
    results = {setting: {} for setting in plan.settings}
    seen = []
    for stage in stages(plan, lambda: results):
        seen.append(stage)
        for setting, seed in itertools.product(stage.settings, stage.seeds):
            assert seed not in results[setting], "no trial is run twice"
            results[setting][seed] = accuracy(setting, seed)
    return results, seen


def test_a_budget_that_is_enough_tries_every_setting_with_every_seed():
    plan = plan_search(4, [0, 1, 2], budget=12)
    results, seen = carried_out(plan, lambda setting, seed: setting + 0.1 * seed)
    assert plan.trials == 12 == sum(len(found) for found in results.values())
    assert len(seen) == 1
    assert seen[0].final


@pytest.mark.parametrize("settings", [3, 8, 24, 100])
@pytest.mark.parametrize("seeds", [1, 3, 5])
@pytest.mark.parametrize("budget", [13, 24, 60])
def test_no_search_spends_more_than_its_budget_and_the_best_setting_wins(settings, seeds, budget):
    plan = plan_search(settings, list(range(seeds)), budget)
    results, seen = carried_out(plan, lambda setting, seed: setting / 100)
    assert sum(len(found) for found in results.values()) == plan.trials <= budget
    choice = choose(plan, results)
    assert choice is not None
    assert choice.best == max(plan.settings)
    assert [len(stage.settings) for stage in seen] == plan.stage_sizes


def test_the_finalists_are_compared_on_seeds_that_did_not_select_them():
    plan = plan_search(8, [0, 1, 2], budget=20)
    results, seen = carried_out(plan, lambda setting, seed: setting / 100)
    selected_by = {seed for stage in seen[:-1] for seed in stage.seeds}
    assert selected_by
    assert not selected_by & set(seen[-1].seeds)
    assert seen[-1].seeds == [0, 1, 2]
    best = choose(plan, results)
    assert best is not None
    lucky, _ = carried_out(
        plan, lambda setting, seed: setting / 100 + (5 if seed in selected_by and setting == 0 else 0)
    )
    again = choose(plan, lucky)
    assert again is not None
    assert again.best == 7, "luck in the selection gets a setting into the final, but no further"
    assert again.runner_up == 0


def test_the_sample_of_a_large_grid_always_contains_the_default_setting():
    for seed in range(5):
        plan = plan_search(100, [seed, seed + 1], budget=12, default=37)
        assert 37 in plan.settings
        assert len(set(plan.settings)) == len(plan.settings) < 100


def test_a_budget_that_is_too_small_names_the_smallest_sufficient_one():
    with pytest.raises(UserError, match="use --budget 13 or more"):
        plan_search(4, [0, 1, 2, 3, 4], budget=12)
    assert plan_search(4, [0, 1, 2, 3, 4], budget=13).trials == 13


def test_two_settings_are_distinguishable_only_if_the_interval_of_their_difference_excludes_zero():
    plan = plan_search(2, [0, 1, 2], budget=6)
    noise = {0: 0.00, 1: 0.03, 2: -0.02}
    clear, _ = carried_out(plan, lambda setting, seed: 0.5 + 0.1 * setting + noise[seed])
    choice = choose(plan, clear)
    assert choice is not None
    assert choice.distinguishable, "noise that both share does not count"
    assert choice.difference is not None
    assert choice.difference.mean == pytest.approx(0.1)
    vague, _ = carried_out(plan, lambda setting, seed: 0.5 + setting * (0.01 + noise[seed]))
    choice = choose(plan, vague)
    assert choice is not None
    assert not choice.distinguishable


def test_two_seeds_with_equal_differences_distinguish_nothing():
    plan = plan_search(2, [0, 1], budget=4)
    same, _ = carried_out(plan, lambda setting, seed: 0.5 + 0.25 * setting)
    choice = choose(plan, same)
    assert choice is not None
    assert choice.difference is not None
    assert choice.difference.low == choice.difference.high == 0.25, "an interval of no width"
    assert not choice.distinguishable


def test_one_seed_distinguishes_nothing():
    plan = plan_search(2, [0], budget=6)
    results, _ = carried_out(plan, lambda setting, seed: setting)
    choice = choose(plan, results)
    assert choice is not None
    assert not choice.distinguishable


def test_a_setting_whose_run_failed_is_never_chosen():
    plan = plan_search(3, [0, 1], budget=6)
    results, _ = carried_out(plan, lambda setting, seed: None if (setting, seed) == (2, 1) else setting)
    choice = choose(plan, results)
    assert choice is not None
    assert (choice.best, choice.runner_up) == (1, 0)
    assert choose(plan, {setting: {0: None, 1: None} for setting in range(3)}) is None


def test_a_finalists_mean_is_over_the_final_seeds_alone():
    plan = plan_search(8, [0, 1, 2], budget=20)
    results, seen = carried_out(plan, lambda setting, seed: 1.0 if seed > 2 else 0.5)
    finalist = seen[-1].settings[0]
    over = estimate(plan, results[finalist])
    assert over is not None
    assert (over.mean, over.n) == (0.5, 3)
