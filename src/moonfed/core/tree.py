"""Arithmetic on dictionaries of tensors, and the flat form in which trees lie on disk."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from moonfed.core.types import Slots, Snapshot, Tensors

T = TypeVar("T")
vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm  # pyright: ignore


class _foreach:
    copy_: Callable[..., None] = torch._foreach_copy_  # pyright: ignore
    norm: Callable[..., tuple[Tensor, ...]] = torch._foreach_norm  # pyright: ignore


@overload
def tree_map(fn: Callable[[Tensor], Tensor], first: T, /) -> T: ...
@overload
def tree_map(fn: Callable[[Tensor, Tensor], Tensor], first: T, second: T, /) -> T: ...
@overload
def tree_map(fn: Callable[..., Tensor], first: T, *others: T) -> T: ...
def tree_map(fn: Callable[..., Tensor], first: T, *others: T) -> T:
    """Apply fn leaf by leaf to trees of dicts, tuples, lists and tensors of one shape."""
    trees: tuple[Any, ...] = (first, *others)
    head: Any = first
    if isinstance(head, Tensor):
        return fn(*trees)  # type: ignore[return-value]
    if isinstance(head, dict):
        return {k: tree_map(fn, *(t[k] for t in trees)) for k in head}  # type: ignore[return-value]
    parts = [tree_map(fn, *part) for part in zip(*trees, strict=True)]
    return type(head)(*parts) if hasattr(head, "_fields") else type(head)(parts)


def leaves(tree: Any) -> list[Tensor]:
    """List every tensor of a tree, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    parts: Any = tree.values() if isinstance(tree, dict) else tree  # type: ignore[union-attr]
    return [leaf for part in parts for leaf in leaves(part)]


def copy_into(into: Any, values: Any) -> None:
    """Write a tree's values into another's tensors, name by name: the order of names may differ."""
    old: list[Tensor] = []
    new: list[Tensor] = []

    def pair(mine: Tensor, other: Tensor) -> Tensor:
        old.append(mine)
        new.append(other)
        return mine

    tree_map(pair, into, values)
    _foreach.copy_(old, new)


def copied(tree: T) -> T:
    """Copy every tensor of a tree, laid out plainly."""

    def room(leaf: Tensor) -> Tensor:
        return torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)

    made = tree_map(room, tree)
    copy_into(made, tree)
    return made


def add(a: Tensors, b: Tensors) -> Tensors:
    """a + b."""
    return {k: a[k] + b[k] for k in a}


def sub(a: Tensors, b: Tensors) -> Tensors:
    """a - b."""
    return {k: a[k] - b[k] for k in a}


def scale(a: Tensors, by: float | Tensor) -> Tensors:
    """a times a number."""
    return {k: v * by for k, v in a.items()}


def zeros_like(a: Tensors) -> Tensors:
    """Zeros of a's shapes."""
    return {k: torch.zeros_like(v) for k, v in a.items()}


def norm(a: Tensors) -> Tensor:
    """The Euclidean norm over all entries."""
    return vector_norm(torch.stack([vector_norm(v) for v in a.values()]))


def nbytes(tree: Any) -> int:
    """Bytes that the tensors of a tree take."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def finite(tree: Any) -> bool:
    """Whether every floating-point entry of a tree is a finite number."""
    floats = [leaf for leaf in leaves(tree) if leaf.is_floating_point() and leaf.numel()]
    return not floats or bool(torch.isfinite(torch.stack(_foreach.norm(floats, float("inf")))).all())


def batches(tensor: Tensor, rows: int) -> tuple[Tensor, ...]:
    """Split a tensor into batches of so many rows; the last may be smaller."""
    return torch.split(tensor, rows)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def numbers(tensor: Tensor) -> list[Any]:
    """Return a tensor as nested lists of Python numbers."""
    return tensor.tolist()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def prefixed(name: str, a: Tensors) -> Tensors:
    """Put name/ before every key."""
    return {f"{name}/{k}": v for k, v in a.items()}


def under(name: str, a: Tensors) -> Tensors:
    """Take the entries below name/, without it."""
    start = f"{name}/"
    return {k[len(start) :]: v for k, v in a.items() if k.startswith(start)}


def pack(slots: Slots) -> Tensors:
    """Flatten slots into one dictionary of tensors whose keys say what each was."""
    flat: Tensors = {}
    for name, value in slots.items():
        if isinstance(value, Tensor):
            flat[name] = value
        elif isinstance(value, Snapshot):
            flat |= prefixed(f"{name}/weights", value.weights) | prefixed(f"{name}/buffers", value.buffers)
        else:
            flat |= prefixed(f"{name}/tensors", value)
    return flat


def unpack(flat: Tensors) -> Slots:
    """Rebuild what pack flattened."""
    slots: Slots = {}
    for name in dict.fromkeys(key.split("/", 1)[0] for key in flat):
        if name in flat:
            slots[name] = flat[name]
            continue
        below = under(name, flat)
        tensors = under("tensors", below)
        slots[name] = tensors or Snapshot(under("weights", below), under("buffers", below))
    return slots


def in_order(slots: Slots, names: Sequence[str]) -> Slots:
    """Put tensors in the order of a model's names: files sort them, and sums depend on the order."""
    place = {name: i for i, name in enumerate(names)}

    def ordered(tensors: Tensors) -> Tensors:
        def key(name: str) -> int:
            return place.get(name.removeprefix("weights/").removeprefix("buffers/"), len(place))

        return {name: tensors[name] for name in sorted(tensors, key=key)}

    def slot(value: Snapshot | Tensors | Tensor) -> Snapshot | Tensors | Tensor:
        if isinstance(value, Snapshot):
            return Snapshot(ordered(value.weights), ordered(value.buffers))
        return ordered(value) if isinstance(value, dict) else value

    return {name: slot(value) for name, value in slots.items()}
