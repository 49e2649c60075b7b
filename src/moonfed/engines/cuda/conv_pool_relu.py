"""A convolution, 2x2 max pooling and ReLU of stacked lanes as one operation, in 32-bit arithmetic.

For lanes with few channels, for which cuDNN spends its time on copies and on the tensors in between. Arrays end in the
images of a batch: [lane, channel, row, column, image].
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function

from moonfed.engines.cuda.fp16_conv import convolution_backward
from moonfed.engines.cuda.nvrtc import CudaModule

THREADS = 128  # of a block of the forward pass, and of the gradient of the input
IMAGES = 32  # at most so many of a batch side by side in a tile, as in the source
MAX_PATCH_VALUES, MAX_OUT_CHANNELS, MAX_KERNEL = 192, 64, 7  # with more, cuDNN is faster
MAX_SHARED_BYTES = 48 * 1024  # of a block's own memory
FEW_PAIRS = 64  # with fewer pairs of windows per image, threads compute fewer channels each, so that there are more
MAX_SUMS = 100  # numbers that a thread sums at once for the gradient of weights
WARPS_WANTED = 2_640  # twenty for each of the 132 multiprocessors of an H200
NONE = 4  # the winner of a window without a positive value


class Layer(NamedTuple):
    """What the kernels are compiled for."""

    channels: int  # of the input
    out: int
    height: int
    width: int
    kernel: int
    pad: int
    batch: int = 1

    @property
    def pooled(self) -> tuple[int, int]:
        """The height and the width of the output."""
        high, wide = (size + 2 * self.pad - self.kernel + 1 for size in (self.height, self.width))
        return high // 2, wide // 2

    @property
    def pairs(self) -> int:
        """How many pairs of neighbouring windows a row of the output consists of."""
        return -(-self.pooled[1] // 2)

    @property
    def places(self) -> tuple[int, int]:
        """How many rows of 2x2 places, and how many pairs of them in a row, the input consists of."""
        high, wide = ((size + self.pad + 1) // 2 - self.pad // 2 for size in (self.height, self.width))
        return high, -(-wide // 2)

    @property
    def images(self) -> int:
        """How many images of the batch lie side by side in a tile."""
        return min(self.batch, IMAGES)

    @property
    def image_tiles(self) -> int:
        """How many such tiles there are."""
        return -(-self.batch // self.images)

    @property
    def macros(self) -> dict[str, int]:
        """Name the sizes and the work of a thread and of a block, as the source does."""
        sizes = dict(zip(("IN", "OUT", "HEIGHT", "WIDTH", "KERNEL", "PAD", "BATCH"), self, strict=True))
        return sizes | {
            "OUT_PER_THREAD": even_share(self.out, 8 if self.pooled[0] * self.pairs >= FEW_PAIRS else 4),
            "GRAD_OUT_PER_THREAD": even_share(self.out, max(1, min(8, MAX_SUMS // self.kernel**2))),
            "IN_PER_THREAD": even_share(self.channels, 8 if self.places[0] * self.places[1] >= FEW_PAIRS else 4),
            "PAIRS_PER_BLOCK": even_share(self.pairs, 8),
            "THREADS": THREADS,
        }

    def blocks(self, channels: str) -> int:
        """Count the shares in which a kernel's blocks or warps divide the channels."""
        return -(-(self.channels if channels == "IN_PER_THREAD" else self.out) // self.macros[channels])

    def fits(self) -> bool:
        """Whether the kernels are made for it."""
        if not (self.pad < self.kernel <= MAX_KERNEL and min(self.height, self.width) + 2 * self.pad > self.kernel):
            return False
        small = self.channels * self.kernel**2 <= MAX_PATCH_VALUES and self.out <= MAX_OUT_CHANNELS
        values = self.batch * max(self.channels * self.height * self.width, self.out * self.pooled[0] * self.pooled[1])
        small = small and values < 2**31  # of a lane: places are 32-bit numbers
        return small and max(self.shared_bytes()) <= MAX_SHARED_BYTES and self.blocks("GRAD_OUT_PER_THREAD") <= 32

    def shared_bytes(self) -> tuple[int, int, int]:
        """Add up what the blocks of the three kernels keep in their own memory, for whole tiles."""
        taps, macros = self.kernel**2, self.macros
        out, wide = (-(-macros[k] // 4) * 4 * taps for k in ("OUT_PER_THREAD", "IN_PER_THREAD"))
        band = (self.kernel + 1) * (4 * macros["PAIRS_PER_BLOCK"] + self.kernel - 1) * IMAGES
        sums = self.blocks("GRAD_OUT_PER_THREAD") * (taps + 1) * (IMAGES + 1)
        return 4 * self.channels * out, 4 * (band + sums), 4 * self.out * wide

    def tiles(self, pairs: int) -> int:
        """Count the tiles of images and pairs: one for each block of threads."""
        return self.image_tiles * -(-pairs // (THREADS // self.images))


def even_share(channels: int, limit: int) -> int:
    """Divide channels into as few shares as a limit allows, and as even as possible."""
    return -(-channels // -(-channels // limit))


@cache
def compiled_for(layer: Layer, gradients: bool, device: torch.device) -> CudaModule:
    """Compile the kernels for a layer, once per process."""
    return CudaModule(source_of(gradients), layer.macros, device)


def source_of(gradients: bool) -> str:
    """Read the source of the kernels, with those of the gradients if asked."""
    names = ("conv_pool_relu.cu", "conv_pool_relu_gradients.cu")[: 1 + gradients]
    return "\n".join(files("moonfed.engines.cuda").joinpath(name).read_text() for name in names)


def layer_of(x: Tensor, w: Tensor, pad: int) -> Layer:
    """Describe the layer that has such inputs and weights."""
    return Layer(w.shape[2], w.shape[1], x.shape[2], x.shape[3], w.shape[3], pad, x.shape[4])


@torch.library.custom_op("moonfed::conv_pool_relu", mutates_args=())
def conv_pool_relu_op(x: Tensor, w: Tensor, b: Tensor, pad: int, with_winner: bool) -> tuple[Tensor, Tensor]:
    """Return the output and, if asked, which of its four convolution outputs each of its values is."""
    lanes, out, batch = w.shape[0], w.shape[1], x.shape[-1]
    high, wide = layer_of(x, w, pad).pooled
    images = x.permute(4, 0, 1, 2, 3).flatten(1, 2)
    dense = F.conv2d(images, w.flatten(0, 1), b.flatten(), padding=pad, groups=lanes)[..., : 2 * high, : 2 * wide]
    windows = dense.reshape(batch, lanes, out, high, 2, wide, 2).permute(1, 2, 3, 5, 0, 4, 6).flatten(-2)
    best, at = windows.max(-1)
    winner = torch.where(best <= 0, NONE, at).to(torch.uint8)
    return best.relu(), winner if with_winner else winner.new_empty(0)


@conv_pool_relu_op.register_fake  # pyright: ignore[reportUnknownMemberType]
def _(x: Tensor, w: Tensor, b: Tensor, pad: int, with_winner: bool) -> tuple[Tensor, Tensor]:
    y = x.new_empty(*w.shape[:2], *layer_of(x, w, pad).pooled, x.shape[-1])
    return y, torch.empty_like(y, dtype=torch.uint8) if with_winner else y.new_empty(0, dtype=torch.uint8)


@conv_pool_relu_op.register_kernel("cuda")  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def conv_pool_relu_cuda(x: Tensor, w: Tensor, b: Tensor, pad: int, with_winner: bool) -> tuple[Tensor, Tensor]:
    """Compute the same by our kernel."""
    layer, (lanes, out) = layer_of(x, w, pad), w.shape[:2]
    y = x.new_empty(lanes, out, *layer.pooled, layer.batch)
    winner = torch.empty_like(y, dtype=torch.uint8) if with_winner else y.new_empty(0, dtype=torch.uint8)
    grid = layer.tiles(layer.pooled[0] * layer.pairs), layer.blocks("OUT_PER_THREAD"), lanes
    tensors = (x.contiguous(), w.contiguous(), b.contiguous(), y, winner if with_winner else None)
    compiled_for(layer, with_winner, x.device).launch("forward", grid, THREADS, *tensors)
    return y, winner


@torch.library.custom_op("moonfed::conv_pool_relu_weight_gradient", mutates_args=())
def weight_gradient(x: Tensor, w: Tensor, grad: Tensor, winner: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of weights and bias; of w only the shape is read."""
    images, scattered = x.permute(4, 0, 1, 2, 3).flatten(1, 2), _scattered(layer_of(x, w, pad), grad, winner)
    sizes = ((1, 1), (pad, pad), (1, 1), w.shape[0])
    _, grad_w, _ = convolution_backward(scattered, images, w.flatten(0, 1), *sizes, [False, True, False])
    assert grad_w is not None
    return grad_w.view(w.shape).contiguous(), torch.where(winner < NONE, grad, 0).sum((2, 3, 4))


@weight_gradient.register_fake  # pyright: ignore[reportUnknownMemberType]
def _(x: Tensor, w: Tensor, grad: Tensor, winner: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    return w.new_empty(w.shape), w.new_empty(w.shape[:2])


@weight_gradient.register_kernel("cuda")  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def weight_gradient_cuda(x: Tensor, w: Tensor, grad: Tensor, winner: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Compute the same by our kernels: parts of the batch in blocks of their own, added in a fixed order."""
    layer, lanes = layer_of(x, w, pad), w.shape[0]
    warps = layer.blocks("GRAD_OUT_PER_THREAD")
    wanted = -(-WARPS_WANTED // (lanes * layer.channels * warps * layer.image_tiles))
    count = layer.image_tiles * max(1, min(wanted, layer.pooled[0] // 2))
    assert x.data_ptr() % 16 == 0, "four images are read at once"
    numbers = layer.out * (layer.channels * layer.kernel**2 + 1)
    parts = w.new_empty(lanes, count, numbers)
    grad_w, grad_b = w.new_empty(w.shape), w.new_empty(w.shape[:2])
    kernels = compiled_for(layer, True, x.device)
    tensors = (x.contiguous(), grad.contiguous(), winner.contiguous(), parts)
    kernels.launch("weight_gradient", (count, layer.channels, lanes), 32 * warps, *tensors)
    kernels.launch("add_parts", (-(-numbers // THREADS), 1, lanes), THREADS, parts, grad_w, grad_b, count)
    return grad_w, grad_b


@torch.library.custom_op("moonfed::conv_pool_relu_images_last", mutates_args=())
def images_last(grad: Tensor, w: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Turn gradients [lane, image, out, row, column] into [lane, out, row, column, image]; the rest tells the layer."""
    return grad.permute(0, 2, 3, 4, 1).contiguous()


@images_last.register_fake  # pyright: ignore[reportUnknownMemberType]
def _(grad: Tensor, w: Tensor, height: int, width: int, pad: int) -> Tensor:
    return grad.new_empty(grad.shape[0], *grad.shape[2:], grad.shape[1])


@images_last.register_kernel("cuda")  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def images_last_cuda(grad: Tensor, w: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Do the same by our kernel, tile by tile: the compiler's reads single numbers."""
    lanes, batch, values = grad.shape[0], grad.shape[1], grad[0, 0].numel()
    to = grad.new_empty(lanes, *grad.shape[2:], batch)
    layer = Layer(w.shape[2], w.shape[1], height, width, w.shape[3], pad, batch)
    grid = -(-values // 32), -(-batch // 32), lanes
    compiled_for(layer, True, grad.device).launch("images_last", grid, 128, grad.contiguous(), to)
    return to


@torch.library.custom_op("moonfed::conv_pool_relu_input_gradient", mutates_args=())
def input_gradient(w: Tensor, grad: Tensor, winner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Return the gradient of the input, whose height and width are given."""
    layer, lanes = layer_behind(w, grad, height, width, pad), w.shape[0]
    images, sizes = (
        grad.new_empty(layer.batch, lanes * layer.channels, height, width),
        ((1, 1), (pad, pad), (1, 1), lanes),
    )
    scattered = _scattered(layer, grad, winner)
    grad_x, _, _ = convolution_backward(scattered, images, w.flatten(0, 1), *sizes, [True, False, False])
    assert grad_x is not None
    return torch.unflatten(grad_x, 1, (lanes, -1)).permute(1, 2, 3, 4, 0).contiguous()


@input_gradient.register_fake  # pyright: ignore[reportUnknownMemberType]
def _(w: Tensor, grad: Tensor, winner: Tensor, height: int, width: int, pad: int) -> Tensor:
    return grad.new_empty(w.shape[0], w.shape[2], height, width, grad.shape[-1])


@input_gradient.register_kernel("cuda")  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def input_gradient_cuda(w: Tensor, grad: Tensor, winner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Compute the same by our kernel: 2x2 places per thread."""
    layer, lanes = layer_behind(w, grad, height, width, pad), w.shape[0]
    grid = layer.tiles(layer.places[0] * layer.places[1]), layer.blocks("IN_PER_THREAD"), lanes
    grad_x = grad.new_empty(lanes, layer.channels, height, width, layer.batch)
    tensors = (w.contiguous(), grad.contiguous(), winner.contiguous(), grad_x)
    compiled_for(layer, True, w.device).launch("input_gradient", grid, THREADS, *tensors)
    return grad_x


def layer_behind(w: Tensor, grad: Tensor, height: int, width: int, pad: int) -> Layer:
    """Describe the layer that has such weights and gradients of its output."""
    return Layer(w.shape[2], w.shape[1], height, width, w.shape[3], pad, grad.shape[4])


def _scattered(layer: Layer, grad: Tensor, winner: Tensor) -> Tensor:
    """Return the gradient of the convolution's output: [image, lane * out, row, column]."""
    own = F.one_hot(winner.long(), NONE + 1)[..., :NONE] * grad[..., None]  # [lane, out, row, column, image, place]
    rows = torch.unflatten(own, -1, (2, 2)).permute(4, 0, 1, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4).flatten(1, 2)
    right, below = ((size + 2 * layer.pad - layer.kernel + 1) % 2 for size in (layer.width, layer.height))
    return F.pad(rows, (0, right, 0, below))


class ConvPoolRelu(Function):
    """The operation with its gradients."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        """Compute the output and save what its gradients need."""
        x, w, b, pad = args
        y, winner = conv_pool_relu_op(x, w, b, pad, True)
        ctx.save_for_backward(x, w, winner)
        ctx.pad = pad
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of input, weights and bias."""
        x, w, winner = ctx.saved_tensors
        grad, sizes = grad_outputs[0], (*x.shape[2:4], ctx.pad)
        if not grad.is_contiguous():
            grad = images_last(grad.permute(0, 4, 1, 2, 3), w, *sizes)
        grad_x = input_gradient(w, grad, winner, *sizes) if ctx.needs_input_grad[0] else None
        return grad_x, *weight_gradient(x, w, grad, winner, ctx.pad), None


_with_gradients: Callable[..., Tensor] = ConvPoolRelu.apply  # pyright: ignore


def conv_pool_relu(x: Tensor, w: Tensor, b: Tensor, pad: int) -> Tensor:
    """Convolve [lane, in, row, column, image] with [lane, out, in, kernel, kernel], pool, and cut at zero."""
    if any(t.requires_grad for t in (x, w, b)):
        return _with_gradients(x, w, b, pad)
    return conv_pool_relu_op(x, w, b, pad, False)[0]
