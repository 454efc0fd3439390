"""One picture file becomes 8-bit RGB, by stated rules (docs/pictures.md, "Pictures as they come")."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ecbm.errors import InputError

__all__ = ["decode_picture", "undecodable"]


def decode_picture(content: bytes) -> Image.Image:
    """The picture in a file's bytes, upright, opaque and as 8-bit RGB.

    Raises
    ------
    InputError
        For files that hold more than one picture; decoders raise nearly every other kind of exception.
    """
    if content[128:132] == b"DICM":
        from ecbm.read.dicom import decode_dicom

        return Image.fromarray(decode_dicom(content))
    picture: Image.Image = Image.open(io.BytesIO(content))
    frames = int(getattr(picture, "n_frames", 1))
    # A phone's JPEG may carry previews of itself behind the picture (MPO): those are not more pictures.
    if frames > 1 and picture.format != "MPO":
        raise InputError(f"holds {frames} pictures (animated, or of several pages); save the one that is meant")
    picture.load()
    picture = ImageOps.exif_transpose(picture)
    if picture.mode == "F" or picture.mode.startswith("I"):
        return Image.fromarray(_grey(np.asarray(picture))).convert("RGB")
    if picture.has_transparency_data:
        return _on_white(picture.convert("RGBA"))
    return picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    """What a person sees of a picture with transparent pixels on a white page."""
    page = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    return Image.alpha_composite(page, picture).convert("RGB")


def _grey(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey values of more than 8 bits, or with fractions, as 8 bits."""
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InputError("has values that are no numbers (NaN or infinity)")
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > 255:
            return stretched(values, low, high)
        return stretched(values, 0.0, 1.0 if high <= 1 else 255.0)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        return stretched(values, low, high)
    # The high byte, for 12 bits as for 16: sensors write 12 bits into files of 16.
    return (values >> (4 if high < 4096 else 8)).astype(np.uint8)


def stretched(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """Values with ``low`` at 0 and ``high`` at 255, cut off outside, rounded."""
    share = (values.astype(np.float64) - low) / (high - low if high > low else 1.0)
    scaled: NDArray[np.uint8] = np.rint(255 * share.clip(0, 1)).astype(np.uint8)
    return scaled


def undecodable(error: Exception) -> str:
    """Why a picture was not decoded, and what to do."""
    if isinstance(error, InputError):
        return str(error)
    # Pillow names the memory it read from, which says nothing to a person.
    unknown = isinstance(error, UnidentifiedImageError)
    why = "it is no picture of a known kind" if unknown else " ".join(str(error).split())[:150]
    return f"cannot be decoded ({why}); replace the file"
