"""Networks: the published sizes, and one network for every algorithm."""

import pytest
import torch
from torch import nn

from moonfed.models import ENCODERS, EncoderSpec, Model
from moonfed.models.cnn import Cnn


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_the_papers_cnn_has_92_626_parameters():
    model = Model(Cnn(EncoderSpec(3, 32, 32)), classes=10, projection=256)
    assert count(model) == 92_626
    by_layer = [count(layer) for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert by_layer == [456, 2_416, 48_120, 10_164, 7_140, 21_760, 2_570]


@pytest.mark.parametrize("projection", [0, 64, 128, 256])
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 5, 9)])
@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_model_says_features_projection_and_logits(name, shape, norm, projection):
    model = Model(ENCODERS[name](EncoderSpec(shape[0], shape[1], shape[2], norm)), classes=7, projection=projection)
    out = model(torch.randn(3, *shape))
    assert out.features.shape == (3, model.encoder.features)
    assert out.projection.shape == (3, projection or model.encoder.features)
    assert out.logits.shape == (3, 7)
    if not projection:
        assert torch.equal(out.projection, out.features)


def test_the_output_layer_sits_on_the_projection_with_nothing_between():
    model = Model(Cnn(EncoderSpec(3, 32, 32)), 10, 256)
    out = model(torch.randn(2, 3, 32, 32))
    assert torch.equal(out.logits, model.head(out.projection))
    assert (out.projection < 0).any(), "the projection is not cut off by a ReLU"
    assert (out.features >= 0).all()


def test_leaving_the_head_out_does_not_change_the_encoder():
    with_head, without = (Model(Cnn(EncoderSpec(3, 32, 32)), 10, p) for p in (256, 0))
    assert count(with_head.encoder) == count(without.encoder)
    assert count(without) == 456 + 2_416 + 48_120 + 10_164 + 85 * 10
