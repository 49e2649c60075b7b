"""Pictures of any size and colour, made equal: one size for all, grey if all are grey."""

import warnings
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from moonfed.core.errors import UserError
from moonfed.data.readers.folders import Clip
from moonfed.data.readers.limits import Pace, Say, check_bytes
from moonfed.data.readers.options import PICTURES, ReaderOptions
from moonfed.data.readers.raw_rows import Bad, Found

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
LARGEST = 64  # pixels of the longer side, if no size is asked for
MOST_PIXELS = 100_000_000  # of one picture
_GREY = {"1", "L", "LA", "I;16", "I;16B", "I;16L", "I"}
_ORIENTATION, _TURNED = 274, {5, 6, 7, 8}  # of a camera that was held on its side
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, KeyError, TypeError, Image.DecompressionBombError)


def read_pictures(
    clips: Sequence[Clip],
    bad: Sequence[Bad],
    name: str,
    settings: ReaderOptions,
    scheme: dict[str, Any] | None,
    say: Say,
) -> Found:
    """Decode pictures to one shape: that of the scheme, or the one that suits them."""
    looks: dict[int, tuple[int, int, bool]] = {}  # height, width, whether it is grey
    wrong: dict[int, str] = {}
    pace = Pace(say, name, "headers of pictures")
    for k, clip in enumerate(clips):
        try:
            looks[k] = _look(clip)
        except _UNREADABLE as error:
            wrong[k] = _why(error)
        pace.at(k + 1, len(clips))
    if not looks:
        broken = [Bad(clips[k].place, why) for k, why in wrong.items()] + list(bad)
        raise UserError(f"{name} holds no picture that can be read" + "".join(f"; {one}" for one in broken[:3]))
    shape = tuple(scheme["shape"]) if scheme else _shape(list(looks.values()), settings.size)
    check_bytes(name, len(clips) * int(np.prod(shape)))
    pixels = np.zeros((len(clips), *shape), dtype=np.uint8)
    pace = Pace(say, name, "pictures")
    for k in looks:
        try:
            pixels[k] = _pixels(clips[k], shape)
        except _UNREADABLE as error:
            wrong[k] = _why(error)
        pace.at(k + 1, len(clips))
    parties = [clip.party or "" for clip in clips] if any(clip.party for clip in clips) else None
    labels = [clip.label or "" for clip in clips] if all(clip.label is not None for clip in clips) else None
    notes = _notes(name, list(looks.values()), shape)
    where = [clip.place for clip in clips]
    found = Found(
        name, PICTURES, pixels, labels, parties, lambda k: where[k], {"shape": list(shape)}, tuple(bad), notes
    )
    return found.without(wrong)


def _opened(clip: Clip) -> Image.Image:
    return Image.open(BytesIO(clip.source) if isinstance(clip.source, bytes) else clip.source)


def _look(clip: Clip) -> tuple[int, int, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _opened(clip) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width}x{height} pixels are too many")
            if picture.mode == "F":
                raise ValueError("its pixels are no whole numbers")
            if picture.getexif().get(_ORIENTATION) in _TURNED:
                width, height = height, width
            return height, width, picture.mode in _GREY


def _shape(looks: list[tuple[int, int, bool]], size: tuple[int, int] | None) -> tuple[int, ...]:
    """Choose the shape: the size asked for, else the most frequent one, made smaller if it is large."""
    channels = 1 if all(grey for *_, grey in looks) else 3
    if size is not None:
        return channels, *size
    counts = Counter((height, width) for height, width, _ in looks)
    height, width = min(counts, key=lambda s: (-counts[s], s))
    scale = min(1.0, LARGEST / max(height, width))
    return channels, max(1, round(height * scale)), max(1, round(width * scale))


def _pixels(clip: Clip, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Decode a picture, turn it upright, and fit it: scaled to cover the size, cut around its middle."""
    channels, height, width = shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _opened(clip) as opened:
            opened.load()
            picture = _in_mode(ImageOps.exif_transpose(opened), "L" if channels == 1 else "RGB")
    if picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)
    array = np.asarray(picture, dtype=np.uint8)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def _in_mode(picture: Image.Image, mode: str) -> Image.Image:
    """Make a picture 8 bits grey or colour; what is transparent becomes white."""
    if picture.mode.startswith("I"):  # 16 bits of grey
        wide = np.asarray(picture).astype(np.int64)
        picture = Image.fromarray(np.clip(wide // 257, 0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return picture.convert(mode)


def _notes(name: str, looks: list[tuple[int, int, bool]], shape: tuple[int, ...]) -> tuple[str, ...]:
    sizes = {(height, width) for height, width, _ in looks}
    _, height, width = shape
    notes: list[str] = []
    if sizes != {(height, width)}:
        were = f"{len(sizes):,} sizes" if len(sizes) > 1 else "x".join(map(str, next(iter(sizes))))
        notes.append(f"{name}: pictures of {were} made {height}x{width} (height x width); --size sets another")
    if len({grey for *_, grey in looks}) > 1:
        notes.append(f"{name}: some pictures are grey and some in colour; all are taken as colour")
    return tuple(notes)


def _why(error: BaseException) -> str:
    if "cannot identify" in str(error):
        return "no picture that can be read"
    return f"unreadable: {str(error).splitlines()[0][:80] if str(error) else type(error).__name__}"
