"""Server rules: their reductions and hand-computed values, and how they combine by name."""

import math

import pytest
import torch
from worlds import gap, run_one, same_bits, settings

from moonfed.aggregators.feddisco import FedDiscoAggregator, discrepancy
from moonfed.aggregators.fedexp import FedExPAggregator
from moonfed.core.errors import UserError
from moonfed.core.tree import norm, sub
from moonfed.core.types import PartyInfo, Population, Snapshot, State, Update, Upload
from moonfed.server_optimizers.adagrad import AdagradOptimizer
from moonfed.server_optimizers.adam import AdamOptimizer
from moonfed.server_optimizers.yogi import YogiOptimizer
from moonfed.training.config import make_config
from moonfed.training.registry import preset_of

ADAPTIVE = (AdamOptimizer, YogiOptimizer, AdagradOptimizer)


def walk(optimizer, *updates):
    """Apply updates of two weights one after the other; return the weights after each."""
    model = Snapshot({"w": torch.zeros(2, dtype=torch.float64)}, {})
    state = State(model, {}, optimizer.init(model))
    seen = []
    for update in updates:
        state = optimizer.step(state, Update({"w": torch.tensor(update, dtype=torch.float64)}, {}, {}, {}))
        seen.append(state.model.weights["w"])
    return seen


@pytest.mark.parametrize("kind", [AdamOptimizer, YogiOptimizer])
def test_without_decay_of_the_past_a_step_is_the_update_over_its_size_plus_tau(kind):
    (moved,) = walk(kind(server_lr=2.0, server_beta1=0.0, server_beta2=0.0, server_tau=0.5), (3.0, -0.5))
    assert moved.tolist() == pytest.approx([2 * 3 / 3.5, -2 * 0.5 / 1.0])


def test_the_first_step_of_yogi_is_adams_and_after_large_updates_its_square_falls_more_slowly():
    first, *_, adam = walk(AdamOptimizer(), (4.0, 1.0), (0.1, 1.0), (0.1, 1.0))
    same, *_, yogi = walk(YogiOptimizer(), (4.0, 1.0), (0.1, 1.0), (0.1, 1.0))
    assert torch.equal(first, same)
    assert float(yogi[0]) < float(adam[0]), "a larger square, a smaller step"


def test_two_steps_of_adam_and_yogi_by_hand_without_bias_correction():
    """b1 1/2, b2 3/4, updates 4, then 3 or 1: m 2, then 5/2 or 3/2; v 4, then 3 + D^2 / 4, for Yogi 4 +- D^2 / 4."""
    for kind, squares in ((AdamOptimizer, (5.25, 3.25)), (YogiOptimizer, (6.25, 3.75))):
        rule = kind(server_lr=3.0, server_beta1=0.5, server_beta2=0.75, server_tau=0.5)
        once, twice = walk(rule, (4.0, 4.0), (3.0, 1.0))
        assert once.tolist() == pytest.approx([3 * 2 / 2.5] * 2)
        steps = [3 * m / (math.sqrt(v) + 0.5) for m, v in zip((2.5, 1.5), squares, strict=True)]
        assert (twice - once).tolist() == pytest.approx(steps)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad", "fedexp"])
def test_buffers_are_averaged_and_neither_adapted_nor_extrapolated(name):
    plain, other = (run_one(settings(n, train__rounds=1, model__norm="batch")).state for n in ("fedavg", name))
    assert same_bits(plain.model.buffers, other.model.buffers)
    assert gap(plain.model.weights, other.model.weights) > 1e-5


def test_adagrad_adds_squares_up():
    """Squares 9, then 9 + 16 = 25: steps 3 / 3 and 4 / 5 at tau 0+."""
    once, twice = walk(AdagradOptimizer(server_lr=1.0, server_tau=1e-12), (3.0, 0.0), (4.0, 0.0))
    assert once.tolist() == pytest.approx([1.0, 0.0])
    assert twice.tolist() == pytest.approx([1.8, 0.0])


