"""Runs CUDA sources on a CPU: every thread of a block is a thread of the operating system, one block after another."""

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

SHIM = r"""
#include <barrier>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
struct float4 { float x, y, z, w; };
struct float2 { float x, y; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Three { unsigned x, y, z; };
static thread_local Three threadIdx, blockIdx;
static Three gridDim;
static std::unique_ptr<std::barrier<>> all;
static void __syncthreads() { all->arrive_and_wait(); }
"""
LAUNCH = r"""
template <class Run> static void on_grid(const int* grid, int threads, Run run) {
    gridDim = {unsigned(grid[0]), unsigned(grid[1]), unsigned(grid[2])};
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                all = std::make_unique<std::barrier<>>(threads);
                std::vector<std::thread> team;
                for (unsigned t = 0; t < unsigned(threads); t++)
                    team.emplace_back([=] {
                        threadIdx = {t, 0, 0};
                        blockIdx = {x, y, z};
                        run();
                        all->arrive_and_drop();
                    });
                for (auto& member : team) member.join();
            }
}
extern "C" void launch_forward(const int* grid, int threads, const float* x, const float* w, const float* b, float* y,
                               unsigned char* winner) {
    on_grid(grid, threads, [=] { forward(x, w, b, y, winner); });
}
extern "C" void launch_weight_gradient(const int* grid, int threads, const float* x, const float* grad,
                                       const unsigned char* winner, float* parts) {
    on_grid(grid, threads, [=] { weight_gradient(x, grad, winner, parts); });
}
extern "C" void launch_add_parts(const int* grid, int threads, const float* parts, float* grad_w, float* grad_b,
                                 int count) {
    on_grid(grid, threads, [=] { add_parts(parts, grad_w, grad_b, count); });
}
extern "C" void launch_images_last(const int* grid, int threads, const float* from, float* to) {
    on_grid(grid, threads, [=] { images_last(from, to); });
}
extern "C" void launch_input_gradient(const int* grid, int threads, const float* w, const float* grad,
                                      const unsigned char* winner, float* grad_x) {
    on_grid(grid, threads, [=] { input_gradient(w, grad, winner, grad_x); });
}
"""


class CudaOnCpu:
    """A CUDA source compiled for this machine's processor; it is launched like one compiled for a GPU."""

    def __init__(self, source: str, macros: Mapping[str, int], folder: Path) -> None:
        program, library = folder / "kernels.cpp", folder / "kernels.so"
        program.write_text(SHIM + source + LAUNCH)
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", *defines]
        subprocess.run([*command, "-o", str(library), str(program)], check=True)
        self.library = ctypes.CDLL(str(library))

    def launch(self, name: str, grid: tuple[int, int, int], threads: int, *args: Tensor | int | None) -> None:
        """Run a kernel on tensors in main memory."""
        sizes = (ctypes.c_int * 3)(*grid)
        values = [
            arg if isinstance(arg, int) else ctypes.c_void_p(arg if arg is None else arg.data_ptr()) for arg in args
        ]
        getattr(self.library, f"launch_{name}")(sizes, threads, *values)
