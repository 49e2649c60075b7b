"""Engines train cohorts: they own loops and devices, share one interface and pass the same tests."""

import logging
from collections.abc import Callable
from dataclasses import replace

import torch

from moonfed.data.dataset import Dataset
from moonfed.engines.base import Engine, EngineOptions, Job, JobResult, Nets, nets_of
from moonfed.engines.cuda.precision import PRECISIONS, numeric_precision, overflow_hint
from moonfed.engines.devices import is_gpu, pick_device
from moonfed.engines.sequential import Sequential
from moonfed.engines.stacked.stacked_engine import Stacked

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[Nets, Dataset, EngineOptions], Engine]] = {"sequential": Sequential, "stacked": Stacked}

MAX_STACKED_WEIGHTS = 5_000_000  # ten stacked ResNet-50s were no faster than one after the other on an H200
FP16_ENCODERS = ("cnn",)  # encoders that lost less than half a point against fp32 over 100 rounds: results/speed.md


def pick_precision(name: str, device: torch.device, encoder: str | None = None) -> str:
    """Turn a precision setting into a precision; a CPU has only fp32; auto is fp16 for tested encoders, else tf32."""
    if not is_gpu(device):
        return "fp32"
    fastest = "fp16" if encoder in FP16_ENCODERS else "tf32"
    return fastest if name == "auto" else name


def pick_engine(name: str, nets: Nets, data: Dataset, options: EngineOptions) -> Engine:
    """Turn an engine setting into an engine; auto stacks parties unless one of them fills the device by itself."""
    precision = pick_precision(options.precision, data.inputs.device)
    if options.precision not in ("auto", precision):
        logger.warning("precision %s needs a GPU; using %s", options.precision, precision)
    options = replace(options, precision=precision)
    large = sum(p.numel() for p in nets.training.parameters()) > MAX_STACKED_WEIGHTS
    if name == "auto" and large and not options.lanes:
        options = replace(options, lanes=1)
    return ENGINES["stacked" if name == "auto" else name](nets, data, options)


__all__ = [
    "ENGINES",
    "PRECISIONS",
    "Engine",
    "EngineOptions",
    "Job",
    "JobResult",
    "Nets",
    "nets_of",
    "numeric_precision",
    "overflow_hint",
    "pick_device",
    "pick_engine",
    "pick_precision",
]
