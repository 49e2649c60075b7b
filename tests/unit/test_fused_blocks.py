"""Fused convolution, pooling and ReLU give what the modules give; modules that do something else are left alone."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from moonfed.engines import Nets
from moonfed.engines.stacked.fused_blocks import fuse_blocks, has_fused_blocks
from moonfed.engines.stacked.stacked_ops import FP32_LAYOUT, StackedOps


class Standardised(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(input, weight, self.bias)


class Leaky(nn.ReLU):
    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, 0.2)


class MeanPool(nn.MaxPool2d):
    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(input, 2)


class Tripled(nn.Identity):
    def forward(self, input: Tensor) -> Tensor:
        return input * 3


def conv(**settings):
    return nn.Conv2d(3, 4, 3, **settings)


def with_hook(module, register):
    getattr(module, register)(lambda module, *values: tuple(v * 2 for v in values[0]) if len(values) == 1 else None)
    return module


FUSED = {
    "pool, relu": (conv(), nn.MaxPool2d(2), nn.ReLU()),
    "relu, pool": (conv(padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    "identity between": (conv(), nn.Identity(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
    "two": (conv(), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 5, 2), nn.ReLU(), nn.MaxPool2d(2)),
}
LEFT_ALONE = {
    "own convolution": (Standardised(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()),
    "own relu": (conv(), nn.MaxPool2d(2), Leaky()),
    "own pool": (conv(), MeanPool(2), nn.ReLU()),
    "own identity": (conv(), Tripled(), nn.MaxPool2d(2), nn.ReLU()),
    "hook": (conv(), with_hook(nn.MaxPool2d(2), "register_forward_pre_hook"), nn.ReLU()),
    "overlapping pool": (conv(), nn.MaxPool2d(2, 1), nn.ReLU()),
    "rounded up": (conv(padding=1), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()),
    "stride": (conv(stride=2), nn.MaxPool2d(2), nn.ReLU()),
    "no bias": (nn.Conv2d(3, 4, 3, bias=False), nn.MaxPool2d(2), nn.ReLU()),
}


def nets_of_layers(layers):
    net = nn.Sequential(*layers).requires_grad_(False)
    return Nets(net, copy.deepcopy(net).eval(), False, False, 1)


def outputs_and_gradients(nets):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3, 13, 13)
    weights = {k: torch.randn(2, *w.shape).requires_grad_() for k, w in nets.training.named_parameters()}
    run = StackedOps(FP32_LAYOUT).vectorize(lambda w, rows: functional_call(nets.training, w, rows))
    out = run(weights, x)
    return out.detach(), torch.autograd.grad(out.square().sum(), list(weights.values()))


@pytest.mark.parametrize("layers", [*FUSED.values(), *LEFT_ALONE.values()], ids=[*FUSED, *LEFT_ALONE])
def test_fused_blocks_give_what_the_modules_give(layers):
    nets = nets_of_layers(layers)
    fused = fuse_blocks(nets)
    assert not has_fused_blocks(nets)
    assert list(fused.training.state_dict()) == list(nets.training.state_dict())
    torch.testing.assert_close(outputs_and_gradients(fused), outputs_and_gradients(nets), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("layers", "fused"), [*((a, True) for a in FUSED.values()), (LEFT_ALONE["own relu"], False)])
def test_blocks_are_found(layers, fused):
    assert has_fused_blocks(fuse_blocks(nets_of_layers(layers))) == fused
