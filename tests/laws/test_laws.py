"""What must hold between the algorithms, whatever the data."""

import math
import statistics
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.func import grad
from worlds import context_for, gap, run, run_one, same_bits, settings, some_digits, step_context, trained

from moonfed.algorithms.moon import MoonLocal
from moonfed.algorithms.moon_l2 import MoonL2Local
from moonfed.core.rules import LocalRule, settings_of
from moonfed.core.tree import add, leaves, scale, sub
from moonfed.core.types import Outputs, Slots, State, as_snapshot, as_tensor, as_tensors
from moonfed.data.augment import gather
from moonfed.data.batches import draw_plan
from moonfed.training.network import build, net_spec
from moonfed.training.trial import new_trial


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize(
    ("name", "zero"), [("moon", "mu"), ("moon-l2", "mu"), ("fedprox", "mu"), ("fedavgm", "server_momentum")]
)
def test_without_its_own_term_every_rule_is_fedavg_to_the_bit(engine, name, zero):
    plain = run_one(settings("fedavg"), engine)
    other = run_one(settings(name, **{f"algorithm__{zero}": 0.0}), engine)
    assert same_bits(plain.state.model, other.state.model)


def test_with_their_own_term_the_rules_are_not_fedavg():
    plain = run_one(settings("fedavg"))
    for name in ("moon", "moon-l2", "fedprox", "fedavgm", "scaffold", "scaffold-niid", "fednova"):
        assert gap(plain.state.model, run_one(settings(name)).state.model) > 1e-5, name


@pytest.mark.parametrize("name", ["moon", "scaffold", "scaffold-niid"])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_first_round_is_fedavgs_to_the_bit(name, norm):
    one = settings(name, train__rounds=1, model__norm=norm)
    plain = run_one(settings("fedavg", train__rounds=1, model__norm=norm))
    assert same_bits(plain.state.model, run_one(one).state.model)


def test_a_party_that_joins_late_takes_fedavgs_step_too():
    config = settings("moon", cohort__fraction=0.25, train__rounds=6)
    _, (rows,) = trained(config)
    seen: set[int] = set()
    for row in rows:
        first_time = not set(row["cohort"]) & seen
        assert (row["losses"]["contrastive"] == 0.0) == first_time
        seen |= set(row["cohort"])
    assert len(seen) > 1


def test_fednova_with_equal_steps_is_fedavg(float64):
    even = {"data__partition": "iid", "train__rounds": 3}
    plain = run_one(settings("fedavg", **even))
    assert gap(plain.state.model, run_one(settings("fednova", **even)).state.model) < 1e-12


def test_equal_anchors_cost_ln_2_and_push_nowhere(float64):
    """Paper, section 3.3.2: where z_glob = z_prev the contrastive loss is -log 1/2, a constant."""
    rng = torch.Generator().manual_seed(1)
    z, anchor = torch.randn(2, 12, 8, generator=rng).unbind()
    rule, y = MoonLocal(mu=3.0), torch.zeros(12, dtype=torch.int64)
    state = State(None, {}, {})  # type: ignore[arg-type]
    party: Slots = {"count": torch.ones(())}

    def contrast(projection):
        out = Outputs(projection, projection, torch.zeros(12, 4))
        seen = {name: Outputs(anchor, anchor, anchor) for name in ("global", "previous0")}
        return rule.loss(out, y, step_context(anchors=seen, state=state, memory=party))["contrastive"]

    assert float(contrast(z)) == pytest.approx(3 * math.log(2), rel=1e-14)
    assert float(grad(contrast)(z).abs().max()) < 1e-16


def test_the_contrastive_loss_is_equation_7():
    rng = torch.Generator().manual_seed(2)
    z, g, *old = torch.randn(4, 6, 5, generator=rng, dtype=torch.float64)
    rule = MoonLocal(mu=2.0, temperature=0.7, negatives=3)
    outs = {k: Outputs(v, v, v) for k, v in zip(("global", "previous0", "previous1"), (g, *old), strict=True)}
    outs["previous2"] = outs["global"]  # a slot that is not filled: it must not count
    party = {"count": torch.tensor(2.0)}
    parts = rule.loss(Outputs(z, z, z), torch.zeros(6, dtype=torch.int64), step_context(anchors=outs, memory=party))

    def sim(a, b):
        return math.exp(float(a @ b / a.norm() / b.norm()) / 0.7)

    by_hand = [-math.log(sim(z[i], g[i]) / (sim(z[i], g[i]) + sum(sim(z[i], o[i]) for o in old))) for i in range(6)]
    assert float(parts["contrastive"]) == pytest.approx(2 * sum(by_hand) / 6, rel=1e-12)


