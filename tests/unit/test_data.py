"""Data: what is embedded, what a plan draws, and augmentation against a slow reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from moonfed.core import seeds
from moonfed.core.seeds import generator, seed_for
from moonfed.data.augment import gather, normalise
from moonfed.data.batches import BatchPlan, PlanDraw, draw_plan, draw_plans, probe_plan
from moonfed.data.catalog.digits import digits
from moonfed.data.dataset import Augmentation, Dataset


def test_the_digits_are_1415_training_and_382_test_rows_of_uint8():
    data = digits()
    assert data.inputs.shape == (1415, 1, 8, 8)
    assert data.test_inputs.shape == (382, 1, 8, 8)
    assert data.inputs.dtype == torch.uint8
    assert int(data.inputs.max()) == 16
    assert set(data.test_labels.tolist()) == set(range(10))


def test_normalised_training_pixels_have_mean_0_and_deviation_1():
    data = digits()
    x = normalise(data, data.inputs, torch.float64)
    assert abs(float(x.mean())) < 1e-4
    assert float(x.std()) == pytest.approx(1, abs=1e-4)


def test_a_fingerprint_tells_data_apart_by_a_single_pixel():
    one, two = digits(), digits()
    assert one.fingerprint == two.fingerprint
    other = one.inputs.clone()
    other[3, 0, 4, 4] += 1
    assert replace(one, inputs=other).fingerprint != one.fingerprint


def test_an_epoch_sees_every_row_at_most_once_and_drops_the_last_incomplete_batch():
    rows = np.arange(100, 171)
    plan = draw_plan(0, 4, 2, rows, epochs=3, batch=16, augmentation=Augmentation())
    assert plan.rows.shape == (3 * 4, 16)
    for epoch in plan.rows.reshape(3, -1):
        assert len(set(epoch.tolist())) == 64
        assert set(epoch.tolist()) <= set(rows.tolist())
    first, second = plan.rows[:4], plan.rows[4:8]
    assert not torch.equal(first, second)


def test_a_party_with_fewer_rows_than_a_batch_takes_one_step_per_epoch_on_all_of_them():
    plan = draw_plan(0, 4, 2, np.arange(5), epochs=3, batch=16, augmentation=Augmentation())
    assert [sorted(step.tolist()) for step in plan.rows] == [[0, 1, 2, 3, 4]] * 3
    assert len(plan.keys) == len(plan.numbers) == 3
    assert sorted(probe_plan(np.arange(5), 16, Augmentation()).rows.flatten().tolist()) == [0, 1, 2, 3, 4]


def plan_by_itself(trial, round, party, rows, epochs, batch, augmentation, work):
    """What a plan is, written down for one party: every part is drawn in every epoch, whether it is used or not."""
    rng, batch = generator(trial, "plan", round, party), min(batch, len(rows))
    shape = (len(rows) // batch, batch)
    by_epoch = [
        (
            rng.permutation(rows)[: shape[0] * batch].reshape(shape),
            rng.integers(0, 2 * augmentation.pad + 1, size=(*shape, 2)),
            rng.random(shape) < (0.5 if augmentation.flip else 0.0),
            rng.uniform(-augmentation.rotate, augmentation.rotate, size=shape)
            if augmentation.rotate
            else np.zeros(shape),
        )
        for _ in range(epochs)
    ]
    steps = max(1, int(work * epochs * shape[0] + 1e-9))
    keys = generator(trial, "dropout", round, party).integers(0, 2**31, size=steps)
    parts = (np.concatenate(part)[:steps] for part in zip(*by_epoch, strict=True))
    return BatchPlan(*map(torch.from_numpy, (*parts, keys, np.arange(steps))))


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(
    "augmentation",
    [
        Augmentation(),
        Augmentation(4),
        Augmentation(flip=True),
        Augmentation(rotate=15.0),
        Augmentation(4, True, True, 9),
    ],
)
def test_plans_drawn_together_are_those_of_each_party_by_itself_to_the_bit(epochs, augmentation):
    sizes = {0: (50, 1.0), 3: (7, 1.0), 5: (50, 0.3), 1: (64, 1.0), 2**40: (1, 0.5)}
    draws = [PlanDraw(party, np.arange(rows) * 3 + 1, work) for party, (rows, work) in sizes.items()]
    together = draw_plans(2, 6, draws, epochs, 10, augmentation)
    for (party, rows, work), plan in zip(draws, together, strict=True):
        alone = plan_by_itself(2, 6, party, rows, epochs, 10, augmentation, work)
        assert [part.dtype for part in plan] == [part.dtype for part in alone]
        assert all(map(torch.equal, plan, alone))
        assert all(map(torch.equal, plan, draw_plan(2, 6, party, rows, epochs, 10, augmentation, work)))


def test_generators_seeded_together_are_those_seeded_by_themselves(monkeypatch):
    numbers = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, *(seed_for(7, "x", i) for i in range(20))]
    seeds_of = {("draw", i): number for i, number in enumerate(numbers)}
    monkeypatch.setattr(seeds, "seed_for", lambda trial, *names: seeds_of[names])
    for number, stream in zip(numbers, seeds.generators(0, seeds_of), strict=True):
        alone = np.random.Generator(np.random.PCG64(number))
        assert stream.bit_generator.state == alone.bit_generator.state
        assert stream.random(5).tolist() == alone.random(5).tolist()


def test_a_plan_is_decided_by_trial_round_and_party():
    def rows(trial, round, party):
        return draw_plan(trial, round, party, np.arange(64), 1, 16, Augmentation(4, True, True, 15.0))

    one = rows(0, 1, 2)
    assert all(torch.equal(a, b) for a, b in zip(one, rows(0, 1, 2), strict=True))
    for other in (rows(1, 1, 2), rows(0, 2, 2), rows(0, 1, 3)):
        assert not torch.equal(one.rows, other.rows)


def test_crops_and_flips_use_their_whole_range():
    plan = draw_plan(0, 0, 0, np.arange(640), 2, 64, Augmentation(4, True, True))
    assert set(plan.crops.unique().tolist()) == set(range(9))
    assert 0.4 < float(plan.flips.double().mean()) < 0.6


AUGMENTATIONS = [
    Augmentation(4, True, True),
    Augmentation(4, False, True),
    Augmentation(2),
    Augmentation(0, False, True),
]
AUGMENTATIONS += [Augmentation(4, False, True, 15.0), Augmentation(2, True, False, 90.0), Augmentation(rotate=45.0)]


@pytest.mark.parametrize("shape", [(12, 10), (32, 32)])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_augmentation_equals_padding_cropping_flipping_and_rotating_one_by_one(augmentation, shape):
    """The reference: NumPy pads, slices and mirrors one image at a time, PIL rotates it."""
    height, width = shape
    images = np.random.default_rng(0).integers(1, 256, size=(40, 3, *shape), dtype=np.uint8)
    labels = torch.arange(40)
    mean, std = (100.0, 120.0, 90.0), (60.0, 50.0, 70.0)
    tensor = torch.from_numpy(images)
    data = Dataset("noise", tensor, labels, tensor, labels, 40, mean, std, augmentation, 4)
    plan = draw_plan(0, 0, 0, np.arange(40), 2, 8, augmentation)
    x, y = gather(data, plan, torch.float64)
    assert x.shape == (10, 8, 3, *shape)
    for s in range(10):
        for b in range(8):
            row, (top, left) = int(plan.rows[s, b]), plan.crops[s, b].tolist()
            pad = ((0, 0), (augmentation.pad, augmentation.pad), (augmentation.pad, augmentation.pad))
            padded = np.pad(images[row], pad, mode="reflect" if augmentation.reflect else "constant")
            image = padded[:, top : top + height, left : left + width]
            if plan.flips[s, b]:
                image = image[:, :, ::-1]
            turned = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).rotate(
                float(plan.angles[s, b]), resample=Image.Resampling.NEAREST
            )
            pixels = np.asarray(turned).transpose(2, 0, 1).astype(np.float64)
            by_hand = (pixels - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
            assert np.allclose(x[s, b].numpy(), by_hand, atol=1e-12)
            assert int(y[s, b]) == row


def test_a_probe_sees_full_batches_unaugmented():
    data = replace(digits(), augmentation=Augmentation(1, False, True))
    rows = np.arange(5, 42)
    x, _ = gather(data, probe_plan(rows, 16, data.augmentation), torch.float32)
    plain = normalise(data, data.inputs[5 : 5 + 32], torch.float32)
    assert torch.equal(x.flatten(0, 1), plain)
