"""What config.json says of a run: settings, data, versions, machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from moonfed.data.dataset import Dataset
from moonfed.engines.devices import gpu_name, is_gpu
from moonfed.training.config import Config


def describe_run(config: Config, fingerprint: str, data: Dataset) -> dict[str, Any]:
    """Describe a run: settings, data, versions, machine."""
    algorithm, device = config.algorithm, data.inputs.device
    name = algorithm.name if algorithm.server is None else f"{algorithm.name}+{algorithm.server}"
    return {
        "name": f"{name} on {config.data.dataset}, seed {config.run.seed}",
        "identity": config.identity,
        "config": config.model_dump(mode="json"),
        "data": fingerprint,
        "inputs": describe_inputs(data),
        **({} if data.source is None else describe_source(config, data)),
        "versions": {"python": platform.python_version()} | {k: _version(k) for k in ("moonfed", "torch", "numpy")},
        "machine": {
            "system": platform.platform(),
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": gpu_name(device) if is_gpu(device) else None,
        },
    }


def describe_inputs(data: Dataset) -> dict[str, Any]:
    """Describe the rows a model was trained on, so that it can be built and used without them."""
    shape, kind = list(data.inputs.shape[1:]), str(data.inputs.dtype).removeprefix("torch.")
    scale = {"mean": list(data.mean), "std": list(data.std)}
    return {"shape": shape, "kind": kind, "words": data.words, "classes": data.classes} | scale


def describe_source(config: Config, data: Dataset) -> dict[str, Any]:
    """Describe user data: its classes, its parties, where it came from, which rows were skipped."""
    parties = {"parties": list(data.party_names)} if config.data.partition == "natural" else {}
    return {"source": data.source, "classes": list(data.class_names)} | parties


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
