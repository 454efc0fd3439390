"""DICOM pictures, as a viewer shows them: rescaled, windowed, bright where the file means bright."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError

__all__ = ["decode_dicom"]


def decode_dicom(content: bytes) -> NDArray[np.uint8]:
    """A DICOM file's picture as 8-bit RGB (height, width, 3).

    Grey values go through the file's own rescaling (modality) and its first window or look-up table (values of
    interest); without one, the smallest value becomes black and the largest white. ``MONOCHROME1`` is inverted,
    colour spaces and palettes become RGB.
    """
    try:
        pydicom = importlib.import_module("pydicom")
        pixels = importlib.import_module("pydicom.pixels")
    except ImportError:
        raise InputError("is a DICOM file, which needs the package pydicom: pip install 'ecbm[dicom]'") from None
    file = pydicom.dcmread(io.BytesIO(content))
    frames = int(file.get("NumberOfFrames") or 1)
    if frames > 1:
        raise InputError(f"holds {frames} pictures (frames); save the one that is meant")
    kind = str(file.get("PhotometricInterpretation", "MONOCHROME2"))
    values = pixels.pixel_array(file)  # YBR colours come as RGB
    if kind == "PALETTE COLOR":
        return _eight_bits(pixels.apply_color_lut(values, file), 16)
    if values.ndim == 3:
        return _eight_bits(values, int(file.BitsStored))
    grey = _windowed(file, values, pixels)
    grey = 255 - grey if kind == "MONOCHROME1" else grey
    return np.repeat(grey[:, :, None], 3, 2)


def _eight_bits(values: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    largest = 255 if values.dtype == np.uint8 else 2**bits - 1
    return np.rint(values.astype(np.float64) * (255 / largest)).clip(0, 255).astype(np.uint8)


def _windowed(file: Any, values: NDArray[Any], pixels: Any) -> NDArray[np.uint8]:
    from ecbm.read.decoding import stretched

    rescaled = np.asarray(pixels.apply_modality_lut(values, file))
    if "VOILUTSequence" in file:
        table = file.VOILUTSequence[0]
        return stretched(pixels.apply_voi(rescaled, file), 0, 2 ** int(table.LUTDescriptor[2]) - 1)
    if "WindowCenter" in file and "WindowWidth" in file:
        shown = pixels.apply_windowing(rescaled, file)
        return stretched(shown, *_range_of_window(file))
    return stretched(rescaled, float(rescaled.min()), float(rescaled.max()))


def _range_of_window(file: Any) -> tuple[float, float]:
    """What black and white become in ``apply_windowing``: the ends of the stored range, rescaled."""
    bits, signed = int(file.BitsStored), bool(file.PixelRepresentation)
    if file.get("ModalityLUTSequence"):
        bits, signed = int(file.ModalityLUTSequence[0].LUTDescriptor[2]), False
    ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if "RescaleSlope" not in file or "RescaleIntercept" not in file:
        return ends
    slope, intercept = float(file.RescaleSlope), float(file.RescaleIntercept)
    return ends[0] * slope + intercept, ends[1] * slope + intercept
