"""CCVR: moments from sums of any split, samples that have them, and an output layer retrained on the samples."""

import numpy as np
import pytest
import torch
from worlds import gap, ready, run, run_one, same_bits, settings

from moonfed.core.phase import ClassMoments
from moonfed.core.seeds import generator
from moonfed.core.tree import add, leaves
from moonfed.core.types import Outputs, Snapshot, State
from moonfed.phases.ccvr import CCVRPhase, draw, moments
from moonfed.training.evaluate import evaluate

CLASSES, WIDTH = 3, 4


def outputs(z: torch.Tensor, classes: int = CLASSES) -> Outputs:
    return Outputs(z, z, z.new_zeros(len(z), classes))


def some_rows(rows: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    rng = generator(0, "tests", "phases")
    z = torch.from_numpy(rng.normal(size=(rows, WIDTH))) @ torch.from_numpy(rng.normal(size=(WIDTH, WIDTH)))
    return z + 2, torch.from_numpy(rng.integers(0, CLASSES, size=rows))


def summed(z: torch.Tensor, y: torch.Tensor, *cuts: int) -> dict[str, torch.Tensor]:
    """The moments of rows that are cut into parties."""
    query, total = ClassMoments(), {}
    for z_i, y_i in zip(z.tensor_split(cuts), y.tensor_split(cuts), strict=True):
        part = query.map(outputs(z_i), y_i)
        total = add(total, part) if total else part
    return total


def head_of(width: int = WIDTH, classes: int = CLASSES) -> State:
    rng = generator(1, "tests", "phases")
    weights = {"head.weight": torch.from_numpy(rng.normal(size=(classes, width))), "head.bias": torch.zeros(classes)}
    return State(Snapshot({k: v.float() for k, v in weights.items()}, {}), {}, {})


def test_sums_of_any_split_are_the_sums_of_the_pooled_rows():
    z, y = some_rows()
    whole = summed(z, y)
    assert whole["rows"].tolist() == torch.bincount(y, minlength=CLASSES).tolist()
    for cuts in ([1], [1, 2, 3, 40], list(range(1, 50))):
        split = summed(z, y, *cuts)
        assert torch.equal(split["rows"], whole["rows"])
        assert gap(split, whole) < 1e-12


def test_moments_are_the_papers_formula_of_the_parties_means_and_covariances():
    """Sigma = sum (n_i - 1)/(N - 1) Sigma_i + sum n_i/(N - 1) mu_i mu_i^T - N/(N - 1) mu mu^T, Sigma_i unbiased."""
    z, y = some_rows()
    mean, covariance = moments(summed(z, y, 17, 30))
    for k in range(CLASSES):
        parts = [
            z_i[y_i == k].numpy() for z_i, y_i in zip(z.tensor_split([17, 30]), y.tensor_split([17, 30]), strict=True)
        ]
        n, means = [len(part) for part in parts], [part.mean(0) for part in parts]
        whole, mu = sum(n), sum(n_i * mu_i for n_i, mu_i in zip(n, means, strict=True)) / sum(n)
        sigma = -whole / (whole - 1) * np.outer(mu, mu)
        for n_i, mu_i, part in zip(n, means, parts, strict=True):
            sigma += (n_i - 1) / (whole - 1) * np.cov(part.T) + n_i / (whole - 1) * np.outer(mu_i, mu_i)
        assert np.abs(mean[k].numpy() - mu).max() < 1e-12
        assert np.abs(covariance[k].numpy() - sigma).max() < 1e-12


def test_a_class_whose_rows_are_all_equal_has_no_covariance_and_its_samples_are_its_mean():
    z = torch.tensor([[0.5, -2.0, 0.25, 8.0]]).repeat(7, 1)
    total = summed(z, torch.full((7,), 1))
    mean, covariance = moments(total)
    assert not covariance.any()
    samples = draw(mean, covariance, [0, 5, 0], generator(0, "x"), torch.float64)
    assert torch.equal(samples, z[:5].double())


def test_a_class_with_a_single_row_has_no_covariance_and_needs_no_special_case():
    z, y = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0], [2.0, 1.0, 2.0, 1.0]]), torch.tensor([2, 0, 0])
    mean, covariance = moments(summed(z, y))
    assert torch.equal(mean[2], z[0].double())
    assert not covariance[2].any()
    assert covariance[0].any()


def test_samples_have_the_moments_they_are_drawn_from_also_where_the_covariance_is_singular():
    z = torch.cat([torch.from_numpy(generator(2, "z").normal(size=(2, WIDTH)) * 3), torch.ones(1, WIDTH)])
    total = ClassMoments().map(outputs(z, 1), torch.zeros(3, dtype=torch.int64))  # 3 rows in 4 dimensions: rank 2
    mean, covariance = moments(total)
    samples = draw(mean, covariance, [40_000], generator(0, "x"), torch.float64)
    assert torch.linalg.matrix_rank(covariance[0], rtol=1e-10) == 2
    assert torch.linalg.matrix_rank(samples - samples.mean(0), rtol=1e-6) == 2
    assert float((samples.mean(0) - mean[0]).abs().max()) < 0.1
    assert float((samples.T.cov() - covariance[0]).abs().max()) < 0.3


