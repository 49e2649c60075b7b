# pyright: basic, reportMissingImports=false
"""The Triton kernel of inference_conv: patches are gathered and multiplied in parts and never stored."""

import triton
import triton.language as tl


@triton.jit
def convolve(
    x, w, b, out, lane_stride, batch_stride, channel_stride, row_stride, column_stride, in_height, in_width,
    positions, out_height, out_width, pad_height, pad_width, IN: tl.constexpr, OUT: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr, OUT_PADDED: tl.constexpr,
    BLOCK: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Compute a block of positions of one lane's output, all channels."""
    lane = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = position % out_width
    row = (position // out_width) % out_height
    image = position // (out_width * out_height)
    out_channel = tl.arange(0, OUT_PADDED)
    size: tl.constexpr = IN * KERNEL_HEIGHT * KERNEL_WIDTH
    total = tl.zeros((BLOCK, OUT_PADDED), tl.float32)
    for first in range(0, size, PART):
        number = first + tl.arange(0, PART)
        channel = number // (KERNEL_HEIGHT * KERNEL_WIDTH)
        in_row = (row * STRIDE - pad_height)[:, None] + ((number // KERNEL_WIDTH) % KERNEL_HEIGHT)[None, :]
        in_column = (column * STRIDE - pad_width)[:, None] + (number % KERNEL_WIDTH)[None, :]
        inside = (in_row >= 0) & (in_row < in_height) & (in_column >= 0) & (in_column < in_width)
        valid = (position < positions)[:, None] & (number < size)[None, :] & inside
        at = lane * lane_stride + image[:, None] * batch_stride + channel[None, :] * channel_stride
        patch = tl.load(x + at + in_row * row_stride + in_column * column_stride, mask=valid, other=0.0)
        used = (number < size)[:, None] & (out_channel < OUT)[None, :]
        weight = tl.load(w + lane * OUT * size + out_channel[None, :] * size + number[:, None], mask=used, other=0.0)
        total = tl.dot(patch, weight, total)
    total += tl.load(b + lane * OUT + out_channel, mask=out_channel < OUT, other=0.0).to(tl.float32)[None, :]
    out_at = (lane * (positions // (out_height * out_width)) + image)[:, None] * OUT + out_channel[None, :]
    tl.store(
        out + out_at * (out_height * out_width) + (row * out_width + column)[:, None],
        total.to(out.dtype.element_ty),
        mask=(position < positions)[:, None] & (out_channel < OUT)[None, :],
    )
