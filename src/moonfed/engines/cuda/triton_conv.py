# pyright: basic, reportMissingImports=false
"""The kernel behind frozen_conv: patches are gathered and multiplied a few numbers at a time and never written down."""

import triton
import triton.language as tl


@triton.jit
def convolve(
    x, w, b, made, of_lane, of_batch, of_channel, of_row, of_column, height, width, places, down, across,
    pad_high, pad_wide, IN: tl.constexpr, OUT: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Compute a block of places of one lane's output, all channels."""
    lane = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = place % across
    row = (place // across) % down
    picture = place // (across * down)
    out = tl.arange(0, WIDTH)
    size: tl.constexpr = IN * HIGH * WIDE
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(0, size, PART):
        number = first + tl.arange(0, PART)
        channel = number // (HIGH * WIDE)
        y = (row * STRIDE - pad_high)[:, None] + ((number // WIDE) % HIGH)[None, :]
        z = (column * STRIDE - pad_wide)[:, None] + (number % WIDE)[None, :]
        there = (place < places)[:, None] & (number < size)[None, :] & (y >= 0) & (y < height) & (z >= 0) & (z < width)
        where = lane * of_lane + picture[:, None] * of_batch + channel[None, :] * of_channel
        seen = tl.load(x + where + y * of_row + z * of_column, mask=there, other=0.0)
        known = (number < size)[:, None] & (out < OUT)[None, :]
        by = tl.load(w + lane * OUT * size + out[None, :] * size + number[:, None], mask=known, other=0.0)
        total = tl.dot(seen, by, total)
    total += tl.load(b + lane * OUT + out, mask=out < OUT, other=0.0).to(tl.float32)[None, :]
    at = (lane * (places // (down * across)) + picture)[:, None] * OUT + out[None, :]
    tl.store(
        made + at * (down * across) + (row * across + column)[:, None],
        total.to(made.dtype.element_ty),
        mask=(place < places)[:, None] & (out < OUT)[None, :],
    )