def test_without_epochs_the_model_is_the_uncalibrated_one_to_the_bit_and_with_them_only_the_output_layer_moves():
    plain = run_one(settings("moon"))
    still = run_one(settings("moon+ccvr", algorithm__head_epochs=0))
    assert same_bits(still.current_model, plain.state.model)
    trial = run_one(settings("moon+ccvr"))
    moved = {k for k, w in trial.current_model.weights.items() if not torch.equal(w, trial.state.model.weights[k])}
    assert moved == {"head.weight", "head.bias"}


def test_one_step_is_that_of_sgd_on_the_mean_cross_entropy_of_the_samples():
    z, y = some_rows()
    state, total = head_of(), summed(z.float(), y)
    phase = CCVRPhase(samples=20, head_epochs=2, head_batch=1000, head_lr=0.5, head_momentum=0.9)
    model = phase.conclude(state, total, generator(3, "x"))
    samples = draw(*moments(total), [20] * CLASSES, generator(3, "x"), torch.float32)
    labels = torch.arange(CLASSES).repeat_interleave(20)
    weight, bias = (w.clone().requires_grad_() for w in state.model.weights.values())
    sgd = torch.optim.SGD([weight, bias], lr=0.5, momentum=0.9)
    for _ in range(2):
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(samples @ weight.T + bias, labels).backward()
        sgd.step()
    assert gap(model.weights, {"head.weight": weight.detach(), "head.bias": bias.detach()}) < 1e-5


def test_an_epoch_passes_over_all_samples_in_batches_in_an_order_of_its_own():
    z, y = some_rows()
    state, total, rng = head_of(), summed(z.float(), y), generator(3, "x")
    phase = CCVRPhase(samples=20, head_epochs=2, head_batch=25, head_lr=0.5, head_momentum=0.9)
    model = phase.conclude(state, total, generator(3, "x"))
    samples = draw(*moments(total), [20] * CLASSES, rng, torch.float32)
    labels = torch.arange(CLASSES).repeat_interleave(20)
    weight, bias = (w.clone().requires_grad_() for w in state.model.weights.values())
    sgd = torch.optim.SGD([weight, bias], lr=0.5, momentum=0.9)
    for order in [torch.as_tensor(rng.permutation(60)) for _ in range(2)]:
        for batch in order.split(25):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(samples[batch] @ weight.T + bias, labels[batch]).backward()
            sgd.step()
    assert gap(model.weights, {"head.weight": weight.detach(), "head.bias": bias.detach()}) < 1e-5


def test_a_class_that_nobody_has_is_not_drawn_and_samples_may_follow_the_rows():
    rows = torch.tensor([30.0, 0.0, 10.0])
    assert CCVRPhase(samples=100).class_samples(rows) == [100, 0, 100]
    assert CCVRPhase(samples=100, prior="rows").class_samples(rows) == [150, 0, 50]
    rare = torch.tensor([10_000.0, 1.0])
    assert CCVRPhase(samples=100, prior="rows").class_samples(rare) == [200, 1], "a class with rows has a sample"
    z, y = some_rows()
    model = CCVRPhase(samples=10).conclude(head_of(), summed(z[y != 1].float(), y[y != 1]), generator(0, "x"))
    assert all(torch.isfinite(weight).all() for weight in model.weights.values())


def test_conclude_leaves_its_inputs_and_torchs_generators_untouched():
    z, y = some_rows()
    state, total = head_of(), summed(z.float(), y)
    before, stream = [leaf.clone() for leaf in leaves((state, total))], torch.get_rng_state()
    one, two = (CCVRPhase(samples=50).conclude(state, total, generator(0, "x")) for _ in range(2))
    assert same_bits(one, two)
    assert same_bits(before, leaves((state, total)))
    assert torch.equal(stream, torch.get_rng_state())


@pytest.mark.trains
def test_ccvr_changes_less_where_parties_have_the_same_classes_than_where_they_do_not():
    """The share of test rows whose predicted class stays: 0.87 or more, and 0.1 or more apart, with seeds 0 to 5."""
    kept = []
    for partition in ("iid", "shards"):
        changes = {"data__partition": partition, "train__rounds": 15, "train__epochs": 2, "run__evaluate_every": 15}
        context, trials = ready(settings("fedavg+ccvr", data__parties=5, **changes))
        (trial,), _ = run(trials, context)
        models = trial.state.model, trial.current_model
        scores = [evaluate(context.nets.inference, context.data, model, keep_logits=True).logits for model in models]
        before, after = (logits.argmax(1) for logits in scores if logits is not None)
        kept.append(float((before == after).double().mean()))
    assert kept[0] > 0.8
    assert kept[0] > kept[1] + 0.05
