"""Picks, describes and measures devices, so that other rooms need not name one."""

import platform
from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock

import torch

from moonfed.core.errors import UserError

DEVICE_HELP = "auto, cpu, cuda or cuda:N"
DEVICE_PATTERN = r"^(auto|cpu|cuda(:\d{1,2})?)$"  # what --device takes
DEVICE_KINDS = ("auto", "cpu", "cuda")

EVALUATION_ROWS = 1000  # rows per forward pass
SMALL_MODEL_WEIGHTS = 1_000_000  # a GPU takes ten times as many rows at once through a smaller model

Device = torch.device

_threads_setting = RLock()


def pick_device(name: str) -> Device:
    """Turn a device setting into a device that this machine has; auto is the GPU if there is one."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    device = torch.device(name)
    if is_gpu(device) and (device.index or 0) >= gpus:
        there = f"the last is cuda:{gpus - 1}" if gpus else "there is none"
        raise UserError(f"device {name} needs a GPU that torch can use, and {there}; use --device cpu or auto")
    return device


def is_gpu(device: Device) -> bool:
    """Whether a device computes while this process does something else."""
    return device.type == "cuda"


def rows_per_forward(weights: int, device: Device) -> int:
    """Return how many rows a device takes at once through a model of so many weights, without gradients."""
    return 10 * EVALUATION_ROWS if is_gpu(device) and weights < SMALL_MODEL_WEIGHTS else EVALUATION_ROWS


def gpu_name(device: Device | None = None) -> str | None:
    """Return the name of a GPU, the default one unless given; None if there is none or the device is a CPU."""
    if not torch.cuda.is_available() or (device is not None and not is_gpu(device)):
        return None
    return torch.cuda.get_device_name(device)


def device_name(device: Device) -> str:
    """Return the name of the GPU or of the processor."""
    return gpu_name(device) or platform.processor() or platform.machine()


def synchronise(device: Device) -> None:
    """Wait until a device has finished its work, so that a clock may be read."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


@contextmanager
def single_threaded() -> Generator[None]:
    """Run every operation on one CPU thread for a while; the setting is the process's, so one block at a time."""
    with _threads_setting:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def set_threads(threads: int) -> None:
    """Set the number of CPU threads."""
    torch.set_num_threads(threads)


def release_memory(device: Device) -> None:
    """Return unused memory of a GPU to the system."""
    if is_gpu(device):
        torch.cuda.empty_cache()


def reset_peak_memory(device: Device) -> int:
    """Start to record the peak memory of a GPU; returns the bytes in use now, 0 on a CPU."""
    if not is_gpu(device):
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_memory(device: Device) -> int:
    """Return the most bytes of a GPU in use since reset_peak_memory, 0 on a CPU."""
    return torch.cuda.max_memory_allocated(device) if is_gpu(device) else 0


def free_memory(device: Device) -> int:
    """Return the bytes that can still be allocated on a GPU."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
