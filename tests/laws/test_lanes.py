"""Layers of stacked lanes give what each lane gives by itself, in every layout."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap

from moonfed.core.seeds import torch_seeded
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.engines.cuda.fp16_conv import TensorCoreConvolutions
from moonfed.engines.stacked.lanes import arrange_images
from moonfed.engines.stacked.stacked_ops import (
    AVX2_LAYOUT,
    CPU_LAYOUT,
    FP16_LAYOUT,
    FP32_LAYOUT,
    TF32_LAYOUT,
    StackedOps,
)

LANES = 3
LAYOUTS = [CPU_LAYOUT, AVX2_LAYOUT, FP32_LAYOUT, TF32_LAYOUT, FP16_LAYOUT._replace(fp16=False)]


class Layers(nn.Module):
    """What a net may be made of, with and without the usual sizes."""

    def __init__(self, stride: int, padding: int, dilation: int, groups: int, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride, padding, bias=bias)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 10, (3, 2), padding=padding, dilation=dilation, groups=groups, bias=bias)
        self.groups = nn.GroupNorm(5, 10)
        self.last = nn.Linear(10, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.first(x))), 2, padding=1)
        x = F.avg_pool2d(self.groups(self.second(x)), 2, ceil_mode=True)
        return self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "bias"), [(1, 0, 1, 1, True), (2, 1, 2, 2, False), (1, 2, 1, 1, False)]
)
def test_a_net_of_lanes_gives_each_lane_its_own_output_and_gradient(layout, stride, padding, dilation, groups, bias):
    with torch_seeded(0, "lanes", "net"):
        nets = [Layers(stride, padding, dilation, groups, bias).double() for _ in range(LANES)]
        x = torch.randn(LANES, 5, 3, 17, 15, dtype=torch.float64)
    weights = {k: torch.stack([net.state_dict()[k] for net in nets]) for k, _ in nets[0].named_parameters()}
    buffers = {k: torch.stack([net.state_dict()[k] for net in nets]) for k, _ in nets[0].named_buffers()}
    weights = {k: w.requires_grad_() for k, w in weights.items()}

    def out(own: dict[str, torch.Tensor], kept: dict[str, torch.Tensor], seen: torch.Tensor) -> torch.Tensor:
        return functional_call(nets[0], (own, {k: v.clone() for k, v in kept.items()}), (seen,))

    together = StackedOps(layout).vectorize(out)(weights, buffers, x)
    grads = torch.autograd.grad(together.square().sum(), list(weights.values()))
    for lane, net in enumerate(nets):
        alone = net(x[lane])
        assert torch.allclose(together[lane], alone, atol=1e-12)
        for grad, own in zip(grads, torch.autograd.grad(alone.square().sum(), list(net.parameters())), strict=True):
            assert torch.allclose(grad[lane], own, atol=1e-10)


def test_convolutions_in_fp16_are_off_by_its_rounding_alone_forwards_and_backwards_in_lanes_and_alone():
    with torch_seeded(0, "lanes", "half"):
        net = nn.Sequential(nn.Conv2d(3, 6, 5, padding=1), nn.AvgPool2d(2), nn.Tanh(), nn.Conv2d(6, 16, 5))
        x = torch.randn(LANES, 8, 3, 20, 20)
    own = {k: torch.stack([v.detach()] * LANES).requires_grad_() for k, v in net.named_parameters()}
    small = 1e-7  # gradients for which fp16 has a handful of numbers at most

    def out(weights: dict[str, torch.Tensor], seen: torch.Tensor) -> torch.Tensor:
        return functional_call(net, weights, (seen,))

    exact = [net(lane) for lane in x]
    wanted = [torch.autograd.grad(made.square().sum() * small, list(net.parameters())) for made in exact]
    in_lanes = StackedOps(FP16_LAYOUT).vectorize(out)(own, x)
    found = torch.autograd.grad(in_lanes.square().sum() * small, list(own.values()))
    for lane in range(LANES):
        with TensorCoreConvolutions(fp16=True):
            alone = net(x[lane])
        back = torch.autograd.grad(alone.square().sum() * small, list(net.parameters()))
        for made in (in_lanes[lane], alone):
            assert made.dtype == torch.float32
            assert 0 < (made - exact[lane]).norm() / exact[lane].norm() < 2**-10
        for grad, other, right in zip((g[lane] for g in found), back, wanted[lane], strict=True):
            assert (grad - right).norm() / right.norm() < 2**-8
            assert (other - right).norm() / right.norm() < 2**-8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lanes_may_share_an_image_or_a_weight(layout):
    with torch_seeded(0, "lanes", "shared"):
        x, w = torch.randn(4, 3, 9, 9), torch.randn(LANES, 6, 3, 3, 3)
    ops = StackedOps(layout)
    shown = ops.vectorize(lambda own: F.conv2d(x, own))(w)
    assert torch.allclose(shown, torch.stack([F.conv2d(x, own) for own in w]), atol=1e-4)
    many = torch.stack([x, x + 1])
    with ops:
        same = vmap(lambda seen: F.conv2d(seen, w[0]))(many)
    assert torch.allclose(same, torch.stack([F.conv2d(seen, w[0]) for seen in many]), atol=1e-4)


@pytest.mark.parametrize("layout", [CPU_LAYOUT, FP32_LAYOUT])
def test_images_arranged_for_a_layout_are_the_same_images(layout):
    pixels = torch.arange(2 * 3 * 4 * 3 * 5 * 5).reshape(2, 3, 4, 3, 5, 5)
    arranged = arrange_images(layout, pixels)
    assert torch.equal(arranged, pixels)
    assert arranged.stride() != pixels.stride()


@pytest.mark.parametrize("layout", [CPU_LAYOUT, FP32_LAYOUT])
def test_normalised_images_have_the_same_bits_in_every_order_in_memory(layout):
    pixels = torch.randint(0, 256, (2, 3, 4, 3, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    tests = torch.zeros(1, 3, 5, 6, dtype=torch.uint8)
    labels = torch.zeros(1, dtype=torch.int64)
    data = Dataset("noise", pixels[0, 0], labels, tests, labels, 2, (120.0, 50.0, 7.0), (70.0, 3.0, 11.0))
    wanted = (pixels.float() - torch.tensor(data.mean)[:, None, None]) / torch.tensor(data.std)[:, None, None]
    assert torch.equal(normalise(data, arrange_images(layout, pixels), torch.float32), wanted)


@pytest.mark.parametrize(("kernels", "pads"), [("avx2", True), ("default", False)])
def test_images_of_three_channels_are_padded_for_avx2_kernels(kernels, pads):
    code = "from moonfed.engines.stacked.stacked_ops import cpu_layout; print(cpu_layout().pad_three)"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": kernels}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(pads)
