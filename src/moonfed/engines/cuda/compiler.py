"""Compiles the functions of a stack for a GPU, at once or in a thread of its own while training goes on."""

import atexit
import copy
import ctypes
import logging
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode

from moonfed.core.seeds import torch_streams_held
from moonfed.core.tree import leaves, tree_map
from moonfed.engines.stacked.graph_cache import first_line, trace
from moonfed.engines.stacked.stack_spec import StackSpec

logger = logging.getLogger(__name__)

StackFunction = Callable[..., None]
"""Takes a StackSpec and trees of tensors; reads and writes only these."""
Compiled = Callable[[Any], None]
"""Takes the trees as a tuple."""

MAX_SECONDS_TO_STOP = 30.0  # at the end of the process, for what is being compiled
NO_MEMORY = "training stays uncompiled: there is no memory left to compile beside it"
SWITCH_INTERVAL = 2e-4  # seconds until a waiting thread gets the interpreter; Python's own 5e-3 hold up every step


def compile_function(function: StackFunction, spec: StackSpec, trees: Any) -> Compiled:
    """Trace a function to one graph of plain operations and compile that; it is executed, so the trees change."""
    graph, _ = trace(partial(function, spec), trees)
    inductor, shape_environment = _import_compiler()
    # Without a shape environment the compiler would not look into its cache on the disk.
    shapes = FakeTensorMode(shape_env=shape_environment(), static_shapes=True)
    with torch.no_grad(), tracing(TracingContext(shapes)), torch_streams_held():
        compiled: Any = inductor.compile(graph, leaves(trees))

    def run(trees: Any) -> None:
        with torch.no_grad():
            compiled(*leaves(trees))

    run(trees)
    return run


@cache
def _import_compiler() -> tuple[Any, Any]:
    """Import torch's compiler when it is first needed; the import itself warns of what torch deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("torch._inductor.compile_fx")
    return import_module("torch._inductor"), import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv


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
        self.work = {name: (function, copied_with_strides(trees)) for name, (function, trees) in work.items()}
        self.compiled: dict[str, Compiled] = {}
        self.done = threading.Event()
        _thread().waiting.put(self)

    def run(self) -> None:
        """Compile, in the compiler's thread."""
        torch.cuda.set_device(self.device)
        try:
            for name, (function, trees) in self.work.items():
                if compiled := try_compile(name, function, self.spec, trees):
                    self.compiled[name] = compiled
            torch.cuda.synchronize(self.device)
        except torch.OutOfMemoryError:
            logger.info(NO_MEMORY)
        finally:
            self.work = {}
            self.done.set()


def copied_with_strides(trees: Any) -> Any:
    """Copy tensors with their strides, for which code is compiled."""

    def duplicate(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)

    return tree_map(duplicate, trees)


class CompilerThread(threading.Thread):
    """Compiles what is put into its queue, one after the other, until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="compiler", daemon=True)
        self.waiting: queue.Queue[Compilation | None] = queue.Queue()
        self.stopping = False

    def run(self) -> None:
        """Compile until it is stopped."""
        while (compilation := self.waiting.get()) is not None and not self.stopping:
            before = sys.getswitchinterval()
            sys.setswitchinterval(min(before, SWITCH_INTERVAL))
            try:
                compilation.run()
            except Exception as error:  # it must not end the thread, whatever it is
                logger.warning("training stays uncompiled: %s: %s", type(error).__name__, first_line(error, 200))
                logger.debug("compilation", exc_info=True)
            sys.setswitchinterval(before)

    def stop(self) -> None:
        """Give up at the end of the process: a thread that is torn from the compiler's C++ code aborts it."""
        self.stopping = True
        self.waiting.put(None)
        if self.is_alive() and self.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(SystemExit))
            self.join(MAX_SECONDS_TO_STOP)


@cache
def _thread() -> CompilerThread:
    """Start the compiler's thread."""
    thread = CompilerThread()
    thread.start()
    atexit.register(thread.stop)
    return thread
