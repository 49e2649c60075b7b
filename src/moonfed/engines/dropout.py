"""Dropout from a counter: what falls out is a hash of the step's key, the layer and the place, in every engine."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from moonfed.core.seeds import seed_torch, torch_aside
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset

WORD = 0xFFFFFFFF  # 32 bits


class Dropped(TorchFunctionMode):
    """Lets the dropouts of any module draw from the key of a step, one layer after the other."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key = key  # int64, below 2**31
        self.layers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = _RANDOM.get(func)
        made = drawn(self, *args, **(kwargs or {})) if drawn else None
        return func(*args, **(kwargs or {})) if made is None else made

    def keep(self, shape: torch.Size, p: float) -> Tensor:
        """Draw which places of a shape stay, each with probability 1 - p."""
        self.layers += 1
        start = _mixed(_mixed(self.key) + self.layers)
        place = torch.arange(math.prod(shape), device=self.key.device).view(shape)
        return _mixed(_mixed(place + start)) >= round(p * 2**32)

    def drop(self, x: Tensor, p: float, shape: torch.Size) -> Tensor:
        """Set places to zero and make up for them in the others."""
        return torch.where(self.keep(shape, p), x / (1 - p), 0.0) if p < 1 else x * 0.0


def _mixed(x: Tensor) -> Tensor:
    """Scatter 32 bits over 32 bits, one to one (the finaliser of MurmurHash3)."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & WORD
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & WORD
    return x ^ (x >> 16)


def _dropout(dropped: Dropped, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return dropped.drop(input, p, input.shape) if training and 0 < p <= 1 else None


def _channels(dim: int) -> Callable[..., Any]:
    """Dropout of whole channels, for batches of inputs with so many axes."""

    def call(dropped: Dropped, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not (training and 0 < p <= 1 and input.dim() == dim):
            return None
        return dropped.drop(input, p, torch.Size([*input.shape[:2], *[1] * (dim - 2)]))

    return call


def _attention(
    dropped: Dropped,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attend as torch does, with dropout on the attention: what its fused kernels draw cannot be known."""
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
    return dropped.drop(weight, dropout_p, weight.shape) @ value


def _multi_head(dropped: Dropped, *args: Any, **kwargs: Any) -> Any:
    """Run torch's own multi-head attention with the two functions in it that draw replaced by ours."""

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        made = _dropout(dropped, x, p, training)
        return F.dropout(x, p, training) if made is None else made

    def attention(*given: Any, **named: Any) -> Tensor:
        made = _attention(dropped, *given, **named)
        return F.scaled_dot_product_attention(*given, **named) if made is None else made

    # Inside of it a mode is off, and it would ask the mode again if it were on: the same code, with other names.
    code: Any = F.multi_head_attention_forward
    names = {"dropout": dropout, "scaled_dot_product_attention": attention, "has_torch_function": lambda given: False}
    same = FunctionType(code.__code__, code.__globals__ | names, code.__name__, code.__defaults__, code.__closure__)
    same.__kwdefaults__ = code.__kwdefaults__
    return same(*args, **kwargs)


_RANDOM: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    F.dropout1d: _channels(3),
    F.dropout2d: _channels(4),
    F.dropout3d: _channels(5),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head,
}


def listen(net: nn.Module, data: Dataset) -> None:
    """Find out by a dry run whether a network drops out, and whether it draws from torch's stream besides."""
    device = data.inputs.device
    mode = Dropped(torch.zeros((), dtype=torch.int64, device=device))
    own = next(net.parameters())
    was = {name: buffer.clone() for name, buffer in net.named_buffers()}
    with torch_aside(device), torch.no_grad(), mode:
        seed_torch(0, device)
        before = _stream(device)
        net(normalise(data, data.inputs[:2], own.dtype))
        draws = any(not torch.equal(a, b) for a, b in zip(before, _stream(device), strict=True))
    for name, buffer in net.named_buffers():
        buffer.copy_(was[name])
    vars(net).update(drops_out=mode.layers > 0, draws=draws)


def draws(net: nn.Module) -> bool:
    """Whether a network draws random numbers that cannot be drawn from a counter."""
    return vars(net).get("draws", False)


def dropping(net: nn.Module, key: Tensor) -> AbstractContextManager[Any]:
    """Let a network draw from the key of a step, if it does draw."""
    return Dropped(key) if vars(net).get("drops_out", False) else nullcontext()


@contextmanager
def drawing(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Leave torch's stream as it was, whatever a network draws from it meanwhile."""
    with torch_aside(device) if draws(net) else nullcontext():
        yield


def begin_step(net: nn.Module, key: Tensor) -> None:
    """Let what a network draws from torch's stream in a step depend on the step's key alone."""
    if draws(net):
        seed_torch(int(key), key.device)


def _stream(device: torch.device) -> list[Tensor]:
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]
