"""Engines train cohorts: they own loops and devices, share one interface and pass the same tests."""

from moonfed.engines.base import Closing, Engine, EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.precision import PRECISIONS, numeric_precision, overflow_hint, pick_precision
from moonfed.engines.devices import pick_device
from moonfed.engines.engine_choice import ENGINES, nets_of, pick_engine

__all__ = [
    "ENGINES",
    "PRECISIONS",
    "Closing",
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
