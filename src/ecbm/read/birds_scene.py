"""What is behind and under a drawn bird: a soft sky, foliage, water or hills, and a branch with leaves."""

from __future__ import annotations

import dataclasses

import numpy as np

from ecbm.read.birds_canvas import Array, Canvas, Frame, cone, cover, each, ellipse

__all__ = ["background", "branch"]

# Colours at the top, the middle and the bottom, then of the soft shapes; two of each kind of scene.
_SKY, _FOLIAGE, _WATER, _HILLS = range(4)
_SCENES = (
    (_SKY, "9cc7e8 cfe4f1 f3ead9 ffffff"),
    (_SKY, "b9b6dd e7cfd8 fbe3c4 fff3e2"),
    (_FOLIAGE, "a9c99a 7fab7c 5f8f68 e6f0b8"),
    (_FOLIAGE, "d9d79a b3bd7c 86a06c fdf3b4"),
    (_FOLIAGE, "e9c99b d9a878 b98a6a ffe6b8"),
    (_WATER, "c4dfe6 8fbfcb 5f9bab eaf7f4"),
    (_WATER, "d8cfe4 a4a9cc 7486ad f7e3e0"),
    (_HILLS, "cfe6ee e6efe0 9fbf94 6f9c86"),
    (_HILLS, "f6dcc0 f2e5d2 b3b88f 8a9c80"),
    (_HILLS, "dbe4ee eef1f3 c3d0d6 9db0bf"),
)
_SHAPES = 7


def color(hexadecimal: str) -> Array:
    """``"9cc7e8"`` as three numbers 0..1."""
    return np.asarray([int(hexadecimal[i : i + 2], 16) / 255 for i in (0, 2, 4)], np.float32)


_KINDS = np.asarray([kind for kind, _ in _SCENES])
_COLORS = np.stack([np.stack([color(c) for c in colors.split()]) for _, colors in _SCENES])


def background(size: int, count: int, random: np.random.Generator) -> Array:
    """Blurred scenes, (3, count, size, size). Drawn at half the size, since nothing in them is sharp."""
    small = (size + 1) // 2
    scene = random.integers(len(_SCENES), size=count)
    kind = _KINDS[scene]
    colors = _COLORS[scene].transpose(1, 2, 0)
    colors = colors + random.normal(0, 0.025, (4, 3, count)).astype(np.float32)
    frame = Frame.of_picture(small, count)
    height = frame.grid[None, :, None] + random.uniform(-0.3, 0.3, (count, 1, 1)).astype(np.float32)
    upper, lower = np.clip(-height, 0, 1), np.clip(height, 0, 1)
    top, middle, bottom = (c[:, :, None, None] for c in colors[:3])
    pixels = middle + upper * (top - middle) + lower * (bottom - middle)
    canvas = Canvas(np.broadcast_to(pixels, (3, count, small, small)).astype(np.float32))

    def pick(sky: float, foliage: float, water: float, hills: float) -> Array:
        chosen: Array = np.asarray([sky, foliage, water, hills], np.float32)[kind]
        return chosen

    for layer in range(2):
        rise = pick(9, 9, 9, 0.12 + 0.5 * layer) + random.uniform(-0.2, 0.15, count)
        turn = random.uniform(-0.25, 0.25, count)
        hill = frame.at(random.uniform(-0.8, 0.8, count), rise + 1.6, turn)
        shape = cover(ellipse(hill, 2.4, 1.6), frame, 1.5)
        near = 0.45 + 0.4 * layer
        canvas.paint(frame, shape, colors[3] * near + colors[1] * (1 - near))
    for _ in range(_SHAPES):
        x, y = random.uniform(-1.1, 1.1, (2, count))
        y = y * pick(0.8, 1, 1, 0.35) + pick(-0.2, 0, 0.1, -0.65)
        radius = random.uniform(0.14, 0.36, count) * pick(1.1, 1, 1.3, 0.8)
        flat = pick(0.45, 1, 0.13, 0.35)
        soft = random.uniform(1, 3, count) * pick(3.5, 1, 1, 3) * small / 24
        strength = random.uniform(0.1, 0.42, count) * pick(1.5, 1, 1, 1)
        shape = cover(ellipse(frame.at(x, y), radius, radius * flat), frame, soft)
        shape *= each(strength)
        dark = random.random(count) < pick(0, 0.45, 0.3, 0)
        canvas.paint(frame, shape, np.where(dark, colors[2] * 0.8, colors[3] * 0.5 + 0.5))
    return _enlarge(canvas.pixels, size)


def _enlarge(pixels: Array, size: int) -> Array:
    """Linear interpolation to ``size``, as two matrix products."""
    small = pixels.shape[-1]
    place = np.clip((np.arange(size) + 0.5) * small / size - 0.5, 0, small - 1)
    weights = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(small))).astype(np.float32)
    large: Array = np.matmul(weights, np.matmul(pixels, weights.T))
    return large


def branch(canvas: Canvas, picture: Frame, x: Array, y: Array, random: np.random.Generator) -> None:
    """A branch through (x, y), a little bent and tapering, with leaves."""
    count = len(x)
    turn = random.uniform(-0.16, 0.16, count) + np.pi * random.integers(2, size=count)
    thick = random.uniform(0.055, 0.085, count)
    bark = color("6b4f3f")[:, None] * random.uniform(0.75, 1.25, count) + random.normal(0, 0.02, (3, count))
    spring, autumn = color("6f9a4a")[:, None], color("c98a3c")[:, None]
    leaf = spring + (random.random(count) ** 3) * (autumn - spring)
    start = picture.at(x, y, turn)
    for side in (-1, 1):
        place = random.uniform(0.45, 1.0, count) * side
        angle = random.uniform(0.35, 1.0, count) * random.choice((-1, 1), count)
        length = random.uniform(0.13, 0.24, count)
        blade = start.at(place, 0.0, angle).at(length, 0.0).near(0.24)
        canvas.paint(
            blade,
            cover(ellipse(blade, length, length * 0.42), blade),
            leaf * random.uniform(0.8, 1.15, count),
        )
    twig = start.at(random.uniform(-0.9, -0.5, count), 0.0, random.uniform(-2.7, -2.3, count)).near(0.5)
    shape = cover(cone(twig, random.uniform(0.25, 0.46, count), 0.03, 0.012), twig)
    canvas.paint(twig, shape, bark * 0.9)
    middle = picture.at(0.0, y).near(0.5)
    start = dataclasses.replace(start, rows=middle.rows)
    along, across = start.xy()
    bend = each(random.uniform(-0.1, 0.1, count))
    across += bend * along * along
    along *= -0.018
    along += each(thick)
    light = across * each(np.sign(np.cos(turn)))
    wood = cover(np.abs(across) - along, start)
    shade = np.clip(1.05 - light * 4.5, 0.6, 1.5)
    canvas.paint(start, wood, bark.astype(np.float32)[:, :, None, None] * shade)
