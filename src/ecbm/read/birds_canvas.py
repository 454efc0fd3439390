"""Anti-aliased drawing of many small pictures at once, by signed distances to simple shapes.

Every array has one row a picture. A distance is negative inside a shape; one pixel of distance turns into one
step of coverage, which is what makes edges smooth without drawing at a higher resolution.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Canvas",
    "Frame",
    "Number",
    "cone",
    "cover",
    "disc",
    "each",
    "ellipse",
    "lattice",
    "smooth_union",
]

Array = NDArray[np.floating[Any]]
Number = NDArray[np.generic] | float


def each(value: Number) -> Array:
    """A number, or one a picture, shaped to broadcast over pixels."""
    return np.asarray(value, np.float32).reshape(-1, 1, 1)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Coordinates fixed to a part of the picture: affine in the pixel grid, so one addition a pixel.

    ``along`` and ``across`` hold (a, b, c) a picture: the coordinate is ``a * u + b * v + c`` for the pixel
    centre (u, v), with u to the right and v down, both from -1 to 1. ``unit`` is the size of a pixel. Only
    the pixels of ``rows`` and ``columns`` are looked at.
    """

    grid: Array
    along: Array
    across: Array
    unit: Array
    rows: slice
    columns: slice

    @classmethod
    def of_picture(cls, size: int, count: int) -> Frame:
        """The frame of the whole picture."""
        centres = ((np.arange(size) + 0.5) * 2 / size - 1).astype(np.float32)
        along, across = np.zeros((2, count, 3), np.float32)
        along[:, 0] = across[:, 1] = 1
        everything = slice(0, size)
        return cls(centres, along, across, each(np.full(count, 2 / size)), everything, everything)

    def at(self, x: Number, y: Number, angle: Number = 0.0, scale: Number = 1.0) -> Frame:
        """A frame with origin (x, y), turned clockwise by ``angle``, its unit ``scale`` times as long."""
        x, y, angle, scale = (np.asarray(v, np.float32).reshape(-1, 1) for v in (x, y, angle, scale))
        along, across = self.along.copy(), self.across.copy()
        along[:, 2:] -= x
        across[:, 2:] -= y
        cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
        return dataclasses.replace(
            self,
            along=along * cos + across * sin,
            across=across * cos - along * sin,
            unit=self.unit / scale[:, :, None],
        )

    def near(self, radius: Number) -> Frame:
        """The same frame, looking only at pixels that lie within ``radius`` of the origin in some picture."""
        (a, b, c), (d, e, f) = self.along.T, self.across.T
        determinant = a * e - b * d
        pixels = np.asarray(radius, np.float32) / self.unit.ravel() + 1
        size = len(self.grid)

        def span(centre: Array) -> slice:
            middle = (centre + 1) * size / 2
            first, last = np.min(middle - pixels), np.max(middle + pixels)
            return slice(int(np.clip(np.floor(first), 0, size - 1)), int(np.clip(np.ceil(last), 1, size)))

        columns, rows = span((b * f - c * e) / determinant), span((c * d - a * f) / determinant)
        return dataclasses.replace(self, rows=rows, columns=columns)

    def crop(self, whole: Array) -> Array:
        """The part of a whole-picture array that this frame looks at."""
        return whole[..., self.rows, self.columns]

    def xy(self) -> tuple[Array, Array]:
        """Both coordinates of every pixel looked at."""
        u, v = self.grid[self.columns], self.grid[self.rows]

        def coordinate(weights: Array) -> Array:
            a, b, c = (weights[:, i, None] for i in range(3))
            sums: Array = (a * u + c)[:, None, :] + (b * v)[:, :, None]
            return sums

        return coordinate(self.along), coordinate(self.across)


class Canvas:
    """Pictures being painted: float32 (3, n, size, size), values 0..1."""

    def __init__(self, pixels: Array) -> None:
        self.pixels = pixels

    def paint(self, frame: Frame, coverage: Array, color: Array) -> None:
        """Lay a colour (3, n) or (3, n, height, width) over the pixels ``frame`` looks at."""
        part = frame.crop(self.pixels)
        layer = color if color.ndim == 4 else color[:, :, None, None]
        change = layer.astype(np.float32, copy=False) - part
        change *= coverage
        part += change


def cover(distance: Array, frame: Frame, soft: Number = 1.0) -> Array:
    """Coverage 0..1 of the pixels; ``soft`` widens the edge, in pixels. Overwrites ``distance``."""
    distance *= -1 / (frame.unit * each(soft))
    distance += 0.5
    np.maximum(distance, 0, out=distance)
    return np.minimum(distance, 1, out=distance)


def _length(x: Array, y: Array) -> Array:
    """Length of (x, y). Overwrites both."""
    x *= x
    y *= y
    x += y
    return np.sqrt(x, out=x)


def disc(frame: Frame, radius: Number) -> Array:
    """Distance to a disc at the frame's origin."""
    distance = _length(*frame.xy())
    distance -= each(radius)
    return distance


def ellipse(frame: Frame, width: Number, height: Number) -> Array:
    """Distance (exact on the outline, close near it) to an ellipse with the given half axes."""
    x, y = frame.xy()
    wide, high = each(width), each(height)
    x *= 1 / wide
    y *= 1 / high
    distance = _length(x, y)
    distance -= 1
    distance *= np.minimum(wide, high)
    return distance


def cone(frame: Frame, length: Number, start: Number, end: Number) -> Array:
    """Distance to a rounded cone along x, with radius ``start`` at the origin and ``end`` at its tip."""
    x, y = frame.xy()
    tip, first, last = each(length), each(start), each(end)
    on_axis = np.minimum(np.maximum(x, 0), tip)
    x -= on_axis
    distance = _length(x, y)
    on_axis *= (last - first) / tip
    on_axis += first
    distance -= on_axis
    return distance


def lattice(frame: Frame, pitch: Number, stretch: Number, radius: Number) -> Array:
    """Distance to dots on a staggered lattice; ``stretch`` > 1 makes them strokes along y."""
    x, y = frame.xy()
    wide = each(pitch)
    x *= 1 / wide
    y *= 1 / (wide * each(stretch))
    row = np.rint(y)
    y -= row
    row *= 0.5
    x += row
    x -= np.rint(x)
    distance = _length(x, y)
    distance *= wide
    distance -= each(radius)
    return distance


def smooth_union(a: Array, b: Array, width: float) -> Array:
    """The union of two shapes, the crease between them filled over about ``width``. Overwrites ``a``."""
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
