"""Compiles the functions of a stack for a GPU, at once or in a thread of its own while training goes on."""

import copy
import logging
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch

from moonfed.core.tree import leaves, tree_map
from moonfed.engines.stacked.graph_cache import first_line, trace
from moonfed.engines.stacked.stack_spec import StackSpec

logger = logging.getLogger(__name__)

StackFunction = Callable[..., None]
"""Takes a StackSpec and trees of tensors; reads and writes only these."""
Compiled = Callable[[Any], None]
"""Takes the trees as a tuple."""

SWITCH_INTERVAL = 2e-4  # seconds until a waiting thread gets the interpreter; Python's own 5e-3 hold up every step


def compile_function(function: StackFunction, spec: StackSpec, trees: Any) -> Compiled:
    """Trace a function to one graph of plain operations and compile that; it is executed, so the trees change."""
    graph, _ = trace(partial(function, spec), trees)
    with torch.no_grad():
        compiled: Any = torch._inductor.compile(graph, leaves(trees))  # pyright: ignore

    def run(trees: Any) -> None:
        with torch.no_grad():
            compiled(*leaves(trees))

    run(trees)
    return run


def try_compile(name: str, function: StackFunction, spec: StackSpec, trees: Any) -> Compiled | None:
    """Compile a function; None if the compiler cannot do it."""
    try:
        return compile_function(function, spec, trees)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError) as error:  # what the tracer, the compiler and CUDA raise
        logger.info("the %s runs uncompiled: %s: %s", name, type(error).__name__, first_line(error, 200))
        return None


class Compilation:
    """Functions that are being compiled, on copies of their trees and networks, while training goes on."""

    def __init__(self, spec: StackSpec, work: Mapping[str, tuple[StackFunction, Any]], device: torch.device) -> None:
        self.device = device
        self.spec = spec._replace(nets=copy.deepcopy(spec.nets))  # a forward pass puts weights into the modules
        self.work = {name: (function, copied_as_they_lie(trees)) for name, (function, trees) in work.items()}
        self.compiled: dict[str, Compiled] = {}
        self.done = threading.Event()
        _thread().put(self)

    def run(self) -> None:
        """Compile, in the compiler's thread."""
        torch.cuda.set_device(self.device)
        try:
            for name, (function, trees) in self.work.items():
                if compiled := try_compile(name, function, self.spec, trees):
                    self.compiled[name] = compiled
            torch.cuda.synchronize(self.device)
        except torch.OutOfMemoryError:
            logger.info("training stays uncompiled: there is no memory left to compile beside it")
        finally:
            self.work = {}
            self.done.set()


def copied_as_they_lie(trees: Any) -> Any:
    """Copy tensors with their order in memory, for which code is compiled."""

    def duplicate(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)

    return tree_map(duplicate, trees)


@cache
def _thread() -> "queue.Queue[Compilation]":
    """Start the compiler's thread; what is put into the queue is compiled in turn."""
    waiting: queue.Queue[Compilation] = queue.Queue()
    threading.Thread(target=_compile_all, args=(waiting,), name="compiler", daemon=True).start()
    return waiting


def _compile_all(waiting: "queue.Queue[Compilation]") -> None:
    while True:
        compilation = waiting.get()
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, SWITCH_INTERVAL))
        try:
            compilation.run()
        except Exception as error:  # it must not end the thread, whatever it is
            logger.info("training stays uncompiled: %s: %s", type(error).__name__, first_line(error, 200))
        sys.setswitchinterval(before)
