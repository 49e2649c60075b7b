"""Methods against label skew: their reductions, values computed by hand, and what they must not do."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from worlds import gap, ready, run, run_one, same_bits, settings, step_context

from moonfed.algorithms.balanced_softmax import BalancedSoftmaxLocal
from moonfed.algorithms.fedlc import FedLCLocal
from moonfed.algorithms.fedlmd import FedLMDLocal
from moonfed.algorithms.fedntd import FedNTDLocal
from moonfed.algorithms.fedrs import FedRSLocal
from moonfed.algorithms.fedvls import FedVLSLocal
from moonfed.core.rules import LocalRule
from moonfed.core.types import Outputs
from moonfed.training.runner import make_jobs

OFF = [
    ("fedntd", {"beta": 0.0}),
    ("fedlmd", {"beta": 0.0}),
    ("fedlmd", {"beta": 0.0, "teacher": "none"}),
    ("feddecorr", {"beta": 0.0}),
    ("fedlc", {"margin": 0.0}),
    ("fedrs", {"alpha": 1.0}),
]
ON = [(name, {}) for name in ("fedntd", "fedlmd", "fedvls", "feddecorr", "fedlc", "fedrs", "balanced-softmax")]
ON.append(("fedlmd", {"teacher": "none"}))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize(("name", "off"), OFF)
def test_a_method_with_its_term_off_is_fedavg_to_the_bit(name, off, engine):
    changes = {f"algorithm__{key}": value for key, value in off.items()}
    plain, method = (run_one(settings(n, **c), engine) for n, c in (("fedavg", {}), (name, changes)))
    assert same_bits(plain.state.model, method.state.model)


@pytest.mark.parametrize(("name", "chosen"), ON)
def test_a_method_with_its_term_on_is_not_fedavg_and_engines_agree_on_it(name, chosen, float64):
    config = settings(name, train__rounds=2, **{f"algorithm__{key}": value for key, value in chosen.items()})
    one, two = (run_one(config, engine).state.model for engine in ("sequential", "stacked"))
    assert gap(one, two) < 1e-9 < gap(one, run_one(settings("fedavg", train__rounds=2)).state.model)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_fedvls_without_distillation_and_suppression_is_balanced_softmax_to_the_bit(engine):
    off = {"algorithm__distillation": 0.0, "algorithm__suppression": 0.0}
    balanced, fedvls = (run_one(settings(n, **c), engine) for n, c in (("balanced-softmax", {}), ("fedvls", off)))
    assert same_bits(balanced.state.model, fedvls.state.model)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize(
    ("plain", "distilled"),
    [(LocalRule(), FedNTDLocal()), (BalancedSoftmaxLocal(), FedVLSLocal(distillation=5.0, suppression=0.0))],
)
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
def test_the_first_step_of_every_round_is_the_one_without_distillation(plain, distilled, engine, norm, float64):
    """The local model is still the global one; the second step differs.

    With BatchNorm the first step differs too: the global model runs with its own statistics, the local one with those
    of the batch.
    """
    context, trials = ready(settings("fedavg", train__rounds=2, model__norm=norm), engine)
    (trial,), _ = run(trials, context)
    for steps in (1, 2):
        jobs = [replace(j, plan=type(j.plan)(*(part[:steps] for part in j.plan))) for j in make_jobs(trial, context)]
        ends = [
            [done.upload.delta for done in context.engine.run_cohort([replace(job, local=rule) for job in jobs])]
            for rule in (plain, distilled)
        ]
        assert (gap(*ends) < 1e-12) == (steps == 1 and norm != "batch")


def rows(*logits):
    values = torch.tensor(logits, dtype=torch.float64)
    return Outputs(values, values, values)


def parts(rule, out, labels, counts=(1, 1, 1), teacher=None):
    """The parts of a rule's loss for rows of three classes."""
    anchors = {"global": teacher or out}
    ctx = step_context({"w": torch.zeros((), dtype=torch.float64)}, anchors, class_counts=counts)
    return {k: float(v) for k, v in rule.loss(out, torch.tensor(labels), ctx).items()}


def test_not_true_distillation_by_hand():
    """Global (., 0, 0), local (., ln 3, 0), true class 0: KL of (1/2, 1/2) and (3/4, 1/4), whatever class 0 has."""
    teacher = rows((5.0, 0.0, 0.0))
    for true_score in (-3.0, 0.0, 40.0):
        found = parts(FedNTDLocal(beta=2.0), rows((true_score, math.log(3), 0.0)), [0], teacher=teacher)
        assert found["distillation"] == pytest.approx(2 * (math.log(2) - math.log(3) / 2))
    shifted = parts(FedNTDLocal(), rows((0.0, 7 + math.log(3), 7.0)), [0], teacher=teacher)
    assert shifted["distillation"] == pytest.approx(math.log(2) - math.log(3) / 2), "a constant changes nothing"


