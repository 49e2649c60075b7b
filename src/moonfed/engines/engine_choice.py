"""Prepares a network for the engines, and turns the settings of engine and precision into an engine."""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from moonfed.core.seeds import seed_torch, torch_aside
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Engine, EngineOptions, Nets
from moonfed.engines.cpu_workers import CpuWorkers
from moonfed.engines.devices import is_gpu
from moonfed.engines.dropout import CounterDropout
from moonfed.engines.sequential import Sequential
from moonfed.engines.slices import Sliced
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.models import frozen_parts

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[Nets, Dataset, EngineOptions], Engine]] = {"sequential": Sequential, "stacked": Stacked}

MAX_STACKED_WEIGHTS = 5_000_000  # ten stacked ResNet-50s were no faster than one after the other on an H200

MIN_STACKED_BATCHES = 32  # of a data set on a CPU: with fewer, a stack's step is traced too late to pay off


def pick_engine(name: str, nets: Nets, data: Dataset, options: EngineOptions) -> Engine:
    """Turn an engine setting into an engine; auto stacks parties where that is faster.

    The choice depends on data and network alone: trials that resume by themselves get the same bits.
    """
    if options.precision != "fp32" and not is_gpu(data.inputs.device):
        logger.warning("precision %s needs a GPU; using fp32", options.precision)
        options = replace(options, precision="fp32")
    if name == "ray":
        from moonfed.engines.ray import RayEngine  # its workers pick their engine here

        return RayEngine(nets, data, options)
    large = sum(p.numel() for p in nets.training.parameters()) > MAX_STACKED_WEIGHTS
    if name == "auto" and large and not options.lanes:
        options = replace(options, lanes=1)
    on_cpu = not is_gpu(data.inputs.device)
    if name == "auto":
        name = "sequential" if on_cpu and len(data.labels) < MIN_STACKED_BATCHES * data.batch else "stacked"
    engine = ENGINES[name](nets, data, options)
    engine = CpuWorkers(engine) if on_cpu and not large else engine
    return Sliced(engine, options.slices) if options.slices > 1 else engine


def nets_of(model: nn.Module, data: Dataset) -> Nets:
    """Copy a model's code for training and for inference, and find out by trial forward passes what it does.

    Of the model's weights only frozen ones matter.
    """
    training = copy.deepcopy(model).train()
    for part in frozen_parts(training):
        part.eval()
    training.requires_grad_(False)
    inference = copy.deepcopy(model).requires_grad_(False).eval()
    return Nets(training, inference, *_inspect_randomness(training, data), _widest_layer(inference, data))


def _inspect_randomness(net: nn.Module, data: Dataset) -> tuple[bool, bool]:
    """Find out whether a network uses dropout, and whether it draws from torch's generator."""
    device = data.inputs.device
    mode = CounterDropout(torch.zeros((), dtype=torch.int64, device=device))
    dtype = next(net.parameters()).dtype
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    with torch_aside(device), torch.no_grad(), mode:
        seed_torch(0, device)
        before = _rng_state(device)
        net(normalise(data, data.inputs[:2], dtype))
        drawn = any(not torch.equal(a, b) for a, b in zip(before, _rng_state(device), strict=True))
    for name, buffer in net.named_buffers():
        buffer.copy_(buffers[name])
    return mode.layers > 0, drawn


def _rng_state(device: torch.device) -> list[Tensor]:
    gpu = [torch.cuda.get_rng_state(device)] if is_gpu(device) else []
    return [torch.get_rng_state(), *gpu]


def _widest_layer(net: nn.Module, data: Dataset) -> int:
    """Count the values that the widest layer of a network outputs per row."""
    widest = 1

    def record(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal widest
        several = isinstance(output, tuple | list)  # an LSTM returns its state as well
        outputs: Sequence[Any] = cast(Sequence[Any], output) if several else (output,)
        widest = max([widest, *(t.numel() for t in outputs if isinstance(t, Tensor))])

    hooks = [layer.register_forward_hook(record) for layer in net.modules()]
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        net(normalise(data, data.inputs[:1], dtype))
    for hook in hooks:
        hook.remove()
    return widest
