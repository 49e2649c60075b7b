"""Steps taken often are written down once as flat lists of operations: the same bits without Python's share of them."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from moonfed.core.tree import leaves, tree_map

AFTER = 200  # steps; writing one down takes a second and saves a few milliseconds each time


class Traces:
    """What an engine has written down."""

    def __init__(self) -> None:
        self.taken: Counter[Hashable] = Counter()
        self.written: dict[Hashable, tuple[GraphModule, Any] | None] = {}

    def run(self, key: Hashable, act: Callable[..., Any], trees: Any) -> Any:
        """Do what act does to trees; key says everything that decides it but the shapes and numbers in them."""
        flat = leaves(trees)
        key = key, tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in flat)
        self.taken[key] += 1
        if self.taken[key] > AFTER and key not in self.written:
            self.written[key] = _written_down(act, trees)
        if (found := self.written.get(key)) is None:
            return act(*trees)
        graph, like = found
        with torch.no_grad():
            return refilled(like, graph(*flat))


def flat_graph(act: Callable[..., Any], trees: Any) -> tuple[GraphModule, Any]:
    """Trace a function of trees, gradients and all, to plain operations on a flat list of tensors."""
    like: list[Any] = [None]

    def of_flat(*tensors: Tensor) -> list[Tensor]:
        like[0] = act(*refilled(trees, tensors))
        return leaves(like[0]) if like[0] is not None else []

    graph = make_fx(of_flat)(*(leaf.clone() for leaf in leaves(trees)))
    return graph, like[0]


def refilled(tree: Any, tensors: Any) -> Any:
    """Put other tensors in the places of a tree's."""
    given = iter(tensors)
    return tree_map(lambda _: next(given), tree)


def _written_down(act: Callable[..., Any], trees: Any) -> tuple[GraphModule, Any] | None:
    try:
        graph, like = flat_graph(act, trees)
    except Exception:  # a net that decides by its numbers what to do, say: it goes on as it did
        return None
    return graph, tree_map(lambda t: torch.empty(0), like)
