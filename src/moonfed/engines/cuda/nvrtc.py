"""Compiles CUDA sources at run time by NVRTC, the compiler that comes with torch, and launches their kernels."""

import ctypes
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moonfed.core.files import write_whole

OPTIONS = ("--std=c++17",)
KernelArgument = Tensor | int | None  # a pointer, a 32-bit integer, a null pointer


class CudaModule:
    """A CUDA source, compiled for one GPU."""

    def __init__(self, source: str, macros: Mapping[str, int], device: torch.device) -> None:
        self.device = device
        major, minor = torch.cuda.get_device_capability(device)
        options = [f"--gpu-architecture=sm_{major}{minor}", *OPTIONS, *(f"-D{k}={v}" for k, v in macros.items())]
        self.module = ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.current_stream(device).synchronize()  # makes torch's context the current one
            check(_driver().cuModuleLoadData(ctypes.byref(self.module), machine_code(source, options)), "load")
        self.functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, grid: tuple[int, int, int], threads: int, *args: KernelArgument) -> None:
        """Start a kernel on the current stream."""
        if name not in self.functions:
            function = ctypes.c_void_p()
            check(_driver().cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()), f"find {name}")
            self.functions[name] = function
        values = [_c_value(arg) for arg in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with torch.cuda.device(self.device):
            stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
            sizes = (*grid, threads, 1, 1, 0)
            check(_driver().cuLaunchKernel(self.functions[name], *sizes, stream, pointers, None), f"launch {name}")


def _c_value(arg: KernelArgument) -> Any:
    if isinstance(arg, int):
        return ctypes.c_int(arg)
    return ctypes.c_void_p(None if arg is None else arg.data_ptr())


def machine_code(source: str, options: Sequence[str]) -> bytes:
    """Compile a source, or read what was compiled before from the folder that torch's compiler uses."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not folder:
        return compile_source(source, options)
    digest = hashlib.sha256("\n".join([source, torch.__version__, str(torch.version.cuda), *options]).encode())
    path = Path(folder) / "moonfed" / f"{digest.hexdigest()}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        code = compile_source(source, options)
    with suppress(OSError):  # a folder that cannot be written costs a second per process
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, code)
    return code


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """Compile a source to machine code; raises RuntimeError with the compiler's messages."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"moonfed.cu", 0, None, None), "create")
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            raise RuntimeError(f"NVRTC: {_read(nvrtc, program, 'ProgramLog').decode(errors='replace')}")
        return _read(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    text = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{what}")(program, text), what)
    return text.raw


def check(status: int, doing: str) -> None:
    """Raise RuntimeError if a call of NVRTC or of the driver failed."""
    if status:
        raise RuntimeError(f"CUDA error {status} on {doing}")


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _nvrtc() -> Any:
    """Find NVRTC: torch has loaded it, or it is among the packages that torch requires."""
    major = str(torch.version.cuda).partition(".")[0]
    folders = [Path(folder) / "nvidia" for folder in sys.path if folder]
    found = [str(path) for folder in folders for path in sorted(folder.glob(f"**/libnvrtc.so.{major}*"))]
    for name in (f"libnvrtc.so.{major}", *found, "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("no NVRTC library")
