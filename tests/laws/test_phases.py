"""Queries and phases: a phase changes what is released, never what is trained."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import bits
from torch.func import functional_call
from worlds import context_for, gap, ready, run, same_bits, settings, some_digits, trained

from moonfed.api.algorithm_functions import algorithm_of, as_settings, label_of
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import UserError
from moonfed.core.phase import ClassMoments, ClassSums, Phase, Query
from moonfed.core.rules import LocalRule
from moonfed.core.tree import add, nbytes
from moonfed.core.types import Outputs, PartyInfo
from moonfed.data.augment import normalise
from moonfed.data.batches import draw_plan
from moonfed.engines.query import sum_query
from moonfed.experiments.compare import plan_comparison
from moonfed.experiments.execute import execute
from moonfed.phases.ccvr import CCVRPhase
from moonfed.storage.saved_model import read_saved
from moonfed.training.callbacks import Callback
from moonfed.training.config import make_config
from moonfed.training.evaluate import ScoreQuery, evaluate
from moonfed.training.network import build
from moonfed.training.registry import preset_of
from moonfed.training.resolve import resolve
from moonfed.training.runner import LocalRunner
from moonfed.training.trial import new_trial

CLASSES, WIDTH = 3, 4


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon+fednova+adam", "centralised"])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_phase_never_feeds_back_into_training(name, engine, norm):
    """Nor do its forward passes move the statistics of BatchNorm."""
    configs = [settings(method, model__norm=norm) for method in (name, f"{name}+ccvr")]
    (plain, phased), (rows, phased_rows) = trained(configs, engine)
    assert same_bits((plain.state, plain.memory), (phased.state, phased.memory))
    assert not same_bits(plain.current_model, phased.current_model)
    for row, other in zip(rows, phased_rows, strict=True):
        assert row["losses"] == other["losses"]
        assert (row["accuracy"], row["test_loss"]) != (other["accuracy"], other["test_loss"])


def test_what_is_evaluated_and_kept_is_what_would_be_released():
    config = settings("fedavg+ccvr", train__rounds=4, run__evaluate_every=3, train__patience=5)
    context, (trial,) = ready(config)
    (trial,), (rows,) = run([trial], context)
    assert [row["accuracy"] is None for row in rows] == [True, True, False, False]
    score = evaluate(context.nets.inference, trial.spec.evaluation, trial.current_model)
    assert (score.accuracy, score.loss) == (rows[-1]["accuracy"], rows[-1]["test_loss"])
    assert trial.best is not None
    assert trial.final_model is trial.best.model
    kept = evaluate(context.nets.inference, trial.spec.evaluation, trial.final_model)
    assert kept.loss == rows[trial.best.round - 1]["test_loss"]
    assert trial.evaluation is not None
    assert trial.evaluation["test_loss"] == kept.loss


def moment_bytes(width: int) -> int:
    """Of doubles, for ten classes: rows, z, and the triangle of z z^T."""
    return 8 * 10 * (1 + width + width * (width + 1) // 2)


def test_the_moments_of_ten_classes_at_width_256_are_the_megabytes_that_the_docs_name():
    z, logits = torch.zeros(1, 256), torch.zeros(1, 10)
    answer = nbytes(ClassMoments().map(Outputs(z, z, logits), torch.zeros(1, dtype=torch.int64)))
    assert answer == moment_bytes(256) == 2_652_240
    assert "2.65 MB" in (Path(__file__).parents[2] / "docs/methods.md").read_text()


def test_the_bytes_of_a_query_are_counted_in_evaluated_rounds():
    _, (plain, phased) = trained([settings(name, run__evaluate_every=2) for name in ("fedavg", "fedavg+ccvr")])
    (trial,), _ = trained(settings("fedavg+ccvr", train__rounds=1))
    answer = moment_bytes(16)
    more = [
        (a["bytes_up"] - b["bytes_up"], a["bytes_down"] - b["bytes_down"]) for a, b in zip(phased, plain, strict=True)
    ]
    assert more == [(0, 0), *[(4 * answer, 4 * nbytes(trial.state.model))] * 2]


def test_a_query_about_parties_is_the_query_about_their_rows_together():
    config = settings("fedavg", train__rounds=1)
    context, (trial,) = ready(config)
    net, data, model = context.nets.inference, context.data, trial.state.model
    parts = [sum_query(net, data, model, rows, ClassMoments()) for rows in trial.spec.parts]
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    pooled = sum_query(net, data, model, np.concatenate(list(trial.spec.parts)), ClassMoments())
    assert torch.equal(total["rows"], pooled["rows"])
    assert gap(total, pooled) < 1e-4 * float(pooled["square"].abs().max())
    for info, part in zip(trial.spec.infos, parts, strict=True):
        assert ClassSums().contradiction(part, info) is None
        assert ClassSums().contradiction(part, info._replace(class_counts=(1,) * 10)) is not None
    fewer = sum_query(net, data, model, trial.spec.parts[0], ClassSums())
    assert same_bits(list(fewer.values()), [parts[0][k] for k in fewer])


def test_a_query_sees_rows_without_augmentation_and_in_eval_mode():
    data = some_digits()
    data = replace(data, augmentation=data.augmentation._replace(pad=2, flip=True))
    config = settings("fedavg", model__norm="batch")
    context = context_for(config, data=data)
    trial = new_trial(resolve(config, data), context)
    rows = trial.spec.parts[0]
    assert draw_plan(0, 0, 0, rows, 1, 8, data.augmentation).flips.any()
    plain = replace(data, augmentation=some_digits().augmentation)
    answers = [sum_query(context.nets.inference, d, trial.state.model, rows, ClassSums()) for d in (data, plain)]
    assert same_bits(*answers)
    with ThreadPoolExecutor(1) as pool:
        asked = dict(LocalRunner(context, pool).query(trial, ClassSums()))
    network = build(trial.spec.network).eval()
    with torch.no_grad():
        x, y = normalise(data, data.inputs[rows], torch.float32), data.labels[rows]
        out = functional_call(network, (trial.state.model.weights, trial.state.model.buffers), x)
    assert gap(asked[0], ClassSums().map(out, y)) < 1e-4, "statistics are the model's, not the batch's"


def test_evaluation_by_party_is_the_evaluation_of_the_parties_rows():
    data = some_digits()
    owner = torch.arange(len(data.test_labels)) % 3
    named = replace(data, test_party=owner, party_names=("a", "b", "c"))
    context, (trial,) = ready(settings("fedavg", train__rounds=1), data=data)
    whole = evaluate(context.nets.inference, named, trial.state.model)
    assert whole.parties is not None
    for k in range(3):
        own = replace(data, test_inputs=data.test_inputs[owner == k], test_labels=data.test_labels[owner == k])
        alone = evaluate(context.nets.inference, own, trial.state.model)
        assert whole.parties[k].tolist() == [int(alone.confusion.sum()), int(alone.confusion.diagonal().sum())]
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    total = ScoreQuery(2).map(Outputs(logits, logits, logits), torch.tensor([0, 3]))
    assert total["confusion"].tolist() == [[1, 0], [1, 0]]
    assert total["by_party"].tolist() == [[0, 1], [1, 0]]


class StopAfter(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, finished):
        return finished[0][1]["round"] == self.round


@pytest.mark.parametrize("changes", [{}, {"run__evaluate_every": 2}, {"train__patience": 3}])
def test_interrupted_and_resumed_is_never_interrupted_with_a_phase(tmp_path, changes):
    config = settings("scaffold+ccvr", train__rounds=4, **changes)
    folders = whole, parts = tmp_path / "whole", tmp_path / "parts"
    execute(*ready(config), [whole])
    for round in (1, 3):
        execute(*ready(config), [parts], resume=round > 1, callbacks=[StopAfter(round)])
    which, model = read_saved(parts).which, read_saved(parts).tensors
    assert "round 3" in which
    assert set(model) == set(read_saved(whole).tensors)
    execute(*ready(config), [parts], resume=True)
    one, two = (bits(folder)["tensors"]["final.safetensors"] for folder in folders)
    assert one == two
    for name in ("final.safetensors", "evaluation.json"):  # as if killed between the last commit and the end
        (parts / name).unlink()
    execute(*ready(config), [parts], resume=True)
    assert bits(parts)["tensors"]["final.safetensors"] == one
    assert (parts / "evaluation.json").read_text() == (whole / "evaluation.json").read_text()


def test_a_longer_run_with_a_phase_continues_a_shorter_one(tmp_path):
    short, long = (settings("fedavg+ccvr", train__rounds=rounds) for rounds in (2, 4))
    execute(*ready(short), [tmp_path / "run"])
    execute(*ready(long), [tmp_path / "run"], resume=True)
    execute(*ready(long), [tmp_path / "whole"])
    one, two = (bits(tmp_path / name)["tensors"]["final.safetensors"] for name in ("run", "whole"))
    assert one == two


def test_phases_are_named_after_a_plus_and_refused_by_name():
    assert preset_of("moon", "fednova+adam+ccvr").phases == (CCVRPhase,)
    assert preset_of("moon", "ccvr").rules[:3] == preset_of("moon").rules
    written = [{"name": "moon+adam+ccvr"}, {"name": "moon", "server": "adam+ccvr"}]
    written.append({"name": "moon+ccvr", "server": "adam"})
    assert len({make_config({"algorithm": values}).identity for values in written}) == 1
    for name, why in (
        ("ccvr", "ccvr is a phase after training and no algorithm; add it to one, for example fedavg\\+ccvr"),
        ("moon+ccvr+ccvr", "moon\\+ccvr\\+ccvr names the phase ccvr twice"),
        ("moon+ccvrr", 'no server rule or phase "ccvrr"; did you mean ccvr\\?'),
        ("solo+ccvr", "solo\\+ccvr does not fit: a phase after training changes the global model"),
        ("fedper+ccvr", "fedper\\+ccvr does not fit"),
    ):
        with pytest.raises(UserError, match=why):
            make_config({"algorithm": {"name": name}})
    with pytest.raises(UserError, match="fedavg has no setting samples \\(fedavg\\+ccvr has it\\)"):
        make_config({"algorithm": {"name": "fedavg", "samples": 3}})


def test_a_phase_in_python_and_in_a_comparison():
    algorithm = algorithm_of("moon+ccvr:samples=50,mu=5")
    assert algorithm.phases == (CCVRPhase(samples=50),)
    assert label_of(algorithm) == "moon+ccvr:mu=5,samples=50"
    assert make_config({"algorithm": as_settings(algorithm)}).algorithm.options["samples"] == 50
    _, plan = plan_comparison(["fedavg", "fedavg+ccvr", "fedavg+ccvr:samples=9"], "0", {}, None)
    assert len({trial.config.identity for trial in plan}) == 3


@dataclass(frozen=True)
class RowCount(Query):
    name = "row-count"

    def map(self, out, y):
        return {"rows": torch.ones_like(y).sum()}


@dataclass(frozen=True)
class Scale(Phase):
    query = RowCount()

    def conclude(self, state, total, rng):
        return state.model._replace(weights={k: w * int(total["rows"]) for k, w in state.model.weights.items()})


def test_phases_follow_each_other_each_on_the_model_of_the_one_before():
    context, (trial,) = ready(settings("fedavg", train__rounds=1))
    algorithm = Algorithm("mine", LocalRule(), phases=(Scale(), Scale()))
    trial = replace(trial, spec=replace(trial.spec, algorithm=algorithm))
    (trial,), _ = run([trial], context)
    rows = sum(info.rows for info in trial.spec.infos)
    assert gap(trial.current_model.weights, {k: w * rows * rows for k, w in trial.state.model.weights.items()}) < 1e-2
    with pytest.raises(NotImplementedError):
        Query().map(Outputs(*(torch.zeros(1, 2) for _ in range(3))), torch.zeros(1))
    assert Query().contradiction({}, PartyInfo(0, 1, (1,))) is None


def test_outputs_that_are_not_finite_end_the_trial_at_its_last_good_state():
    context, (trial,) = ready(settings("fedavg+ccvr"))
    data = replace(context.data, inputs=context.data.inputs.double().fill_(1e300))
    (after,), (rows,) = run([replace(trial)], context._replace(data=data))
    assert after.failure is not None
    assert "outputs of the model after round 1 are not finite" in after.failure
    assert rows == []
    assert same_bits(after.state, trial.state)