@pytest.mark.parametrize("kind", ADAPTIVE)
def test_an_update_of_zero_moves_only_by_the_mean_of_the_past(kind):
    resting, moving = (walk(kind(server_beta1=b), (1.0, 1.0), (0.0, 0.0)) for b in (0.0, 0.5))
    assert torch.equal(*resting)
    assert float((moving[1] - moving[0]).min()) > 0


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_with_a_large_tau_an_adaptive_server_is_momentum_at_the_server_and_without_momentum_fedavg(name, float64):
    tau = {"algorithm__server_lr": 1e9, "algorithm__server_tau": 1e9}
    momentum = run_one(settings("fedavgm", algorithm__server_momentum=0.7)).state.model
    assert gap(momentum, run_one(settings(name, algorithm__server_beta1=0.7, **tau)).state.model) < 1e-7
    plain = run_one(settings("fedavg")).state.model
    assert gap(plain, run_one(settings(name, algorithm__server_beta1=0.0, **tau)).state.model) < 1e-7


@pytest.mark.parametrize("kind", [AdamOptimizer, YogiOptimizer])
@pytest.mark.parametrize("tau", [1e3, 1e6])
def test_the_distance_to_fedavg_is_about_the_root_of_the_squares_over_tau(kind, tau):
    """One step with rate tau moves by d tau / (sqrt(v) + tau), v = (1 - b2) d^2: short of d by sqrt(v) / tau."""
    (moved,) = walk(kind(server_lr=tau, server_beta1=0.0, server_beta2=0.75, server_tau=tau), (4.0, -0.5))
    short = [1 - float(step) / d for step, d in zip(moved, (4.0, -0.5), strict=True)]
    assert short == pytest.approx([math.sqrt(0.25) * 4.0 / tau, math.sqrt(0.25) * 0.5 / tau], rel=1e-2)


def extrapolated(*deltas, eps=1e-12, shares=()):
    """The update of FedExP."""
    rule, info = FedExPAggregator(eps=eps), PartyInfo(0, 1, (1,))
    uploads = [Upload({"w": torch.tensor(d, dtype=torch.float64)}, {}, {}, 1, 1.0) for d in deltas]
    weights = shares or [1.0] * len(deltas)
    parts = [rule.contribute(upload, info, share) for upload, share in zip(uploads, weights, strict=True)]
    total = {k: torch.stack([part[k] for part in parts]).sum(0) for k in parts[0]}
    state = State(Snapshot({"w": torch.zeros(len(deltas[0]))}, {}), {}, {})
    update = rule.update(state, total, Population(len(deltas), len(deltas)))
    assert update is not None
    return update.delta["w"]


def extrapolation(*deltas, eps=1e-12):
    """How many times longer than the mean the update of FedExP is."""
    return float(extrapolated(*deltas, eps=eps).norm() / torch.tensor(deltas).mean(0).norm())


def test_fedexp_leaves_equal_updates_and_extrapolates_m_orthogonal_ones_m_halves_times():
    assert extrapolation([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]) == pytest.approx(1.0)
    for m in (3, 10):
        assert extrapolation(*torch.eye(m).tolist()) == pytest.approx(m / 2)
        assert extrapolation(*(5 * torch.eye(m)).tolist()) == pytest.approx(m / 2), "whatever their length"
    assert extrapolation([1.0, 0.0], [0.0, 1.0]) == pytest.approx(1.0), "two: the mean, unless they oppose"