def test_the_l2_term_is_equation_6_and_rounding_noise_gives_it_no_direction():
    rng = torch.Generator().manual_seed(3)
    z, g = torch.randn(2, 6, 5, generator=rng, dtype=torch.float64).unbind()
    y, state = torch.zeros(6, dtype=torch.int64), State(None, {}, {})  # type: ignore[arg-type]

    def distance(z):
        out, anchor = Outputs(0 * z, z, 0 * z), Outputs(0 * g, g, 0 * g)  # the projection and nothing else
        return MoonL2Local(mu=2.0).loss(out, y, step_context(anchors={"global": anchor}, state=state))["distance"]

    by_hand = 2 * sum(math.dist(a, b) for a, b in zip(z.tolist(), g.tolist(), strict=True)) / 6
    assert float(distance(z)) == pytest.approx(by_hand, abs=3e-4)
    assert float(distance(g)) == 0
    noisy = g * (1 + 1e-15 * torch.randn(6, 5, generator=rng, dtype=torch.float64))
    assert float(grad(distance)(noisy).abs().max()) < 1e-10


def test_moons_queue_holds_the_last_k_models_newest_first():
    ends = [run_one(settings("moon", train__rounds=r, algorithm__negatives=3)) for r in (1, 2, 3, 4)]
    newest = [as_snapshot(t.memory[2], "previous0") for t in ends]
    last = ends[-1].memory[2]
    assert [same_bits(as_snapshot(last, f"previous{i}"), newest[3 - i]) for i in range(3)] == [True] * 3
    assert len({float(leaves(m)[0].sum()) for m in newest}) == 4
    assert [float(as_tensor(t.memory[2], "count")) for t in ends] == [1, 2, 3, 3]


def test_a_partys_previous_model_is_that_of_its_last_participation():
    config = settings("moon", cohort__fraction=0.5, train__rounds=5)
    (long,), (rows,) = trained(config)
    for party, slots in long.memory.items():
        last = max(row["round"] for row in rows if party in row["cohort"])
        then = run_one(settings("moon", cohort__fraction=0.5, train__rounds=last))
        assert same_bits(slots, then.memory[party])


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_scaffolds_server_control_is_the_size_weighted_mean_of_all_party_controls(float64, fraction):
    trial = run_one(settings("scaffold", cohort__fraction=fraction, train__rounds=4))
    rows = {fact.party: fact.rows for fact in trial.spec.infos}
    mean = scale(as_tensors(trial.state.sent, "control"), 0.0)
    for party, slots in trial.memory.items():
        mean = add(mean, scale(as_tensors(slots, "control"), rows[party] / sum(rows.values())))
    assert gap(mean, trial.state.sent["control"]) < 1e-14
    assert gap(mean, scale(mean, 0.0)) > 1e-3


def test_niid_benchs_random_start_cancels_after_a_full_round(float64):
    trial = run_one(settings("scaffold-niid", train__rounds=2, model__norm="batch"))
    controls = [as_tensors(slots, "state_control") for slots in trial.memory.values()]
    mean = {k: torch.stack([c[k] for c in controls]).mean(0) for k in controls[0]}
    assert gap(mean, trial.state.sent["state_control"]) < 1e-12


def test_server_momentum_follows_both_published_forms(float64):
    for form, gain in (("damped", 0.4), ("plain", 1.0)):
        after = [
            run_one(settings("fedavgm", algorithm__server_momentum=0.6, algorithm__momentum_form=form, train__rounds=r))
            for r in (1, 2)
        ]
        start = after[0].spec.init_model("model").weights
        fedavg = run_one(settings("fedavg", train__rounds=1)).state.model.weights
        first = scale(sub(fedavg, start), gain)
        assert gap(after[0].state.model.weights, add(start, first)) < 1e-14
        second = sub(after[1].state.model.weights, after[0].state.model.weights)
        assert gap(second, as_tensors(after[1].state.server_state, "velocity")) < 1e-14
        # What is new in the second velocity is gain times a FedAvg round from where the first one ended.
        fresh_part = scale(sub(second, scale(first, 0.6)), 1 / gain)
        assert gap(fresh_part, _fedavg_round_from(after[0])) < 1e-13


