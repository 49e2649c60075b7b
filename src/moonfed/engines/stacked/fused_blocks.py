"""Finds convolution, 2x2 max pooling and ReLU in a network's Sequentials, to run them in lanes as one operation."""

import copy
import logging
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from moonfed.engines.base import Nets
from moonfed.engines.cuda.conv_pool_relu import Layer, compiled_for, conv_pool_relu
from moonfed.engines.cuda.fp16_conv import pair
from moonfed.engines.stacked.stacked_ops import lane_op, lanes_first

logger = logging.getLogger(__name__)


class Block(NamedTuple):
    """A convolution whose pooling and ReLU follow it."""

    conv: nn.Conv2d
    modules: int  # that it consists of


class FusedSequential(nn.Sequential):
    """A Sequential that runs such blocks as one operation where its kernels are made for them."""

    def forward(self, input: Any) -> Any:
        """Run the modules in order."""
        modules, at = list(self), 0
        while at < len(modules):
            block = block_at(modules[at:])
            if block and (done := _run_block(block.conv, input)) is not None:
                input, at = done, at + block.modules
            else:
                input, at = modules[at](input), at + 1
        return input


def fuse_blocks(nets: Nets) -> Nets:
    """Return the networks with their blocks fused; the given ones are not changed, nor are the names of tensors."""
    if not any(_has_block(part) for part in nets.training.modules()):
        return nets
    training, inference = copy.deepcopy((nets.training, nets.inference))
    for part in (*training.modules(), *inference.modules()):
        if _has_block(part):
            part.__class__ = FusedSequential
    return nets._replace(training=training, inference=inference)


def has_fused_blocks(nets: Nets) -> bool:
    """Whether a network runs blocks as one operation."""
    return any(isinstance(part, FusedSequential) for part in nets.training.modules())


def _has_block(part: nn.Module) -> bool:
    if type(part) is not nn.Sequential:
        return False
    modules = list(part)
    return any(block_at(modules[at:]) for at in range(len(modules)))


def block_at(modules: Sequence[nn.Module]) -> Block | None:
    """Return the block with which a list of modules begins, if it begins with one."""
    conv = modules[0]
    if not isinstance(conv, nn.Conv2d) or not _is_plain(conv):
        return None
    parts = [(at, module) for at, module in enumerate(modules) if at and not _is_exactly(module, nn.Identity)][:2]
    pools = [module for _, module in parts if isinstance(module, nn.MaxPool2d) and _is_two_by_two(module)]
    relus = [module for _, module in parts if _is_exactly(module, nn.ReLU)]
    if len(pools) != 1 or len(relus) != 1:
        return None
    block = Block(conv, parts[1][0] + 1)
    return None if any(_has_hooks(module) for module in modules[: block.modules]) else block


def _is_exactly(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of a class, and not of one derived from it, which may do something else."""
    return type(module) is kind


def _has_hooks(module: nn.Module) -> bool:
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in vars(module) or any(getattr(module, name) for name in names)


def _is_plain(conv: nn.Conv2d) -> bool:
    alone = conv.stride == conv.dilation == (1, 1) and conv.groups == 1 and conv.padding_mode == "zeros"
    square = conv.kernel_size[0] == conv.kernel_size[1] and not isinstance(conv.padding, str)
    return _is_exactly(conv, nn.Conv2d) and alone and square and len(set(pair(conv.padding))) == 1


def _is_two_by_two(pool: nn.MaxPool2d) -> bool:
    plain = _is_exactly(pool, nn.MaxPool2d) and not pool.ceil_mode and not pool.return_indices
    sizes = pair(pool.kernel_size) == pair(pool.stride) == (2, 2)
    return plain and sizes and pair(pool.padding) == (0, 0) and pair(pool.dilation) == (1, 1)


def _run_block(conv: nn.Conv2d, x: Tensor) -> Tensor | None:
    """Run a block under vmap; None where there are no kernels for it."""
    w, b = conv.weight, conv.bias
    if x.dim() != 4 or b is None or not x.dtype == w.dtype == torch.float32:
        return None
    pad = pair(conv.padding)[0]
    layer = Layer(w.shape[1], w.shape[0], x.shape[2], x.shape[3], w.shape[2], pad, len(x))
    if not layer.fits() or (x.is_cuda and not _compiles(layer, torch.is_grad_enabled(), x.device)):
        return None
    return lane_op(partial(_one, pad), partial(_lanes, pad), x, w, b)


@cache
def _compiles(layer: Layer, gradients: bool, device: torch.device) -> bool:
    """Compile a block's kernels; where that is impossible, torch's own operations do the same."""
    try:
        compiled_for(layer, gradients, device)
    except (RuntimeError, OSError) as error:
        logger.info("convolutions run by torch's own operations: %s", str(error).splitlines()[0][:160])
        return False
    return True


def _one(pad: int, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.max_pool2d(F.conv2d(x, w, b, padding=pad), 2))


def _lanes(pad: int, lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Run all lanes; returns [batch, lane, out, height, width], with the batch innermost in memory."""
    x, w, b = (lanes_first(t, dim, lanes) for t, dim in zip((x, w, b), dims, strict=True))
    y = conv_pool_relu(x.permute(0, 2, 3, 4, 1).contiguous(), w.contiguous(), b.contiguous(), pad)
    return y.permute(4, 0, 1, 2, 3)