def test_fedexp_where_updates_cancel_is_bounded_by_eps():
    """Squares of 1 on the mean and of 0 in the mean: 1 / (2 eps) at most."""
    assert extrapolation([1.0, 1e-9], [-1.0, 1e-9], eps=0.1) == pytest.approx(5.0)
    assert extrapolated([1.0, 2.0], [-1.0, -2.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("second", "factor"), [((1.0, 1.0), 1.0), ((0.0, 2.0), 1.0), ((-1.0, 1.0), 3.0)])
def test_fedexp_extrapolates_two_updates_only_if_they_oppose_each_other(second, factor):
    """(||a||^2 + ||b||^2) / ||a + b||^2 is above 1 if a b < 0; a = (1, 0) and b = (-1, 1): 1 + 2 over 1."""
    assert extrapolation([1.0, 0.0], second) == pytest.approx(factor)


def test_fedexp_without_eps_does_not_depend_on_the_scale_of_the_updates():
    deltas = torch.randn(7, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    factors = [extrapolation(*(deltas * c).tolist(), eps=0.0) for c in (1e-6, 1.0, 1e6)]
    assert factors == pytest.approx([factors[1]] * 3)
    assert factors[1] > 1.5


def test_fedexp_weighs_updates_and_their_squares_by_share():
    """Updates 2 and -2 with shares 3 and 1: the mean is 1, the mean square 4, eta 4 / (2 (1 + 1)) at eps 1, 2 at 0."""
    assert extrapolated([2.0], [-2.0], shares=[3.0, 1.0], eps=0.0).tolist() == pytest.approx([2.0])
    assert extrapolated([2.0], [-2.0], shares=[3.0, 1.0], eps=1.0).tolist() == pytest.approx([1.0])
    assert extrapolated([2.0], [-2.0], shares=[3.0, 1.0], eps=0.25).tolist() == pytest.approx([1.6])


def test_fedexp_takes_norms_over_all_tensors_of_the_model_at_once():
    """Updates (1, 3) and (1, -3) in two tensors: mean (1, 0), mean square 10, eta 10 / 2, one factor for both tensors.

    Norms of the second tensor alone would divide by 0, those of each tensor apart would leave the first as it is.
    """
    rule, info = FedExPAggregator(eps=1e-12), PartyInfo(0, 1, (1,))
    deltas = [{"a": torch.tensor([1.0]), "b": torch.tensor([b])} for b in (3.0, -3.0)]
    parts = [rule.contribute(Upload(delta, {}, {}, 1, 1.0), info, 1.0) for delta in deltas]
    zeros = State(Snapshot({k: torch.zeros(1) for k in "ab"}, {}), {}, {})
    update = rule.update(zeros, {k: parts[0][k] + parts[1][k] for k in parts[0]}, Population(2, 2))
    assert update is not None
    assert [float(update.delta[k]) for k in "ab"] == pytest.approx([5.0, 0.0])


def test_fedexp_takes_norms_of_weights_alone():
    for size in (0.0, 1e6):
        upload = Upload({"w": torch.tensor([3.0, 4.0])}, {"mean": torch.full((2,), size)}, {}, 1, 1.0)
        part = FedExPAggregator().contribute(upload, PartyInfo(0, 1, (1,)), 2.0)
        assert float(part["square/norm"]) == pytest.approx(50.0)


def test_fedexp_is_fedavg_where_the_parties_agree_and_moves_further_where_they_do_not():
    alone = [run_one(settings(name, data__parties=1)).state.model for name in ("fedavg", "fedexp")]
    assert same_bits(*alone), "one party agrees with itself"
    plain, fedexp = (run_one(settings(name, train__rounds=1)).state.model for name in ("fedavg", "fedexp"))
    start = run_one(settings("fedavg", train__rounds=1, train__lr=1e-30)).state.model
    moved = [sub(model.weights, start.weights) for model in (plain, fedexp)]
    ratios = [float(norm({"": moved[1][k]}) / norm({"": moved[0][k]})) for k in moved[0]]
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-3), "one factor for all weights"
    assert ratios[0] > 1.05, "parties of different classes disagree"


def test_a_name_after_a_plus_replaces_what_it_stands_for_and_keeps_the_rest():
    both = preset_of("moon", "fednova+adam")
    assert (both.aggregator, both.server_optimizer) == (preset_of("fednova").aggregator, AdamOptimizer)
    assert both == preset_of("moon", "adam+fednova")._replace(name=both.name), "in any order"
    assert preset_of("fednova", "adam").aggregator is preset_of("fednova").aggregator
    assert preset_of("scaffold", "momentum").aggregator is preset_of("scaffold").aggregator
    assert preset_of("fedadam", "fedavg").rules[1:] == preset_of("fedavg").rules[1:]
    with pytest.raises(UserError, match="moon\\+adam\\+yogi names two server optimisers, adam and yogi"):
        preset_of("moon", "adam+yogi")


@pytest.mark.parametrize("name", ["fednova+adam", "median+momentum", "moon+fednova+adam", "scaffold+yogi"])
def test_combinations_run_on_every_engine_alike(name):
    one, two = (run_one(settings(name, train__rounds=2), engine).state.model for engine in ("sequential", "stacked"))
    assert gap(one, two) < 1e-5
    assert all(torch.isfinite(weight).all() for weight in one.weights.values())


def test_a_combination_is_the_same_however_it_is_written():
    written = {"algorithm": {"name": "moon+fednova+adam"}}, {"algorithm": {"name": "moon", "server": "fednova+adam"}}
    assert len({make_config(values).identity for values in written}) == 1
    given = [
        ("moon+momentum", "ccvr"),
        ("moon+ccvr", "momentum"),
        ("moon", "ccvr+momentum"),
        ("moon+ccvr+momentum", None),
    ]
    written = [make_config({"algorithm": {"name": name, "server": server}}) for name, server in given]
    assert {config.algorithm.server for config in written} == {"momentum+ccvr"}
    with pytest.raises(UserError, match=r"moon\+momentum\+adam names two server optimisers, momentum and adam"):
        make_config({"algorithm": {"name": "moon+momentum", "server": "adam"}})
    both = {"algorithm": {"name": "fedntd+moon", "server": "fednova"}}
    assert make_config(both).algorithm.server == "moon+fednova", "a term goes with any rule at the server"
    short, long = (run_one(settings(name)) for name in ("fedavg+momentum", "fedavgm"))
    assert same_bits(short.state, long.state)


def test_feddisco_without_its_terms_is_fedavg_and_with_a_large_offset_the_plain_mean(float64):
    plain = run_one(settings("fedavg")).state.model
    zero = {"algorithm__discrepancy_weight": 0.0, "algorithm__discrepancy_offset": 0.0}
    assert gap(plain, run_one(settings("feddisco", **zero)).state.model) < 1e-12
    assert gap(plain, run_one(settings("feddisco")).state.model) > 1e-4
    infos = [PartyInfo(0, 30, (30, 0)), PartyInfo(1, 10, (5, 5))]
    assert FedDiscoAggregator(discrepancy_offset=1e9).weights([30, 10], infos) == pytest.approx([0.5, 0.5])


def test_feddisco_weighs_rows_minus_discrepancy():
    """Shares 0.75 and 0.25; the first party has one class, the second is even: d = (1, 0), p ~ (0.35, 0.35)."""
    infos = [PartyInfo(0, 30, (30, 0)), PartyInfo(1, 10, (5, 5))]
    assert FedDiscoAggregator().weights([30, 10], infos) == pytest.approx([0.5, 0.5])
    assert discrepancy((30, 0)) == pytest.approx(math.log(2))
    even = [PartyInfo(k, 10 * (k + 1), (5 * (k + 1),) * 2) for k in range(2)]
    assert FedDiscoAggregator(discrepancy_offset=0.0).weights([10, 20], even) == pytest.approx([1 / 3, 2 / 3])
    below = [PartyInfo(0, 10, (10, 0)), PartyInfo(1, 30, (15, 15))]  # 1/4 - 1/2 counts 0
    assert FedDiscoAggregator(discrepancy_offset=0.0).weights([10, 30], below) == pytest.approx([0.0, 1.0])
    nobody = FedDiscoAggregator(discrepancy_weight=9.0, discrepancy_offset=0.0).weights([10, 10], [infos[0]] * 2)
    assert nobody == [0.5, 0.5], "rows decide where nobody would count"


def test_feddisco_with_even_parties_weighs_shares_plus_the_offset():
    """Shares 1/3 and 2/3 plus 0.1 over 1.2; so a = 0 is FedAvg only if b is 0."""
    for classes in (2, 10, 49):
        even = [PartyInfo(k, 10 * classes * (k + 1), (10 * (k + 1),) * classes) for k in range(2)]
        assert FedDiscoAggregator().weights([1, 2], even) == pytest.approx([1.3 / 3.6, 2.3 / 3.6])
    uneven = [PartyInfo(0, 10, (10, 0)), PartyInfo(1, 20, (10, 10))]
    for offset, weights in ((0.1, [1.3 / 3.6, 2.3 / 3.6]), (0.0, [1 / 3, 2 / 3])):
        rule = FedDiscoAggregator(discrepancy_weight=0.0, discrepancy_offset=offset)
        assert rule.weights([10, 20], uneven) == pytest.approx(weights)


def test_feddisco_divides_discrepancies_by_their_sum_over_the_cohort():
    """One, two and four of four classes: ln 4, ln 2 and 0, so 2/3, 1/3 and 0; shares 1/3 each, a 0.5, b 0.1."""
    infos = [PartyInfo(k, 8, counts) for k, counts in enumerate([(8, 0, 0, 0), (4, 4, 0, 0), (2, 2, 2, 2)])]
    raw = [1 / 3 - 0.5 * d + 0.1 for d in (2 / 3, 1 / 3, 0)]
    assert FedDiscoAggregator().weights([8, 8, 8], infos) == pytest.approx([value / sum(raw) for value in raw])