def _fedavg_round_from(trial):
    bench = context_for(trial.config)
    train = trial.config.train.model_copy(update={"rounds": 2})
    config = trial.config.model_copy(update={"algorithm": settings("fedavg").algorithm, "train": train})
    again = new_trial(config, bench)
    (after,), _ = run([replace(again, state=State(trial.state.model, {}, {}), round=trial.round)], bench)
    return sub(after.state.model.weights, trial.state.model.weights)


def plain_torch(config, party_rows, party, start, rounds, keep_optimiser):
    """The same training in plain PyTorch: an nn.Module, torch.optim.SGD, no code of ours but the plan."""
    data = some_digits()
    net = build(net_spec(config, data)).double()
    net.load_state_dict(start.weights | start.buffers)
    make = lambda: torch.optim.SGD(net.parameters(), lr=config.train.lr, momentum=0.9, weight_decay=1e-5)  # noqa: E731
    optimiser = make()
    for round in range(rounds):
        if not keep_optimiser:
            optimiser = make()
        plan = draw_plan(config.run.seed, round, party, party_rows, config.train.epochs, 8, data.augmentation)
        for x, y in zip(*gather(data, plan, torch.float64), strict=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x).logits, y).backward()
            optimiser.step()
    return {k: v.detach() for k, v in net.named_parameters()}


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_one_party_with_all_rows_for_one_round_is_centralised_sgd(float64, norm):
    config = settings("fedavg", data__parties=1, train__rounds=1, train__epochs=3, model__norm=norm)
    trial = run_one(config)
    by_torch = plain_torch(config, trial.spec.parts[0], 0, trial.spec.init_model("model"), 1, keep_optimiser=True)
    assert gap(by_torch, trial.state.model.weights) < 1e-12


def test_centralised_is_one_long_sgd_over_all_rounds(float64):
    config = settings("centralised", train__rounds=3)
    (trial,), (rows,) = trained(config)
    assert len(trial.spec.parts) == 1
    by_torch = plain_torch(config, trial.spec.parts[0], 0, trial.spec.init_model("model"), 3, keep_optimiser=True)
    assert gap(by_torch, trial.state.model.weights) < 1e-12
    assert rows[-1]["bytes_up"] == rows[-1]["bytes_down"] == 0


def test_a_setting_that_lanes_could_not_share_is_refused_when_it_is_declared():
    @dataclass(frozen=True)
    class Undeclared(LocalRule):
        strength: float = 1.0

    with pytest.raises(
        TypeError, match=r"strength: a rule's setting is a float, an int or a str declared with setting"
    ):
        settings_of(Undeclared)


def test_solo_is_each_party_alone_with_one_optimiser(float64):
    config = settings("solo", train__rounds=3)
    (trial,), (rows,) = trained(config)
    for party in range(4):
        by_torch = plain_torch(
            config, trial.spec.parts[party], party, trial.spec.init_model(f"party{party}"), 3, keep_optimiser=True
        )
        assert gap(by_torch, as_snapshot(trial.memory[party], "model").weights) < 1e-12
    last = rows[-1]
    assert last["accuracy"] == pytest.approx(sum(last["accuracy_by_party"]) / 4)
    assert last["accuracy_std"] == pytest.approx(statistics.pstdev(last["accuracy_by_party"]))
    assert last["bytes_up"] == last["bytes_down"] == 0


def test_fedavg_is_the_rows_weighted_mean_of_what_each_party_trains(float64):
    config = settings("fedavg", train__rounds=1, model__norm="batch")
    trial = run_one(config)
    total = sum(fact.rows for fact in trial.spec.infos)
    mean = None
    for fact in trial.spec.infos:
        mine = scale(
            plain_torch(config, trial.spec.parts[fact.party], fact.party, trial.spec.init_model("model"), 1, False),
            fact.rows / total,
        )
        mean = mine if mean is None else add(mean, mine)
    assert gap(mean, trial.state.model.weights) < 1e-12
