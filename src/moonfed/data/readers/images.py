"""Reads images of any size and colour as arrays of one shape: one size for all, grey if all are grey."""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from moonfed.data.readers.folders import MediaFile, media_rows, media_source, nothing_readable_error, unreadable_reason
from moonfed.data.readers.limits import ReadProgress, check_memory
from moonfed.data.readers.options import IMAGES, ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # whatever the suffix; none that starts a program
MAX_DEFAULT_SIDE = 64  # pixels of the longer side if the user sets no size
MAX_PIXELS = 100_000_000  # per image
_GREY_MODES = {"1", "L", "LA", "I;16", "I;16B", "I;16L", "I"}
_ORIENTATION, _SIDEWAYS = 274, {5, 6, 7, 8}  # the EXIF tag, and its values for a camera held on its side
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, KeyError, TypeError, Image.DecompressionBombError)


class _ImageHeader(NamedTuple):
    height: int
    width: int
    grey: bool


def read_images(
    media: Sequence[MediaFile], bad: Sequence[BadRow], name: str, options: ReaderOptions, schema: dict[str, Any] | None
) -> RawRows:
    """Decode images to one shape: that of the schema, or the most frequent size."""
    headers: dict[int, _ImageHeader] = {}
    unreadable: dict[int, str] = {}
    progress = ReadProgress(name, "image headers")
    for k, file in enumerate(media):
        try:
            headers[k] = _read_header(file)
        except _UNREADABLE as error:
            unreadable[k] = _reason(error)
        progress.update(k + 1, len(media))
    if not headers:
        raise nothing_readable_error(name, "image", media, bad, unreadable)
    shape = tuple(schema["shape"]) if schema else _choose_shape(list(headers.values()), options.size)
    check_memory(name, len(media) * int(np.prod(shape)))
    pixels = np.zeros((len(media), *shape), dtype=np.uint8)
    progress = ReadProgress(name, "images")
    for k in headers:
        try:
            pixels[k] = _decode(media[k], shape)
        except _UNREADABLE as error:
            unreadable[k] = _reason(error)
        progress.update(k + 1, len(media))
    notes = _conversion_notes(name, list(headers.values()), shape)
    return media_rows(media, IMAGES, pixels, name, {"shape": list(shape)}, bad, unreadable, notes)


def _open(file: MediaFile) -> Image.Image:
    return Image.open(media_source(file.source), formats=FORMATS)


def _read_header(file: MediaFile) -> _ImageHeader:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _open(file) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"{width}x{height} pixels are too many")
            if image.mode == "F":
                raise ValueError("its pixels are not integers")
            if image.getexif().get(_ORIENTATION) in _SIDEWAYS:
                width, height = height, width
            return _ImageHeader(height, width, image.mode in _GREY_MODES)


def _choose_shape(headers: list[_ImageHeader], size: tuple[int, int] | None) -> tuple[int, ...]:
    """Choose the shape: the size that the user sets, otherwise the most frequent one, reduced if it is large."""
    channels = 1 if all(header.grey for header in headers) else 3
    if size is not None:
        return channels, *size
    counts = Counter((header.height, header.width) for header in headers)
    height, width = min(counts, key=lambda s: (-counts[s], s))
    scale = min(1.0, MAX_DEFAULT_SIDE / max(height, width))
    return channels, max(1, round(height * scale)), max(1, round(width * scale))


def _decode(file: MediaFile, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Decode an image upright and fit it: scaled to cover the size, then cropped to its centre."""
    channels, height, width = shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _open(file) as opened:
            opened.load()
            image = _convert(ImageOps.exif_transpose(opened), "L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image to 8-bit grey or RGB; transparent pixels become white."""
    if image.mode.startswith("I"):  # 16 bits of grey
        wide = np.asarray(image).astype(np.int64)
        image = Image.fromarray(np.clip(wide // 257, 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert(mode)


def _conversion_notes(name: str, headers: list[_ImageHeader], shape: tuple[int, ...]) -> tuple[str, ...]:
    notes: list[str] = []
    sizes = {(header.height, header.width) for header in headers}
    _, height, width = shape
    if sizes != {(height, width)}:
        original = f"{len(sizes):,} sizes" if len(sizes) > 1 else "x".join(map(str, next(iter(sizes))))
        notes.append(f"{name}: images of {original} resized to {height}x{width} (height x width); --size sets another")
    if len({header.grey for header in headers}) > 1:
        notes.append(f"{name}: some images are grey and some in colour; all are read as colour")
    return tuple(notes)


def _reason(error: Exception) -> str:
    if "cannot identify" in str(error):
        return "not a readable image"
    return unreadable_reason(error)
