"""Engines own loops and devices; every one answers the same call and passes the same tests."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import nn

from moonfed.data.dataset import Dataset
from moonfed.engines.cuda.precision import PRECISIONS, numerics
from moonfed.engines.sequential import Sequential
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.engines.step import Job, JobResult, Nets, Options
from moonfed.models import frozen_parts


class Engine(Protocol):
    """Trains the parties of a round."""

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results come in the order of the jobs."""
        ...


ENGINES: dict[str, Callable[[Nets, Dataset, Options], Engine]] = {"sequential": Sequential, "stacked": Stacked}

STACKS_WELL = 5_000_000  # parameters; ten stacked ResNet-50s were no faster than one after the other on an H200
IN_FP16 = ("cnn",)  # encoders held against fp32 over 100 rounds that did not lose half a point: results/speed.md


def nets_of(model: nn.Module) -> Nets:
    """Take a model's code twice, for training and frozen; of its weights only those that never learn count."""
    training = copy.deepcopy(model).train()
    for part in frozen_parts(training):
        part.eval()
    return Nets(training.requires_grad_(False), copy.deepcopy(model).requires_grad_(False).eval())


def pick_device(name: str) -> torch.device:
    """Turn a device setting into a device; auto is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def pick_precision(name: str, device: torch.device, encoder: str | None = None) -> str:
    """Turn a precision setting into a precision: a CPU has one; auto is fp16 for nets held against fp32, else tf32."""
    if device.type != "cuda":
        return "fp32"
    fastest = "fp16" if encoder in IN_FP16 else "tf32"
    return fastest if name == "auto" else name


def pick_engine(name: str, nets: Nets, data: Dataset, options: Options) -> Engine:
    """Turn an engine setting into an engine; auto stacks parties unless one of them fills the device by itself."""
    precision = pick_precision(options.precision, data.inputs.device)
    if options.precision not in ("auto", precision):
        options.say(f"precision {options.precision} is for GPUs: this runs in {precision}")
    options = replace(options, precision=precision)
    large = sum(p.numel() for p in nets.training.parameters()) > STACKS_WELL
    if name == "auto" and large and not options.lanes:
        options = replace(options, lanes=1)
    return ENGINES["stacked" if name == "auto" else name](nets, data, options)


__all__ = [
    "ENGINES",
    "PRECISIONS",
    "Engine",
    "Job",
    "JobResult",
    "Nets",
    "Options",
    "nets_of",
    "numerics",
    "pick_device",
    "pick_engine",
    "pick_precision",
]
