"""Residual encoders with the CIFAR stem: a 3x3 convolution of stride 1 and no pooling before the first stage."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu

from moonfed.models.layers import norm_layer
from moonfed.models.model import Encoder, EncoderSpec


class Residual(nn.Module):
    """A basic block (two 3x3 convolutions) or a bottleneck (1x1, 3x3 with the stride, 1x1 four times as wide)."""

    def __init__(self, wide: int, planes: int, stride: int, bottleneck: bool, norm: str) -> None:
        super().__init__()
        out = planes * (4 if bottleneck else 1)
        shapes = [(wide, planes, 3, stride), (planes, planes, 3, 1)]
        if bottleneck:
            shapes = [(wide, planes, 1, 1), (planes, planes, 3, stride), (planes, out, 1, 1)]
        self.layers = nn.ModuleList(_convolution(a, b, kernel, s, norm) for a, b, kernel, s in shapes)
        same = stride == 1 and wide == out
        self.shortcut = nn.Identity() if same else _convolution(wide, out, 1, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.layers[:-1]:
            y = relu(layer(y))
        return relu(self.layers[-1](y) + self.shortcut(x))


class Resnet(Encoder):
    """Four stages of residual blocks, then the mean over all pixels."""

    norm = "batch"

    def __init__(self, spec: EncoderSpec, blocks: Sequence[int], bottleneck: bool, width: int = 64) -> None:
        super().__init__(spec)
        wide, stages = width, list[nn.Module]()
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                stages.append(Residual(wide, width * 2**stage, stride, bottleneck, spec.norm))
                wide = width * 2**stage * (4 if bottleneck else 1)
        self.stem = _convolution(spec.shape[0], width, 3, 1, spec.norm)
        self.stages = nn.Sequential(*stages)
        self.features = wide
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(relu(self.stem(x))).mean((2, 3))


class Resnet18(Resnet):
    """ResNet-18: 512 features."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec, (2, 2, 2, 2), bottleneck=False)


class Resnet50(Resnet):
    """ResNet-50 as the paper runs it on CIFAR-100 and Tiny-ImageNet: 2,048 features."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec, (3, 4, 6, 3), bottleneck=True)


class Resnet8(Resnet):
    """An eighth of the width and one block per stage, for CPUs: 64 features."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec, (1, 1, 1, 1), bottleneck=False, width=8)


def _convolution(wide: int, out: int, kernel: int, stride: int, norm: str) -> nn.Sequential:
    bias = norm == "none"  # a normalisation layer would cancel the bias
    convolution = nn.Conv2d(wide, out, kernel, stride, padding=kernel // 2, bias=bias)
    return nn.Sequential(convolution, norm_layer(norm, out))
