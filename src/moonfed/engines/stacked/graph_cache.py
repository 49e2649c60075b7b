"""Caches FX traces of frequently executed steps to avoid Python overhead; results are bit-identical."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.proxy import TraceError

from moonfed.core.tree import fill_tree, leaves, tree_map

logger = logging.getLogger(__name__)

TRACE_AFTER_CALLS = 100  # a trace takes about a second and saves a few milliseconds per call


class GraphCache:
    """The traces of one engine."""

    def __init__(self) -> None:
        self.calls: Counter[Hashable] = Counter()
        self.graphs: dict[Hashable, tuple[GraphModule, Any] | None] = {}  # None: it cannot be traced

    def run(self, key: Hashable, function: Callable[..., Any], trees: Any) -> Any:
        """Call a function on trees; key identifies everything that determines it except shapes and values."""
        flat = leaves(trees)
        key = key, tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in flat)
        self.calls[key] += 1
        if self.calls[key] > TRACE_AFTER_CALLS and key not in self.graphs:
            self.graphs[key] = _try_trace(function, trees)
        if (cached := self.graphs.get(key)) is None:
            return function(*trees)
        graph, template = cached
        with torch.no_grad():
            return fill_tree(template, graph(*flat))


def trace(function: Callable[..., Any], trees: Any) -> tuple[GraphModule, Any]:
    """Trace a function of trees, its gradients included, to plain operations on a flat list of tensors.

    Returns the graph and the tree that the function returned.
    """
    result: Any = None

    def flat_function(*tensors: Tensor) -> list[Tensor]:
        nonlocal result
        result = function(*fill_tree(trees, tensors))
        return leaves(result) if result is not None else []

    graph = make_fx(flat_function)(*(leaf.clone() for leaf in leaves(trees)))
    return graph, result


def _try_trace(function: Callable[..., Any], trees: Any) -> tuple[GraphModule, Any] | None:
    try:
        graph, result = trace(function, trees)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TraceError) as error:  # for example an operation that reads a value back
        logger.info("steps are not traced: %s", first_line(error))
        return None
    return graph, tree_map(lambda t: torch.empty(0), result)


def first_line(error: BaseException, limit: int = 160) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:limit]
