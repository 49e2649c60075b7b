# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false
"""The kernel behind patches: where a patch begins and where in it a number lies are found apart, then added."""

import triton
import triton.language as tl


@triton.jit
def copy_patches(
    x, made, of_lane, of_batch, of_channel, of_row, of_column, places, down, across, real, size,
    HIGH: tl.constexpr, WIDE: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Copy a block of one lane's patches."""
    lane = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = place % across
    row = (place // across) % down
    picture = place // (across * down)
    begins = picture * of_batch + row * STRIDE * of_row + column * STRIDE * of_column
    number = tl.arange(0, SIZE)
    channel = number // (HIGH * WIDE)
    within = (number // WIDE) % HIGH * of_row + number % WIDE * of_column + channel * of_channel
    inside = (place < places)[:, None]
    values = tl.load(
        x + lane * of_lane + begins[:, None] + within[None, :], mask=inside & (number < real)[None, :], other=0.0
    )
    tl.store(
        made + (lane * places + place)[:, None] * size + number[None, :], values, mask=inside & (number < size)[None, :]
    )