def test_a_local_model_that_equals_the_global_one_is_not_moved_by_distillation():
    """FedLMD's too, where no class has a majority; else its teacher and its student hide different classes."""
    scores, other = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even, vacant = (3, 3, 3, 3), (4, 0, 0, 2)
    for rule, counts in ((FedNTDLocal(), vacant), (FedLMDLocal(), even), (FedVLSLocal(suppression=0.0), vacant)):
        for teacher in (scores, other):
            moving = scores.clone().requires_grad_()
            anchors = {"global": Outputs(teacher, teacher, teacher)}
            ctx = step_context({"w": scores[0, 0]}, anchors, class_counts=counts)
            found = rule.loss(Outputs(moving, moving, moving), torch.tensor([0, 3, 0, 0]), ctx)["distillation"]
            (push,) = torch.autograd.grad(found, moving)
            assert (abs(float(found.detach())) < 1e-12) == (teacher is scores)
            assert (float(push.abs().max()) < 1e-12) == (teacher is scores)


def test_the_distillation_is_the_mean_over_rows_times_the_squared_temperature():
    """At tau 2 scores of 2 ln 3 and 0 are (3/4, 1/4) again, so KL as above; the second row agrees with the teacher."""
    teacher, out = rows((5.0, 8.0, 8.0), (1.0, 2.0, 9.0)), rows((0.0, 2 * math.log(3), 0.0), (4.0, 5.0, -6.0))
    found = parts(FedNTDLocal(temperature=2.0), out, [0, 2], teacher=teacher)
    assert found["distillation"] == pytest.approx(2**2 * (math.log(2) - math.log(3) / 2) / 2)


@pytest.mark.parametrize("rule", [FedNTDLocal, FedLMDLocal])
def test_a_small_temperature_makes_the_distillation_large_and_never_hides_a_class(rule):
    """Scores (-12, -15) over a teacher's (0, 0), divided by tau: KL tends to 3 / (2 tau), and tau^2 remains."""
    teacher, out = rows((0.0, -12.0, -12.0)), rows((0.0, -12.0, -15.0))
    for tau in (1e-2, 1e-3, 1e-4):
        found = parts(rule(temperature=tau), out, [0], (5, 5, 5), teacher)["distillation"]
        assert found == pytest.approx(tau * 3 / 2, rel=2e-2)


def test_with_two_classes_there_is_nothing_to_distil():
    out, teacher = rows((1.0, 5.0)), rows((3.0, -2.0))
    assert parts(FedNTDLocal(), out, [0], (1, 1), teacher)["distillation"] == pytest.approx(0.0, abs=1e-12)


def test_label_masking_is_not_true_distillation_where_no_class_has_a_majority():
    out, teacher = rows((1.0, 2.0, 0.5), (0.0, 1.0, 3.0)), rows((0.0, 2.0, 1.0), (1.0, 1.0, 0.0))
    ntd, lmd = (parts(rule, out, [0, 2], (5, 5, 5), teacher) for rule in (FedNTDLocal(), FedLMDLocal()))
    assert lmd == pytest.approx(ntd)


def test_label_masking_hides_majority_classes_of_the_teacher():
    """Counts (8, 1, 0): class 0 has the majority. For a row of class 1 the teacher keeps class 2: KL = -log l_2."""
    out, teacher = rows((0.0, 9.0, math.log(3))), rows((4.0, 1.0, -2.0))
    found = parts(FedLMDLocal(), out, [1], (8, 1, 0), teacher)["distillation"]
    assert found == pytest.approx(-math.log(3 / 4))
    free = parts(FedLMDLocal(teacher="none"), out, [1], (8, 1, 0))["distillation"]
    assert free == pytest.approx(found), "with one class left an even teacher is the same"


def test_without_a_teacher_classes_at_most_as_frequent_as_the_mean_are_even():
    """Counts (5, 4, 0, 0) have the mean 2.25: (1/2, 1/2) over classes 2 and 3; local (4, 3, 1) / 8 without class 0."""
    out = rows((7.0, math.log(4), math.log(3), 0.0))
    found = parts(FedLMDLocal(teacher="none"), out, [0], (5, 4, 0, 0))["distillation"]
    assert found == pytest.approx(math.log(16 / 3) / 2)


