"""The CUDA kernels of convolution, pooling and ReLU, run on a CPU, give what torch gives."""

import shutil

import pytest
import torch
from cuda_on_cpu import CudaOnCpu

from moonfed.engines.cuda import conv_pool_relu as ops

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
CASES = [  # with the number of lanes
    (ops.Layer(3, 6, 12, 12, 5, 0, batch=5), 2),
    (ops.Layer(6, 16, 9, 11, 5, 0, batch=34), 2),
    (ops.Layer(6, 16, 9, 11, 5, 0, batch=36), 1),
    (ops.Layer(2, 9, 8, 8, 3, 1, batch=33), 3),
    (ops.Layer(1, 2, 6, 40, 3, 1, batch=4), 1),
    (ops.Layer(1, 3, 7, 6, 4, 2, batch=3), 1),
    (ops.Layer(2, 4, 9, 7, 2, 0, batch=1), 2),
    (ops.Layer(5, 4, 5, 5, 1, 0, batch=40), 1),
]


def random_numbers(layer, lanes):
    """Draw whole numbers: sums are exact in any order, and windows have several largest values."""
    wide, out, height, width, kernel, _, batch = layer
    torch.manual_seed(0)
    sizes = (lanes, wide, height, width, batch), (lanes, out, wide, kernel, kernel), (lanes, out)
    return [torch.randint(-3, 4, size).float() for size in sizes]


def compile_for_cpu(layer, folder, monkeypatch):
    kernels = CudaOnCpu(ops.source_of(gradients=True), layer.macros, folder)
    monkeypatch.setattr(ops, "compiled_for", lambda *_: kernels)


@needs_compiler
@pytest.mark.parametrize(("layer", "lanes"), CASES)
def test_kernels_give_what_torch_gives(layer, lanes, tmp_path, monkeypatch):
    assert layer.fits()
    compile_for_cpu(layer, tmp_path, monkeypatch)
    (_, _, height, width, _, pad, _), (x, w, b) = layer, random_numbers(layer, lanes)

    y, winner = ops.conv_pool_relu_op(x, w, b, pad, True)
    ours, our_winner = ops.conv_pool_relu_cuda(x, w, b, pad, True)
    without, nothing = ops.conv_pool_relu_cuda(x, w, b, pad, False)
    assert torch.equal(ours, y)
    assert torch.equal(our_winner, winner)
    assert torch.equal(without, ours)
    assert not len(nothing)
    assert len(set(winner.unique().tolist())) == 5

    grad = torch.randint(-3, 4, y.shape).float()
    for own, theirs in zip(
        ops.weight_gradient_cuda(x, w, grad, winner, pad), ops.weight_gradient(x, w, grad, winner, pad), strict=True
    ):
        assert torch.equal(own, theirs)
    images_first = grad.permute(0, 4, 1, 2, 3).contiguous()
    assert torch.equal(ops.images_last_cuda(images_first, w, height, width, pad), grad)
    theirs = ops.input_gradient(w, grad, winner, height, width, pad)
    assert torch.equal(ops.input_gradient_cuda(w, grad, winner, height, width, pad), theirs)


@needs_compiler
def test_what_is_not_a_number_stays_so(tmp_path, monkeypatch):
    layer = ops.Layer(1, 2, 6, 6, 3, 0, batch=2)
    compile_for_cpu(layer, tmp_path, monkeypatch)
    x, w, b = random_numbers(layer, 1)
    x[0, 0, 0, 0, 1] = torch.nan
    y, _ = ops.conv_pool_relu_op(x, w, b, 0, True)
    ours, _ = ops.conv_pool_relu_cuda(x, w, b, 0, True)
    assert y.isnan().sum() == 2
    assert torch.equal(ours.nan_to_num(99), y.nan_to_num(99))
