"""Arithmetic on dictionaries of tensors, and walks over trees of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from moonfed.core.types import Tensors

T = TypeVar("T")
# Functions of torch that it leaves untyped.
vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm  # pyright: ignore
batches: Callable[[Tensor, int], tuple[Tensor, ...]] = torch.split  # pyright: ignore
parts_of: Callable[[Tensor, list[int]], tuple[Tensor, ...]] = torch.split  # pyright: ignore
numbers: Callable[[Tensor], list[Any]] = Tensor.tolist  # pyright: ignore
foreach_norm: Callable[..., tuple[Tensor, ...]] = torch._foreach_norm  # pyright: ignore
foreach_add: Callable[..., tuple[Tensor, ...]] = torch._foreach_add  # pyright: ignore
base_of: Callable[[Tensor], Tensor | None] = attrgetter("_base")  # of which a tensor is a view; None if of none
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
    return [leaf for part in parts for leaf in ((part,) if isinstance(part, Tensor) else leaves(part))]


def fill_tree(tree: T, tensors: Iterable[Tensor]) -> T:
    """Return a tree of the same structure with other tensors."""
    remaining = iter(tensors)
    return tree_map(lambda _: next(remaining), tree)


def rows_of(tree: T, count: int) -> list[T]:
    """Take a tree whose tensors have a first axis of a length in common apart: one tree of rows for each place."""
    whole: Any = tree
    if isinstance(whole, Tensor):
        return list(whole.unbind())  # type: ignore[arg-type]
    parts: list[Any] = list(whole.values() if isinstance(whole, dict) else whole)  # pyright: ignore
    rows = list(zip(*(rows_of(part, count) for part in parts), strict=True)) if parts else [()] * count
    if isinstance(whole, dict):
        return [dict(zip(whole, row, strict=True)) for row in rows]  # pyright: ignore
    return [type(whole)(*row) if hasattr(whole, "_fields") else type(whole)(row) for row in rows]


def bases_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """List the tensors of which these are parts, each once; what holds for all of their numbers holds for these."""
    found = [tensor if (whole := base_of(tensor)) is None else whole for tensor in tensors]
    return list({id(whole): whole for whole in found}.values())


def stack_rows(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape; if they are rows of one tensor already, one after the other, nothing is copied."""
    first, whole, count = tensors[0], base_of(tensors[0]), len(tensors)
    if whole is not None and count > 1:
        begin, *others = map(Tensor.storage_offset, tensors)
        step = others[0] - begin
        in_order = step > 0 and others == list(range(begin + step, begin + count * step, step))
        if (
            in_order
            and len({(tensor.shape, tensor.stride()) for tensor in tensors}) == 1
            and all(map(is_, map(base_of, tensors), repeat(whole)))
        ):
            return first.as_strided((count, *first.shape), (step, *first.stride()))
    return torch.stack(list(tensors))


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
