"""Counter-based dropout: the mask is a hash of step key, layer and position, so every engine draws the same one."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from moonfed.core.seeds import seed_torch
from moonfed.engines.base import Nets

MASK_32_BITS = 0xFFFFFFFF


class CounterDropout(TorchFunctionMode):
    """Replaces the dropout functions that any module calls; layers are numbered in the order of their calls."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key = key  # int64, below 2**31
        self.layers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replacement = _REPLACEMENTS.get(func)
        out = replacement(self, *args, **(kwargs or {})) if replacement else None
        return func(*args, **(kwargs or {})) if out is None else out

    def keep_mask(self, shape: torch.Size, p: float) -> Tensor:
        """Draw which positions of a shape are kept, each with probability 1 - p."""
        self.layers += 1
        start = _hash32(_hash32(self.key) + self.layers)
        position = torch.arange(math.prod(shape), device=self.key.device).view(shape)
        return _hash32(_hash32(position + start)) >= round(p * 2**32)

    def drop(self, x: Tensor, p: float, shape: torch.Size) -> Tensor:
        """Set positions to zero and scale the others by 1 / (1 - p)."""
        return torch.where(self.keep_mask(shape, p), x / (1 - p), 0.0) if p < 1 else x * 0.0


def _hash32(x: Tensor) -> Tensor:
    """Hash 32 bits to 32 bits, one to one (the finaliser of MurmurHash3)."""
    x = x & MASK_32_BITS
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK_32_BITS
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK_32_BITS
    return x ^ (x >> 16)


def _dropout(mode: CounterDropout, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return mode.drop(input, p, input.shape) if training and 0 < p <= 1 else None


def _channel_dropout(dim: int) -> Callable[..., Any]:
    """Make the dropout of whole channels, for batches with this many axes."""

    def call(mode: CounterDropout, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not (training and 0 < p <= 1 and input.dim() == dim):
            return None
        return mode.drop(input, p, torch.Size([*input.shape[:2], *[1] * (dim - 2)]))

    return call


def _attention(
    mode: CounterDropout,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute attention with counter-based dropout; torch's fused kernels draw masks that cannot be reproduced."""
    if not dropout_p:
        return None
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
    score = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        score = score.masked_fill(
            ~torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril(), -math.inf
        )
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        score = score.masked_fill(~attn_mask, -math.inf) if is_bool else score + attn_mask
    weight = score.softmax(-1)
    return mode.drop(weight, dropout_p, weight.shape) @ value


def _multi_head(mode: CounterDropout, *args: Any, **kwargs: Any) -> Any:
    """Run torch's own multi-head attention with its two functions that draw replaced by ours."""

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        out = _dropout(mode, x, p, training)
        return F.dropout(x, p, training) if out is None else out

    def attention(*args: Any, **kwargs: Any) -> Tensor:
        out = _attention(mode, *args, **kwargs)
        return F.scaled_dot_product_attention(*args, **kwargs) if out is None else out

    def has_torch_function(args: Any) -> bool:
        return False

    # A function mode is off inside of its own handler. So torch's code runs with other globals instead.
    code: Any = F.multi_head_attention_forward
    names = {
        "dropout": dropout,
        "scaled_dot_product_attention": attention,
        "has_torch_function": has_torch_function,
    }
    copy = FunctionType(code.__code__, code.__globals__ | names, code.__name__, code.__defaults__, code.__closure__)
    copy.__kwdefaults__ = code.__kwdefaults__
    return copy(*args, **kwargs)


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    F.dropout1d: _channel_dropout(3),
    F.dropout2d: _channel_dropout(4),
    F.dropout3d: _channel_dropout(5),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head,
}


def seed_step(nets: Nets, key: Tensor) -> None:
    """Seed torch's generator with the key of a step if a network draws from it."""
    if nets.uses_torch_rng:
        seed_torch(int(key), key.device)