def test_label_masking_divides_teacher_and_student_by_the_temperature_and_multiplies_by_its_square():
    """At tau 2, counts (5, 4, 0, 0): teacher (3/4, 1/4) over classes 2 and 3, local (4, 3, 1) / 8: KL = ln 2."""
    out, teacher = rows((7.0, 2 * math.log(4), 2 * math.log(3), 0.0)), rows((1.0, 2.0, 2 * math.log(3), 0.0))
    found = parts(FedLMDLocal(temperature=2.0), out, [0], (5, 4, 0, 0), teacher)["distillation"]
    assert found == pytest.approx(4 * math.log(2))


@pytest.mark.parametrize(("rule", "counts"), [(FedLMDLocal(), (9, 1)), (FedVLSLocal(), (5, 5))])
def test_a_row_whose_teacher_has_no_class_left_counts_and_pushes_nothing(rule, counts):
    scores = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    ctx = step_context({"w": scores[0, 0].detach()}, {"global": rows((3.0, 1.0))}, class_counts=counts)
    found = rule.loss(Outputs(scores, scores, scores), torch.tensor([1]), ctx)["distillation"]
    assert float(found.detach()) == 0.0
    assert torch.autograd.grad(found, scores)[0].tolist() == [[0.0, 0.0]]


def test_one_row_of_a_class_is_enough_to_hold_it():
    out, teacher = rows((1.0, 2.0, 4.0)), rows((0.0, 3.0, 1.0))
    plain = float(cross_entropy(out.logits, torch.tensor([0])))
    assert parts(FedRSLocal(), out, [0], (6, 3, 1))["supervised"] == pytest.approx(plain)
    assert parts(FedVLSLocal(), out, [0], (6, 1, 1), teacher)["distillation"] == 0.0
    assert parts(FedVLSLocal(), out, [0], (6, 0, 0), teacher)["distillation"] > 0.01


def test_equal_class_counts_leave_cross_entropy_as_it_is():
    out, labels = rows((1.0, 2.0, 0.5), (0.0, 1.0, 3.0)), [0, 2]
    plain = float(cross_entropy(out.logits, torch.tensor(labels)))
    for rule in (BalancedSoftmaxLocal(), FedLCLocal(), FedRSLocal(), FedVLSLocal()):
        assert parts(rule, out, labels, (7, 7, 7))["supervised"] == pytest.approx(plain)
    teacher = rows((3.0, 0.0, 1.0), (2.0, 5.0, 0.0))
    assert parts(FedVLSLocal(), out, labels, (7, 7, 7), teacher)["distillation"] == 0.0, "no class is vacant"


def test_a_party_with_one_class_learns_nothing_from_calibrated_scores():
    out = rows((0.5, 1.0, -1.0))
    for rule in (BalancedSoftmaxLocal(), FedLCLocal()):
        assert parts(rule, out, [0], (6, 0, 0))["supervised"] < 1e-7


