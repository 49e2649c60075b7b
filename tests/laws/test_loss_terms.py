"""MOON's term beside another rule: without weight it is that rule, beside a rule without effect it is MOON."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUICK, bits, moonfed, refuse
from worlds import context_for, gap, run_one, same_bits, settings, step_context, trained

import moonfed as package
from moonfed.algorithms.fedntd import FedNTDLocal
from moonfed.algorithms.moon import MoonLocal
from moonfed.core.errors import UserError
from moonfed.core.loss_terms import RuleWithTerm, with_term
from moonfed.core.rules import LocalRule
from moonfed.core.tree import tree_map
from moonfed.core.types import Outputs, Slots, Snapshot, State
from moonfed.training.config import make_config
from moonfed.training.registry import ALGORITHMS, preset_of
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial

ENGINES = ("sequential", "stacked")
BASES = sorted(name for name, preset in ALGORITHMS.items() if not (preset.personal or preset.pooled or name == "moon"))
WITH_FLOATS = ("fedntd", "fedprox", "feddyn", "fedsam", "scaffold", "fedacg")


def weight_of_term(base: str) -> str:
    """The name of MOON's mu beside a base rule."""
    return "algorithm__moon_mu" if base in ("fedprox", "moon-l2") else "algorithm__mu"


@pytest.mark.parametrize("base", BASES)
def test_without_weight_it_is_the_base_rule_to_the_bit(base):
    plain = run_one(settings(base))
    added = run_one(settings(f"{base}+moon", **{weight_of_term(base): 0.0}))
    assert same_bits(plain.state, added.state)
    for party, slots in plain.memory.items():
        assert same_bits(slots, {name: added.memory[party][name] for name in slots}), "the base rule's memory too"
    assert gap(plain.state.model, run_one(settings(f"{base}+moon", **{weight_of_term(base): 5.0})).state.model) > 1e-5


@pytest.mark.parametrize("base", WITH_FLOATS)
def test_without_weight_it_is_the_base_rule_to_the_bit_in_a_stack(base):
    plain = run_one(settings(base), "stacked")
    added = run_one(settings(f"{base}+moon", **{weight_of_term(base): 0.0}), "stacked")
    assert same_bits(plain.state, added.state)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("base", ["fedavg", "fedprox", "feddecorr"])
def test_beside_a_rule_without_effect_it_is_moon_to_the_bit(base, engine):
    off = {"fedavg": {}, "fedprox": {"algorithm__mu": 0.0}, "feddecorr": {"algorithm__beta": 0.0}}[base]
    options: dict[str, Any] = {"model__norm": "batch", "algorithm__negatives": 2}
    moon = run_one(settings("moon", algorithm__mu=3.0, **options), engine)
    both = run_one(settings(f"{base}+moon", **off, **{weight_of_term(base): 3.0}, **options), engine)
    assert same_bits(moon.state.model, both.state.model)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("base", [*WITH_FLOATS, "fedlc", "fedvls", "fedlmd"])
def test_engines_agree_on_combinations(float64, base, norm):
    config = settings(f"{base}+moon", model__model="cnn", model__norm=norm, train__rounds=3, cohort__fraction=0.75)
    (one,), (rows_one,) = trained(config, "sequential")
    (two,), (rows_two,) = trained(config, "stacked")
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-9
    assert rows_one[-1]["losses"] == pytest.approx(rows_two[-1]["losses"], abs=1e-9)
    assert "contrastive" in rows_one[-1]["losses"]


def test_a_grid_over_settings_of_both_rules_runs_as_one_stack(float64):
    grid = [settings("fedntd+moon", algorithm__mu=mu, algorithm__beta=beta) for mu, beta in ((0, 1), (5, 0.1), (1, 1))]
    together, _ = trained(grid, "stacked")
    for config, trial in zip(grid, together, strict=True):
        assert gap(run_one(config).state, trial.state) < 1e-10
    assert gap(together[1].state, together[2].state) > 1e-4


def test_the_loss_of_a_step_is_the_hand_computed_one():
    """FedNTD's two parts, and mu times the contrast of z = (1, 0), z_glob = (1, 0), z_prev = (0, 1), tau = 0.5.

    With even scores of three classes the supervised part is log 3. Without the true class the teacher says (0.75,
    0.25), the student (0.5, 0.5): KL = 0.75 log 1.5 + 0.25 log 0.5 = 0.130812. Similarities are 1 and 0: the contrast
    is log(1 + exp(-2)) = 0.126928, and mu = 2.
    """
    moon = {"moon.count": torch.tensor(1.0), "moon.previous0": Snapshot({}, {})}
    teacher = torch.tensor([[0.0, 3.0, 1.0]]).log().clamp(min=-5)

    def outputs(projection: list[float], logits: torch.Tensor) -> Outputs:
        return Outputs(torch.zeros(1, 2), torch.tensor([projection]), logits)

    anchors = {"global": outputs([1.0, 0.0], teacher), "previous0": outputs([0.0, 1.0], torch.zeros(1, 3))}
    rule: Any = with_term(FedNTDLocal, MoonLocal, "moon")(mu=2.0, moon_temperature=0.5, temperature=1.0, beta=1.0)  # type: ignore[call-arg]
    out = outputs([1.0, 0.0], torch.zeros(1, 3))
    parts = rule.loss(out, torch.tensor([0]), step_context(anchors=anchors, memory=moon))
    assert {name: float(part) for name, part in parts.items()} == pytest.approx(
        {"supervised": 1.098612, "distillation": 0.130812, "contrastive": 2 * 0.126928}, abs=1e-5
    )


