"""Partitions: true ones, with their floor held, and the published sizes to the last row."""

import time

import numpy as np
import pytest

import moonfed
from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.data.catalog.digits import digits
from moonfed.data.partition import BETA_PARTITIONS, PARTITIONS, Split, partition, project_inputs, rows_by_party
from moonfed.data.population import IndexedRows, PartyInfos

# The class counts of the three data sets decide the sizes; no pixel is needed.
CIFAR10 = np.repeat(np.arange(10), 5000)
CIFAR100 = np.repeat(np.arange(100), 500)
TINY = np.repeat(np.arange(200), 500)
SIMULATED = set(PARTITIONS) - {"natural"}

PUBLISHED = [
    (CIFAR10, 10, 0.5, 0, [5307, 3688, 4435, 5047, 5189, 3803, 5202, 4325, 8078, 4926]),
    (CIFAR10, 10, 0.5, 1, [5936, 4204, 5805, 5297, 4988, 5343, 7495, 5158, 1980, 3794]),
    (CIFAR10, 10, 0.5, 2, [5167, 4475, 2161, 5507, 6539, 6366, 6427, 5530, 4604, 3224]),
    (CIFAR100, 10, 0.5, 0, [5118, 5109, 4629, 4766, 5107, 5280, 4878, 5051, 5001, 5061]),
    (CIFAR100, 10, 0.5, 1, [5002, 5084, 5141, 4883, 5016, 5035, 5147, 4923, 4627, 5142]),
    (CIFAR100, 10, 0.5, 2, [5008, 5105, 4218, 5188, 5252, 5071, 4840, 5061, 5158, 5099]),
    (TINY, 10, 0.5, 0, [10008, 10040, 9835, 9809, 10072, 10005, 10145, 10078, 10004, 10004]),
    (CIFAR100, 10, 0.1, 0, [5437, 5210, 4744, 5353, 5040, 3634, 5026, 5200, 5230, 5126]),
    (CIFAR100, 10, 5.0, 0, [4942, 5010, 5026, 5011, 5032, 4894, 4920, 5093, 5035, 5037]),
]


def counts_of(labels, parts, classes):
    return [list(info.class_counts) for info in PartyInfos(IndexedRows(parts, labels, classes))]


def sizes(labels, parties, beta, seed):
    return [len(part) for part in partition("dirichlet", labels, Split(parties, beta, 2, 10, seed))]


@pytest.mark.parametrize(("labels", "parties", "beta", "seed", "published"), PUBLISHED)
def test_dirichlet_gives_the_published_sizes(labels, parties, beta, seed, published):
    assert sizes(labels, parties, beta, seed) == published


@pytest.mark.parametrize(("parties", "low", "high"), [(50, 824, 1130), (100, 324, 610)])
def test_dirichlet_gives_the_published_range_for_many_parties(parties, low, high):
    found = sizes(CIFAR100, parties, 0.5, 0)
    assert (min(found), max(found), sum(found)) == (low, high, 50_000)