def test_calibrated_scores_of_a_party_with_one_class_push_nowhere():
    for rule in (BalancedSoftmaxLocal(), FedLCLocal()):
        scores = torch.tensor([[0.5, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
        ctx = step_context({"w": scores[0, 0].detach()}, class_counts=(6, 0, 0))
        loss = rule.loss(Outputs(scores, scores, scores), torch.tensor([0]), ctx)["supervised"]
        assert float(torch.autograd.grad(loss, scores)[0].abs().max()) < 1e-7


def test_how_far_rare_and_vacant_classes_are_moved():
    """Even scores, counts 5000, 1 and 0: losses differ as the scores do, by ln 5000, 1 - 5000^(-1/4) and the floors."""
    even, counts = rows((0.0, 0.0, 0.0)), (5000, 1, 0)
    balanced, margins = (
        [parts(rule, even, [k], counts)["supervised"] for k in range(3)]
        for rule in (BalancedSoftmaxLocal(), FedLCLocal())
    )
    assert balanced[1] - balanced[0] == pytest.approx(8.517, abs=1e-3)
    assert balanced[2] - balanced[0] == pytest.approx(20.723, abs=1e-3)
    assert margins[1] - margins[0] == pytest.approx(0.881, abs=1e-3)
    assert margins[2] - margins[1] == pytest.approx(99.0)


def test_fedlc_without_a_margin_is_cross_entropy_also_where_classes_are_vacant():
    out = rows((1.0, 2.0, 0.5))
    plain = float(cross_entropy(out.logits, torch.tensor([0])))
    assert parts(FedLCLocal(margin=0.0), out, [0], (4, 0, 2))["supervised"] == plain


def test_fedrs_with_alpha_0_fixes_vacant_scores_at_0():
    scores = torch.tensor([[1.0, 2.0, 40.0]], dtype=torch.float64, requires_grad=True)
    ctx = step_context({"w": scores[0, 0].detach()}, class_counts=(3, 5, 0))
    loss = FedRSLocal(alpha=0.0).loss(Outputs(scores, scores, scores), torch.tensor([0]), ctx)["supervised"]
    assert float(loss.detach()) == pytest.approx(math.log(1 + math.e + 1 / math.e))
    push = torch.autograd.grad(loss, scores)[0][0].tolist()
    assert push[2] == 0.0 < push[1]


def test_calibrated_scores_by_hand():
    """Scores 0, 0, 0 and counts (6, 3, 1): balanced -log 0.6 for class 0; a margin of 16^(-1/4) = 1/2 for 16 rows."""
    even = rows((0.0, 0.0, 0.0))
    assert parts(BalancedSoftmaxLocal(), even, [0], (6, 3, 1))["supervised"] == pytest.approx(-math.log(0.6))
    found = parts(FedLCLocal(margin=2.0), even, [0], (16, 1, 1))["supervised"]  # scores -1, -2, -2
    assert found == pytest.approx(math.log(1 + 2 / math.e))
    found = parts(FedRSLocal(alpha=0.5), rows((1.0, 2.0, 4.0)), [0], (3, 5, 0))["supervised"]  # over 1, 2, 2
    assert found == pytest.approx(math.log(1 + 2 * math.e))


def test_vacant_classes_are_distilled_among_themselves():
    """Classes 1 and 2 are vacant; global (., 0, 0), local (., ln 3, 0): as by hand above, whatever class 0 has."""
    found = parts(FedVLSLocal(distillation=1.0), rows((8.0, math.log(3), 0.0)), [0], (4, 0, 0), rows((1.0, 0.0, 0.0)))
    assert found["distillation"] == pytest.approx(math.log(2) - math.log(3) / 2)


def test_the_distillation_of_vacant_classes_is_a_mean_over_the_rows_of_a_batch():
    """As above, and a second row that agrees with the global model."""
    scores, teacher = rows((8.0, math.log(3), 0.0), (2.0, 5.0, 5.0)), rows((1.0, 0.0, 0.0), (4.0, 1.0, 1.0))
    found = parts(FedVLSLocal(distillation=1.0), scores, [0, 0], (4, 0, 0), teacher)
    assert found["distillation"] == pytest.approx((math.log(2) - math.log(3) / 2) / 2)


def test_suppression_is_the_formula_of_the_authors_code():
    """Two rows of classes 0 and 1, counts (1, 1): pi = 1/2, so the exponent is logit + ln 2 - ln 2 = logit."""
    found = parts(FedVLSLocal(suppression=1.0), rows((3.0, 1.0), (2.0, 5.0)), [0, 1], (1, 1))["suppression"]
    by_hand = 0.5 * math.log((1 + math.exp(2.0)) / 2) + 0.5 * math.log((math.exp(1.0) + 1) / 2)
    assert found == pytest.approx(by_hand, rel=1e-6)


def test_suppression_weighs_classes_by_their_share_and_subtracts_the_log_prior_and_the_number_of_classes():
    """Counts (3, 1, 0): exponents 2 - ln 3/4 - ln 3 for class 0, 1 - ln 1/4 - ln 3 for class 1; class 2 weighs 0."""
    scores = torch.tensor([[3.0, 1.0, 2.0], [2.0, 5.0, -1.0]], dtype=torch.float64, requires_grad=True)
    ctx = step_context({"w": scores[0, 0].detach()}, {"global": rows((0.0,) * 3, (0.0,) * 3)}, class_counts=(3, 1, 0))
    out = Outputs(scores, scores, scores)
    found = FedVLSLocal(suppression=1.0).loss(out, torch.tensor([0, 1]), ctx)["suppression"]
    first, second = math.exp(2) / (0.75 * 3), math.exp(1) / (0.25 * 3)
    by_hand = 0.75 * math.log((1 + first) / 2) + 0.25 * math.log((1 + second) / 2)
    assert float(found.detach()) == pytest.approx(by_hand, rel=1e-6)
    push = torch.autograd.grad(found, scores)[0]
    assert push[1, 0].item() == pytest.approx(0.75 * first / (1 + first), rel=1e-6)
    assert push[0, 1].item() == pytest.approx(0.25 * second / (1 + second), rel=1e-6)
    assert push[0, 0].item() == push[1, 1].item() == 0.0