def test_a_model_that_both_rules_read_is_one_anchor():
    config = settings("fedntd+moon", algorithm__negatives=2)
    context = context_for(config)
    trial = new_trial(resolve(config, context.data), context)
    job = make_jobs(trial, context)[0]
    assert list(job.local.anchors(job.state, job.memory)) == ["global", "previous0", "previous1"]
    assert set(job.memory) == {"moon.count", "moon.previous0", "moon.previous1"}

    class Elsewhere(LocalRule):
        def anchors(self, state, memory):
            return {"global": tree_map(torch.zeros_like, state.model)}

    other = with_term(Elsewhere, MoonLocal, "moon")()
    with pytest.raises(TypeError, match="both use the name global"):
        other.anchors(job.state, job.memory)


def test_the_base_rule_decides_where_training_starts_from_its_own_memory():
    class FromZero(LocalRule):
        def start(self, state, memory):
            assert set(memory) == {"own"}
            return tree_map(torch.zeros_like, state.model)

    state = State(Snapshot({"w": torch.ones(2)}, {}), {}, {})
    memory: Slots = {"own": torch.ones(()), "moon.count": torch.ones(())}
    assert with_term(FromZero, MoonLocal, "moon")().start(state, memory).weights["w"].tolist() == [0.0, 0.0]


def test_every_hook_of_a_local_rule_reaches_the_base_rule():
    """A hook or a class setting that is added to LocalRule must be passed on, or it is lost in a combination."""
    kept = {"float_settings", "personal", "companion"}  # of the combination itself; personal rules are refused
    public = {name for name in vars(LocalRule) if not name.startswith("_")} - kept
    combined = preset_of("scaffold", "moon").local
    missing = public - vars(RuleWithTerm).keys() - vars(combined).keys()
    assert not missing
    assert (combined.needs, combined.gives) == ({"control"}, {"control_change"})
    assert combined.needs_sgd == ALGORITHMS["scaffold"].local.needs_sgd


def test_the_class_of_a_pair_is_made_once_and_has_the_settings_of_both():
    one, two = preset_of("fedprox", "moon").local, preset_of("fedprox", "moon+adam").local
    assert one is two
    assert [f.name for f in fields(one)] == ["mu", "moon_mu", "temperature", "negatives"]
    assert one.__name__ == "FedProxMoonLocal"
    assert preset_of("fedntd", "moon").local is not one


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("moon+moon", "moon+moon names moon twice; use it once"),
        ("fedntd+moon+moon", "fedntd+moon+moon names moon twice; use it once"),
        ("fedper+moon", "fedper+moon trains a model for each party, moon needs a global one; omit +moon"),
        ("centralised+moon", "centralised+moon has all rows in one place, moon needs parties; omit +moon"),
        ("solo+moon", "solo+moon trains a model for each party, moon needs a global one; omit +moon"),
        ("fedntd+moom", 'no server rule or phase "moom"; did you mean moon?'),
        ("scaffold+moon+fednova", "scaffold+moon+fednova does not fit"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(name, said):
    with pytest.raises(UserError) as refused:
        make_config({"algorithm": {"name": name}})
    assert str(refused.value).startswith(said)


def test_the_term_goes_with_every_server_rule_in_any_order():
    one = make_config({"algorithm": {"name": "fedntd+moon+fednova+adam", "mu": 0.5}}).algorithm
    assert (one.name, one.server, one.options["mu"]) == ("fedntd", "moon+fednova+adam", 0.5)
    a, b = (run_one(settings("fedntd", algorithm__server=server)) for server in ("moon+fednova", "fednova+moon"))
    assert same_bits(a.state, b.state)


def test_a_combination_is_named_in_flags_methods_folders_and_python(place: Path):
    quick = [*QUICK, "--rounds", "1"]
    assert moonfed("run", *quick, "--algorithm", "fedntd+moon", "--mu", "0.5", "--moon-temperature", "0.2").code == 0
    (folder,) = (place / "runs").glob("digits-fedntd+moon-s0-*")
    assert '"moon_temperature": 0.2' in (folder / "config.json").read_text()
    assert moonfed("compare", "fedntd", "fedntd+moon:mu=0.5", *quick, "--seeds", "0", "--out", "both").code == 0
    assert (place / "both" / "fedntd+moon-mu=0.5" / "seed-0" / "final.safetensors").exists()
    assert "fedprox+moon.moon_mu needs a value >= 0, got -1.0; set it with --moon-mu" in refuse(
        place, "run", "--algorithm", "fedprox+moon", "--moon-mu", "-1"
    )
    assert "fedavg has no setting moon_mu (fedprox+moon, moon-l2+moon have it)" in refuse(
        place, "run", "--algorithm", "fedavg", "--moon-mu", "1"
    )
    fit: Callable[..., Any] = package.fit
    size = {"parties": 2, "rounds": 1, "epochs": 1, "progress": False}
    result = fit("mlp", "digits", algorithm=package.fedntd(server="moon", mu=0.5), **size)
    assert result.runs[0].method == "fedntd+moon:mu=0.5"
    assert fit("mlp", "digits", algorithm="fedntd+moon:mu=0.5", **size).rows[-1]["losses"] == result.rows[-1]["losses"]
    with pytest.raises(UserError, match=r"moonfed.fedprox\(server='moon', moon_mu=2\)"):
        fit("mlp", "digits", algorithm=package.fedprox(server="moon"), moon_mu=2, **size)


def test_resumed_is_never_interrupted(place: Path):
    asked = ["run", *QUICK, "--algorithm", "feddyn+moon", "--fraction", "0.5", "--out"]
    for rounds in ("1", "2", "4"):
        assert moonfed(*asked, "later", "--rounds", rounds, "--resume").code == 0
    assert moonfed(*asked, "at once", "--rounds", "4").code == 0
    assert bits(place / "later") == bits(place / "at once")
