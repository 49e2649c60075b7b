"""Arithmetic on dictionaries of tensors, and walks over trees of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from moonfed.core.types import Tensors

T = TypeVar("T")
# Functions of torch that it leaves untyped.
vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm  # pyright: ignore
batches: Callable[[Tensor, int], tuple[Tensor, ...]] = torch.split  # pyright: ignore
numbers: Callable[[Tensor], list[Any]] = Tensor.tolist  # pyright: ignore
foreach_norm: Callable[..., tuple[Tensor, ...]] = torch._foreach_norm  # pyright: ignore
foreach_add: Callable[..., tuple[Tensor, ...]] = torch._foreach_add  # pyright: ignore
foreach_sub: Callable[..., tuple[Tensor, ...]] = torch._foreach_sub  # pyright: ignore
foreach_mul: Callable[..., tuple[Tensor, ...]] = torch._foreach_mul  # pyright: ignore


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
    parts: Any = tree.values() if isinstance(tree, dict | Mapping) else tree  # type: ignore[union-attr]
    return [leaf for part in parts for leaf in leaves(part)]


def fill_tree(tree: T, tensors: Iterable[Tensor]) -> T:
    """Return a tree of the same structure with other tensors."""
    remaining = iter(tensors)
    return tree_map(lambda _: next(remaining), tree)


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


def dot(a: Tensors, b: Tensors) -> Tensor:
    """The inner product over all entries, by name."""
    return torch.stack([(v * b[k]).sum() for k, v in a.items()]).sum()


def squared_distance(a: Tensors, b: Tensors) -> Tensor:
    """||a - b||^2 over all entries."""
    away = sub(a, b)
    return dot(away, away)


def norm(a: Tensors) -> Tensor:
    """The Euclidean norm over all entries."""
    return vector_norm(torch.stack([vector_norm(v) for v in a.values()]))


def nbytes(tree: Any) -> int:
    """Bytes that the tensors of a tree take."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def finite(tree: Any) -> bool:
    """Whether every floating-point entry of a tree is a finite number."""
    floats = [leaf for leaf in leaves(tree) if leaf.is_floating_point() and leaf.numel()]
    return not floats or bool(torch.isfinite(torch.stack(foreach_norm(floats, float("inf")))).all())


def union(first: dict[str, T], second: dict[str, T]) -> dict[str, T]:
    """Put what two rules name together; a name that both use is an error in one of them."""
    if both := first.keys() & second.keys():
        raise TypeError(f"two rules both use the name {', '.join(sorted(both))}; rename one")
    return first | second


def prefixed(name: str, a: Tensors) -> Tensors:
    """Put name/ before every key."""
    return {f"{name}/{k}": v for k, v in a.items()}


def under(name: str, a: Tensors) -> Tensors:
    """Take the entries below name/, without it."""
    start = f"{name}/"
    return {k[len(start) :]: v for k, v in a.items() if k.startswith(start)}
