"""Every seam of the core between sites: what a rule reads of the clock, a query of prototypes, schedules, gamma."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from commands import rows
from federations import weights
from in_process import InProcessTransport, World
from torch import Tensor
from worlds import gap, run_one, settings

from moonfed.core.algorithm import Preset
from moonfed.core.phase import ClassSums, Phase
from moonfed.core.rules import LocalRule
from moonfed.core.tree import scale
from moonfed.core.types import Outputs, Snapshot, State, StepContext, Tensors
from moonfed.federation.protocol.codec import expected_upload
from moonfed.training.config import Config, make_config
from moonfed.training.registry import ALGORITHMS, PHASES


@dataclass(frozen=True)
class WarmingLocal(LocalRule):
    """A rule whose gradients grow from round to round, and over the steps of a round."""

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        return scale(grads, (1 + ctx.clock.round) * (1 + ctx.clock.step / ctx.clock.steps) / 4)


@dataclass(frozen=True)
class StillLocal(LocalRule):
    """A rule whose gradient is 0."""

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        return {"supervised": super().loss(out, y, ctx)["supervised"] * 0}


@dataclass(frozen=True)
class PrototypePhase(Phase):
    """Makes the output layer of the classes' prototypes: a row's score is its projection's product with their mean."""

    query = ClassSums()

    def conclude(self, state: State, total: Tensors, rng: np.random.Generator) -> Snapshot:
        weight = state.model.weights["head.weight"]
        means = total["sum"] / total["rows"].clamp(min=1)[:, None]
        return Snapshot(state.model.weights | {"head.weight": means.to(weight)}, state.model.buffers)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "warming", Preset("warming", WarmingLocal))
    monkeypatch.setitem(ALGORITHMS, "still", Preset("still", StillLocal))
    monkeypatch.setitem(PHASES, "prototypes", Preset("prototypes", phases=(PrototypePhase,)))


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("algorithm", ["warming", "fedavg+prototypes"])
def test_a_rule_of_the_clock_and_a_phase_of_prototypes_are_the_same_everywhere(
    tmp_path: Path, float64: None, algorithm: str
):
    one, two = (run_one(settings(algorithm), engine) for engine in ("sequential", "stacked"))
    assert gap(one.current_model, two.current_model) < 1e-10
    assert gap(one.current_model, run_one(settings("fedavg")).current_model) > 1e-3
    world = World(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()


class Decaying(World):
    """Sites under a rate that falls from round to round, with clipped gradients."""

    def settings(self, rounds: int) -> Config:
        values = super().settings(rounds).model_dump()
        train = values["train"] | {"lr_decay": 0.7, "lr_schedule": "linear", "max_grad_norm": 1.0}
        return make_config(values | {"train": train})


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold", "feddyn", "fedsam", "fedacg", "fednova"])
def test_a_falling_rate_and_clipping_are_the_same_between_sites_as_in_the_simulation(tmp_path: Path, algorithm: str):
    world = Decaying(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    for one, other in zip(rows(tmp_path / "run"), rows(tmp_path / "here"), strict=True):
        for name in ("accuracy", "accuracy_at_party", "accuracy_by_class", "bytes_down"):
            assert one[name] == other[name], name


@pytest.mark.parametrize("algorithm", [name for name, preset in ALGORITHMS.items() if not preset.pooled])
def test_no_site_uploads_a_bare_number_that_a_server_could_divide_by(algorithm: str):
    trial = run_one(settings(algorithm, model__norm="batch", train__rounds=1))
    sent = trial.algorithm.aggregator.send(trial.state, trial.spec.infos[0])
    expected = expected_upload(trial.algorithm.local, sent, trial.spec.infos[0], trial.spec.init_model)
    assert not [name for name, spec in expected.items() if name.startswith("slots/") and not spec.shape]


class Measured(World):
    """Sites whose gamma is recorded."""

    def settings(self, rounds: int) -> Config:
        values = super().settings(rounds).model_dump()
        return make_config(values | {"run": values["run"] | {"gamma": True}})


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "still"])
def test_gamma_is_the_same_between_sites_as_in_the_simulation(tmp_path: Path, algorithm: str):
    """Also where it is a quotient of two zeros, as for a party whose loss does not depend on its model."""
    world = Measured(tmp_path, algorithm)
    found = world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    for one, other in zip(found, rows(tmp_path / "here"), strict=True):
        assert one["cohort"] == [0, 1, 2], "no update is refused"
        assert one["gamma"] == other["gamma"]
        assert all((value is None) == (algorithm == "still") for value in one["gamma"].values())
