"""Networks: the published sizes, and one network for every algorithm."""

import pytest
import torch
from torch import nn

from moonfed.models import ENCODERS, EncoderSpec, Model
from moonfed.models.cnn import Cnn
from moonfed.models.resnet import Resnet18
from moonfed.models.text_encoder import TextEncoder


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_the_papers_cnn_has_92_626_parameters():
    model = Model(Cnn(EncoderSpec((3, 32, 32))), classes=10, projection=256)
    assert count(model) == 92_626
    by_layer = [count(layer) for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert by_layer == [456, 2_416, 48_120, 10_164, 7_140, 21_760, 2_570]


@pytest.mark.parametrize(("classes", "parameters"), [(100, 28_246_948), (200, 28_272_648)])
def test_the_papers_resnet50_has_the_published_number_of_parameters(classes, parameters):
    model = Model(ENCODERS["resnet50"](EncoderSpec((3, 32, 32), "batch")), classes, 256)
    assert count(model) == parameters
    assert count(model.encoder) == 23_500_352
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert (len(norms), sum(layer.num_features for layer in norms)) == (53, 26_560)
    assert {(layer.eps, layer.momentum) for layer in norms} == {(1e-5, 0.1)}
    without = Model(ENCODERS["resnet50"](EncoderSpec((3, 32, 32), "batch")), classes, 0)
    assert count(without.encoder) == 23_500_352


def test_a_resnet_has_the_cifar_stem_and_halves_the_picture_three_times():
    encoder = Resnet18(EncoderSpec((3, 32, 32), "batch"))
    shapes = []
    for block in encoder.stages:
        block.register_forward_hook(lambda module, args, out: shapes.append(tuple(out.shape[1:])))
    encoder(torch.randn(2, 3, 32, 32))
    assert shapes == [(64, 32, 32)] * 2 + [(128, 16, 16)] * 2 + [(256, 8, 8)] * 2 + [(512, 4, 4)] * 2


def test_a_resnets_convolutions_start_from_kaiming_normal_by_fan_out():
    torch.manual_seed(0)
    encoder = ENCODERS["resnet18"](EncoderSpec((3, 32, 32), "batch"))
    for layer in encoder.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 10_000:
            fan_out = layer.out_channels * layer.kernel_size[0] ** 2
            assert float(layer.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
            assert layer.bias is None


@pytest.mark.parametrize("projection", [0, 64, 128, 256])
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 5, 9)])
@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet8", "sound"])
def test_a_model_says_features_projection_and_logits(name, shape, norm, projection):
    model = Model(ENCODERS[name](EncoderSpec(shape, norm)), classes=7, projection=projection)
    out = model(torch.randn(3, *shape))
    assert out.features.shape == (3, model.encoder.features)
    assert out.projection.shape == (3, projection or model.encoder.features)
    assert out.logits.shape == (3, 7)
    if not projection:
        assert torch.equal(out.projection, out.features)


def test_the_output_layer_sits_on_the_projection_with_nothing_between():
    model = Model(Cnn(EncoderSpec((3, 32, 32))), 10, 256)
    out = model(torch.randn(2, 3, 32, 32))
    assert torch.equal(out.logits, model.head(out.projection))
    assert (out.projection < 0).any(), "the projection is not cut off by a ReLU"
    assert (out.features >= 0).all()


def test_leaving_the_head_out_does_not_change_the_encoder():
    with_head, without = (Model(Cnn(EncoderSpec((3, 32, 32))), 10, p) for p in (256, 0))
    assert count(with_head.encoder) == count(without.encoder)
    assert count(without) == 456 + 2_416 + 48_120 + 10_164 + 85 * 10


@pytest.mark.parametrize("projection", [0, 64])
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize("places", [1, 2, 40])
def test_a_model_of_texts_says_features_projection_and_logits(places, norm, projection):
    model = Model(ENCODERS["text"](EncoderSpec((places,), norm, words=9)), classes=7, projection=projection)
    out = model(torch.arange(3 * places).reshape(3, places) % 10)
    assert out.features.shape == (3, model.encoder.features)
    assert out.projection.shape == (3, projection or model.encoder.features)
    assert out.logits.shape == (3, 7)


def test_places_without_a_word_change_nothing_however_many_there_are():
    torch.manual_seed(0)
    encoder = TextEncoder(EncoderSpec((3,), words=9)).eval()
    short = torch.tensor([[4, 9, 1], [7, 0, 0]])
    long = torch.cat([short, torch.zeros(2, 5, dtype=torch.int64)], 1)
    assert torch.allclose(encoder(short), encoder(long), atol=1e-6)
    before = encoder(short).detach()
    with torch.no_grad():
        encoder.vectors.weight[0] += 100
    assert torch.equal(encoder(short), before)


def test_a_text_without_any_word_has_finite_features():
    encoder = ENCODERS["text"](EncoderSpec((3,), words=9))
    assert torch.isfinite(encoder(torch.zeros(2, 3, dtype=torch.int64))).all()


def test_the_order_of_words_counts():
    torch.manual_seed(0)
    encoder = ENCODERS["text"](EncoderSpec((3,), words=9)).eval()
    assert not torch.allclose(encoder(torch.tensor([[1, 2, 3]])), encoder(torch.tensor([[3, 1, 2]])))


def test_a_sound_is_the_same_wherever_in_time_it_stands_and_another_at_another_pitch():
    torch.manual_seed(0)
    encoder = ENCODERS["sound"](EncoderSpec((1, 32, 48)))
    heard = torch.zeros(3, 1, 32, 48)
    tone = torch.randn(4, 4)
    heard[0, 0, 8:12, 16:20] = heard[1, 0, 8:12, 24:28] = heard[2, 0, 16:20, 16:20] = tone
    here, later, higher = encoder(heard)
    assert torch.allclose(here, later, atol=1e-6)
    assert not torch.allclose(here, higher, atol=1e-3)
