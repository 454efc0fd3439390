"""Anti-aliased drawing of many small pictures at once, by signed distances to simple shapes.

Every array has one row a picture. A distance is negative inside a shape; one pixel of distance turns into one
step of coverage, which is what makes edges smooth without drawing at a higher resolution.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Canvas", "Frame", "cone", "cover", "disc", "ellipse", "lattice", "smooth_union"]

Array = NDArray[np.float32]
Number = Array | float


def _column(value: Number) -> Array:
    """A number a picture as (n, 1, 1), so that it broadcasts over pixels."""
    return np.asarray(value, np.float32).reshape(-1, 1, 1)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Coordinates fixed to a part of the picture: affine in the pixel grid, so one addition a pixel.

    ``along`` and ``across`` hold (a, b, c) a picture: the coordinate is ``a * u + b * v + c`` for the pixel
    centre (u, v), with u to the right and v down, both from -1 to 1. ``unit`` is the size of a pixel.
    """

    grid: Array
    along: Array
    across: Array
    unit: Array

    @classmethod
    def of_picture(cls, size: int, count: int) -> Frame:
        """The frame of the whole picture."""
        centres = ((np.arange(size) + 0.5) * 2 / size - 1).astype(np.float32)
        along, across = np.zeros((2, count, 3), np.float32)
        along[:, 0] = across[:, 1] = 1
        return cls(centres, along, across, np.full((count, 1, 1), 2 / size, np.float32))

    def at(
        self, x: Number, y: Number, angle: Number = 0.0, scale: Number = 1.0, mirror: Number = 1.0
    ) -> Frame:
        """A frame with origin (x, y), turned clockwise, ``scale`` times as large, mirrored by -1."""
        x, y, angle, scale, mirror = (
            np.asarray(v, np.float32).reshape(-1, 1) for v in (x, y, angle, scale, mirror)
        )
        shift = np.asarray([0, 0, 1], np.float32)
        along, across = (self.along - x * shift) * mirror, self.across - y * shift
        cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
        return Frame(
            self.grid, along * cos + across * sin, across * cos - along * sin, self.unit / scale[:, :, None]
        )

    def xy(self) -> tuple[Array, Array]:
        """Both coordinates of every pixel, each (n, size, size)."""

        def coordinate(weights: Array) -> Array:
            a, b, c = (weights[:, i, None] for i in range(3))
            across: Array = (a * self.grid + c)[:, None, :] + (b * self.grid)[:, :, None]
            return across

        return coordinate(self.along), coordinate(self.across)


class Canvas:
    """Pictures being painted: float32 (3, n, size, size), values 0..1."""

    def __init__(self, pixels: Array) -> None:
        self.pixels = pixels

    def paint(self, coverage: Array, color: Array) -> None:
        """Lay a colour ((3, n) or (3, n, size, size)) over the pictures where ``coverage`` says."""
        layer = color if color.ndim == 4 else color[:, :, None, None]
        change = layer - self.pixels
        change *= coverage
        self.pixels += change

    def shade(self, amount: Array) -> None:
        """Lighten or darken by a factor a pixel."""
        self.pixels *= amount


def cover(distance: Array, frame: Frame, soft: Number = 1.0) -> Array:
    """Coverage 0..1 of the pixels; ``soft`` widens the edge, in pixels. Overwrites ``distance``."""
    distance *= -1 / (frame.unit * _column(soft))
    distance += 0.5
    return np.clip(distance, 0, 1, out=distance)


def disc(frame: Frame, radius: Number) -> Array:
    """Distance to a disc at the frame's origin."""
    x, y = frame.xy()
    x *= x
    y *= y
    x += y
    np.sqrt(x, out=x)
    x -= _column(radius)
    return x


def ellipse(frame: Frame, width: Number, height: Number) -> Array:
    """Distance (exact on the outline, close near it) to an ellipse with the given half axes."""
    x, y = frame.xy()
    width, height = _column(width), _column(height)
    x *= 1 / width
    y *= 1 / height
    x *= x
    y *= y
    x += y
    np.sqrt(x, out=x)
    x -= 1
    x *= np.minimum(width, height)
    return x


def cone(frame: Frame, length: Number, start: Number, end: Number) -> Array:
    """Distance to a rounded cone along x, with radius ``start`` at the origin and ``end`` at its tip."""
    x, y = frame.xy()
    length, start, end = _column(length), _column(start), _column(end)
    on_axis = np.minimum(np.maximum(x, 0), length)
    x -= on_axis
    x *= x
    y *= y
    x += y
    np.sqrt(x, out=x)
    on_axis *= (end - start) / length
    x -= on_axis
    x -= start
    return x


def lattice(frame: Frame, pitch: Number, stretch: Number, radius: Number) -> Array:
    """Distance to dots on a staggered lattice; ``stretch`` > 1 makes them strokes along y."""
    x, y = frame.xy()
    pitch, stretch = _column(pitch), _column(stretch)
    x *= 1 / pitch
    y *= 1 / (pitch * stretch)
    row = np.rint(y)
    y -= row
    row *= 0.5
    x += row
    x -= np.rint(x)
    x *= x
    y *= y
    x += y
    np.sqrt(x, out=x)
    x *= pitch
    x -= _column(radius)
    return x


def smooth_union(a: Array, b: Array, width: float) -> Array:
    """The union of two shapes with the crease between them filled over about ``width``. Overwrites both."""
    blend = b - a
    blend *= 0.5 / width
    blend += 0.5
    np.clip(blend, 0, 1, out=blend)
    a -= b
    a *= blend
    a += b
    blend *= blend - 1
    blend *= width
    a += blend
    return a