def test_dirichlet_gives_the_published_class_counts_and_batches():
    parts = partition("dirichlet", CIFAR10, Split(10, 0.5, 2, 10, 0))
    counts = counts_of(CIFAR10, parts, 10)
    assert counts[0] == [953, 142, 141, 75, 695, 819, 0, 2482, 0, 0]
    assert counts[8] == [1127, 153, 680, 500, 698, 1139, 92, 23, 1, 3665]
    assert sum(len(part) // 64 for part in parts) == 776


@pytest.mark.parametrize(("labels", "std"), [(CIFAR10, 1165), (CIFAR100, 181), (TINY, 99)])
def test_table_6_prints_the_standard_deviations_of_split_0(labels, std):
    assert float(np.std(sizes(labels, 10, 0.5, 0))) == pytest.approx(std, abs=0.5)


@pytest.mark.parametrize("seed", [1, 2])
def test_table_6_is_no_other_split(seed):
    assert abs(float(np.std(sizes(CIFAR10, 10, 0.5, seed))) - 1165) > 100


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", sorted(SIMULATED))
def test_every_row_goes_to_exactly_one_party_and_the_floor_holds(kind, seed):
    labels = digits().labels.numpy()
    parts = partition(kind, labels, Split(8, 0.3, 3, 12, seed, inputs=digits().inputs.numpy()))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert min(len(part) for part in parts) >= 12


@pytest.mark.parametrize("kind", sorted(SIMULATED))
def test_a_split_is_decided_by_its_seed(kind):
    labels, inputs = digits().labels.numpy(), digits().inputs.numpy()
    one, same, other = (partition(kind, labels, Split(5, 0.5, 2, 10, seed, inputs=inputs)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_shards_give_each_party_k_classes_and_leave_no_class_out():
    labels = digits().labels.numpy()
    for parties, k in ((10, 2), (5, 2), (7, 3), (20, 1)):
        counts = np.array(counts_of(labels, partition("shards", labels, Split(parties, 0.5, k, 1, 0)), 10))
        assert ((counts > 0).sum(1) == k).all()
        holders = (counts > 0).sum(0)
        assert holders.min() >= 1
        assert holders.max() - holders.min() <= 1


def test_iid_is_one_legacy_permutation_dealt_out_evenly():
    parts = partition("iid", CIFAR10, Split(3, 0.5, 2, 10, 7))
    expected = np.array_split(np.random.RandomState(7).permutation(50_000), 3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, expected, strict=True))


def test_quantity_skews_sizes_and_not_classes():
    parts = partition("quantity", CIFAR10, Split(10, 0.5, 2, 500, 0))
    found = [len(part) for part in parts]
    assert max(found) > 3 * min(found)
    shares = np.array(counts_of(CIFAR10, parts, 10)) / np.array(found)[:, None]
    assert abs(shares - 0.1).max() < 0.05


def test_the_published_cap_evens_out_what_the_pure_split_does_not():
    capped, pure = (
        np.std([len(part) for part in partition(kind, CIFAR100, Split(10, 0.1, 2, 10, 0))])
        for kind in ("dirichlet", "dirichlet-pure")
    )
    assert pure > 1.5 * capped


@pytest.mark.parametrize("kind", BETA_PARTITIONS)
@pytest.mark.parametrize("beta", [0.001, 1e-9])
def test_a_floor_that_cannot_be_held_is_an_error_and_not_a_loop(kind, beta):
    began = time.monotonic()
    with pytest.raises(UserError, match=r"found no split in 1000 draws .* 40 parties 30 rows"):
        partition(kind, digits().labels.numpy(), Split(40, beta, 2, 30, 0, inputs=digits().inputs.numpy()))
    assert time.monotonic() - began < 60  # it ends at all; how fast is not the point


def test_more_rows_asked_for_than_there_are_is_said_before_any_draw():
    with pytest.raises(UserError, match=r"need 1500 rows, the data has 1415; use --parties 141 or fewer"):
        partition("iid", digits().labels.numpy(), Split(150, 0.5, 2, 10, 0))


def test_shards_that_would_leave_a_class_out_are_refused():
    with pytest.raises(UserError, match=r"no class is left out, got 3 x 2"):
        partition("shards", digits().labels.numpy(), Split(3, 0.5, 2, 1, 0))


def test_rows_are_grouped_by_party_in_their_order_also_where_a_party_has_none():
    rng = np.random.default_rng(0)
    whose, order = rng.integers(0, 9, size=200), rng.permutation(200)[:150]
    whose[whose == 4] = 5
    for party, rows in enumerate(rows_by_party(order, whose, 11)):
        assert rows.tolist() == [row for row in order if whose[row] == party]


def test_a_natural_split_gives_each_party_the_rows_that_are_its_own():
    whose = np.array([2, 0, 1, 0, 2, 2])
    parts = partition("natural", np.array([0, 1, 0, 1, 0, 1]), Split(3, 0.5, 2, 1, 0, whose))
    assert [part.tolist() for part in parts] == [[1, 3], [2], [0, 4, 5]]
    with pytest.raises(UserError, match="use --data PATH with --party COLUMN"):
        partition("natural", np.array([0, 1]), Split(1, 0.5, 2, 1, 0))


# Ten classes that say nothing of the inputs, and six inputs on scales of their own.
NOISE = generator(0, "test", "feature-skew")
INPUTS = (NOISE.normal(size=(4000, 6)) * [1, 10, 100, 1e-3, 1, 1] + 5).reshape(4000, 2, 3)
CLASSES = NOISE.integers(0, 10, 4000)


def between(parts):
    """Variance of the parties' means, over all standardised inputs."""
    flat = INPUTS.reshape(len(INPUTS), -1)
    flat = (flat - flat.mean(0)) / flat.std(0)
    return sum(len(part) / len(flat) * float((flat[part].mean(0) ** 2).sum()) for part in parts)


def label_skew(parts):
    """Mean distance of a party's class shares from those of all rows."""
    shares = np.bincount(CLASSES, minlength=10) / len(CLASSES)
    counts = np.array(counts_of(CLASSES, parts, 10))
    return float(np.abs(counts / counts.sum(1, keepdims=True) - shares).sum(1).mean() / 2)


def feature_splits(beta):
    return [partition("feature-skew", CLASSES, Split(6, beta, 2, 10, seed, inputs=INPUTS)) for seed in range(8)]


def test_a_smaller_beta_sets_the_inputs_of_parties_further_apart():
    strong, middle, weak = (np.mean([between(parts) for parts in feature_splits(beta)]) for beta in (0.1, 0.5, 5))
    even = between(partition("iid", CLASSES, Split(6, 0.5, 2, 10, 0)))
    assert strong > 1.5 * middle > 4 * weak > 4 * even


def test_feature_skew_leaves_class_shares_even_where_classes_say_nothing_of_the_inputs():
    by_feature = max(label_skew(parts) for parts in feature_splits(0.1))
    by_class = partition("dirichlet", CLASSES, Split(6, 0.1, 2, 10, 0))
    assert label_skew(by_class) > 5 * by_feature
    assert between(by_class) < 0.1 * np.mean([between(parts) for parts in feature_splits(0.1)])


def test_feature_skew_depends_on_no_unit_and_no_constant_input():
    padded = np.concatenate([1000 * INPUTS.reshape(4000, 6) - 7, np.full((4000, 1), 3.0)], axis=1)
    one, other = project_inputs(INPUTS, generator(1, "a")), project_inputs(padded, generator(1, "a"))
    assert one == pytest.approx(other, abs=1e-6)
    images = digits().inputs.numpy()
    assert images.dtype == np.uint8
    as_floats = images.astype(np.float64)
    assert (project_inputs(images, generator(1, "a")) == project_inputs(as_floats, generator(1, "a"))).all()


def test_feature_skew_orders_equal_rows_at_random():
    order = np.repeat([0, 1], 200)  # sorted by class, as many files are
    inputs = np.ones((400, 3))
    inputs[0] = 2  # all others are equal
    parts = partition("feature-skew", order, Split(4, 0.1, 2, 10, 0, inputs=inputs))
    shares = [float(order[part].mean()) for part in parts]
    assert min(shares) > 0.25
    assert max(shares) < 0.75


def test_feature_skew_needs_numbers_and_says_so():
    with pytest.raises(UserError, match="feature-skew needs the numbers of each row, got labels alone"):
        partition("feature-skew", CLASSES, Split(6, 0.5, 2, 10, 0))
    with pytest.raises(
        UserError, match=r"one entry for each of 100 labels, got an array of float64 of shape \(99, 1\)"
    ):
        moonfed.partition([0, 1] * 50, parties=2, kind="feature-skew", inputs=np.zeros((99, 1)))
    parts = moonfed.partition([0, 1] * 50, parties=2, kind="feature-skew", inputs=np.arange(100))
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))


@pytest.mark.parametrize("inputs", [np.full((100, 3), 0.1), np.zeros((100, 2)), np.full(100, 1e300), np.ones((100, 0))])
def test_feature_skew_refuses_inputs_that_are_the_same_in_every_row(inputs):
    with pytest.raises(UserError, match="feature-skew needs an input that varies, each is the same in all 100 rows"):
        moonfed.partition([0, 1] * 50, parties=2, kind="feature-skew", inputs=inputs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("power", [1000, -1000])
def test_feature_skew_of_inputs_near_the_limits_of_numbers_is_that_of_usual_ones(power):
    usual = INPUTS.reshape(4000, 6)
    extreme = usual.copy()
    extreme[:, ::2] = np.ldexp(usual[:, ::2], power)
    assert (project_inputs(extreme, generator(1, "a")) == project_inputs(usual, generator(1, "a"))).all()


def test_inputs_of_rows_of_different_lengths_are_refused_in_one_line():
    with pytest.raises(UserError, match="equally many numbers in each row, got rows of different lengths") as caught:
        moonfed.partition([0, 1] * 50, parties=2, kind="feature-skew", inputs=[[1.0], [1.0, 2.0]] * 50)
    assert "\n" not in str(caught.value)
