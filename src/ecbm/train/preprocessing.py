"""What a pretrained network wants done to a picture first: its size, interpolation, crop and colour scale.

Resizing is linear and every picture of a dataset has one size, so resize and crop together are two fixed matrices,
one for rows and one for columns. The same two products run in training, in prediction and in an exported graph.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecbm.errors import InputError, unknown_name

__all__ = ["Preprocess", "Preprocessing"]

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a network's input, as plain values.

    Parameters
    ----------
    size
        (height, width) that the network sees; ``None`` leaves pictures as large as they are.
    crop
        The share of the resized picture that is kept, from its middle.
    squash
        Resize both sides to ``size`` / ``crop`` (proportions are lost) instead of the shorter one.
    interpolation
        ``"bicubic"``, ``"bilinear"`` (both with antialiasing) or ``"nearest"``.
    mean, std
        Of the colour channels, on a scale of 0 to 1.

    Examples
    --------
    >>> Preprocessing((224, 224), crop=0.875).resized((64, 64))
    (256, 256)
    """

    size: tuple[int, int] | None = None
    crop: float = 1.0
    squash: bool = False
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.interpolation not in INTERPOLATIONS:
            raise unknown_name("interpolation", self.interpolation, INTERPOLATIONS, "preprocessing")

    def resized(self, shape: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of a picture of ``shape`` after resizing, before the crop."""
        if self.size is None:
            return shape
        wanted = tuple(math.floor(side / self.crop) for side in self.size)
        if self.squash:
            return wanted[0], wanted[1]
        # As torchvision's Resize: the shorter side becomes the wanted length, the longer one follows.
        short, long = min(shape), max(shape)
        length = max(wanted)
        other = int(length * long / short)
        return (length, other) if shape[0] <= shape[1] else (other, length)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        fields = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Preprocessing:
        """Inverse of :meth:`to_dict`."""
        values: dict[str, Any] = {}
        for name, value in fields.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    def replaced(self, given: Mapping[str, Any] | None) -> Preprocessing:
        """With some fields given by the user, checked."""
        return dataclasses.replace(self, **checked_preprocessing(given)) if given else self


def checked_preprocessing(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a :class:`Preprocessing` as a user may write them; anything else is refused."""
    known = [field.name for field in dataclasses.fields(Preprocessing)]
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown_name("field", name, known, "preprocessing")
        if name == "size":
            sides = (value, value) if isinstance(value, int) else value
            whole = isinstance(sides, list | tuple) and len(sides) == 2
            if not whole or not all(isinstance(side, int) and 0 < side <= 4096 for side in sides):
                raise InputError(f"preprocessing: size must be one or two sizes in pixels, got {value!r}")
            checked[name] = tuple(sides)
        elif name in ("mean", "std"):
            three = isinstance(value, list | tuple) and len(value) == 3
            if not three or not all(isinstance(one, Real) and (name == "mean" or float(one) > 0) for one in value):
                raise InputError(f"preprocessing: {name} must be three numbers, got {value!r}")
            checked[name] = tuple(float(one) for one in value)
        elif name == "crop":
            if not isinstance(value, Real) or not 0 < float(value) <= 1:
                raise InputError(f"preprocessing: crop must be a share above 0 and at most 1, got {value!r}")
            checked[name] = float(value)
        else:
            checked[name] = value
    return checked


class Preprocess(nn.Module):
    """Pictures (n, 3, height, width) of one shape, 0 to 1, as a network wants them.

    Parameters
    ----------
    how
        The settings.
    shape
        (height, width) of the pictures.
    """

    rows: Tensor | None
    columns: Tensor | None
    mean: Tensor
    std: Tensor

    def __init__(self, how: Preprocessing, shape: tuple[int, int]) -> None:
        super().__init__()
        resized = how.resized(shape)
        size = how.size or shape
        if min(resized[0] - size[0], resized[1] - size[1]) < 0:
            raise InputError(f"pictures of {shape} cannot be cropped to {size}; use squash=True")
        for name, side in (("rows", 0), ("columns", 1)):
            matrix = _resizing(shape[side], resized[side], size[side], how.interpolation)
            self.register_buffer(name, matrix, persistent=False)
        self.register_buffer("mean", torch.tensor(how.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(how.std).view(1, -1, 1, 1), persistent=False)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if self.rows is not None:
            x = self.rows @ x
        if self.columns is not None:
            x = x @ self.columns.T
        # As a picture of 8 bits would be: bicubic interpolation overshoots at edges.
        x = x.clamp(0, 1)
        return ((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def _resizing(before: int, resized: int, size: int, interpolation: str) -> Tensor | None:
    """The matrix that resizes a line of pixels and keeps its middle; ``None`` where nothing is to be done."""
    if before == resized == size:
        return None
    smooth = {} if interpolation == "nearest" else {"antialias": True, "align_corners": False}
    # Each unit pixel resized: the columns of the linear map.
    units = torch.eye(before, dtype=torch.float64)[None, None]
    mode = "nearest-exact" if interpolation == "nearest" else interpolation
    matrix = functional.interpolate(units, size=(resized, before), mode=mode, **smooth)[0, 0]
    start = round((resized - size) / 2)
    return matrix[start : start + size].float().contiguous()
