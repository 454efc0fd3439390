"""Drawing the bird itself: each part takes its shape and colour from the concepts of its picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ecbm.read.birds_canvas import (
    Array,
    Canvas,
    Frame,
    cone,
    cover,
    disc,
    each,
    ellipse,
    lattice,
    smooth_union,
)
from ecbm.read.birds_scene import background, branch, color

__all__ = ["draw"]

Choices = Mapping[str, NDArray[np.int64]]

_WING = np.stack([color(c) for c in ("3f74bd", "5f9445", "c8433d", "8a5c38", "7d8794")])
_BREAST = np.stack([color(c) for c in ("f7f3ea", "f6cf4a", "e8823a")])
_BILL = np.stack([color(c) for c in ("e9a23b", "3d3a3f", "d9734a", "5e5148")])
_DARK = color("241f24")[:, None]
_PALE = color("fffaf0")[:, None]
_MARK = color("3a2a24")[:, None]
_LEG = color("a8744a")[:, None]

# bill: short, long, hooked; tail: short, long, forked; breast_pattern: plain, spotted, streaked
_BILL_LENGTH = np.asarray([0.16, 0.45, 0.29])
_BILL_HEIGHT = np.asarray([0.085, 0.058, 0.130])
_BILL_HOOK = np.asarray([0.0, 0.02, 0.20])
_TAIL_LENGTH = np.asarray([0.22, 0.66, 0.52])
_TAIL_SPREAD = np.asarray([0.05, 0.03, 0.38])
_MARK_PITCH = np.asarray([0.2, 0.2, 0.125])
_MARK_STRETCH = np.asarray([1.0, 1.0, 4.0])
_MARK_RADIUS = np.asarray([0.0, 0.062, 0.038])


class _Variation:
    """Uniform numbers, one a picture, from one generator."""

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.count, self.random = count, random

    def __call__(self, low: float, high: float) -> Array:
        return self.random.uniform(low, high, self.count).astype(np.float32)


def draw(choices: Choices, size: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Pictures (n, 3, size, size) of birds with the given concepts: for each group, an index a picture."""
    count = len(choices["wing_color"])
    vary = _Variation(count, random)
    canvas = Canvas(background(size, count, random))
    picture = Frame.of_picture(size, count)

    # Placed so that bill and tail stay inside: the longer the bird, the less it may move.
    scale = vary(0.84, 1.0)
    right = 0.56 + _BILL_LENGTH[choices["bill"]]
    left = -(0.42 + 0.85 * _TAIL_LENGTH[choices["tail"]])
    room = np.maximum(0.02, 0.97 - scale * (right - left) / 2)
    x, y = -scale * (right + left) / 2 + room * vary(-1, 1), vary(-0.02, 0.14)
    branch(canvas, picture, x, y + 0.62 * scale, random)
    bird = picture.at(x, y, vary(-0.12, 0.16), scale)
    body = bird.at(-0.06, 0.12, vary(-0.62, -0.46))
    head = bird.at(0.27 + vary(-0.02, 0.02), -0.34 + vary(-0.02, 0.02), vary(-0.14, 0.16))

    upper = _WING[choices["wing_color"]].T * vary(0.88, 1.1) + random.normal(0, 0.02, (3, count))
    _draw_tail(canvas, body, choices, upper, vary)
    _draw_legs(canvas, bird, vary)
    _draw_crest(canvas, head, choices, upper)
    _draw_bill(canvas, head, choices, vary)
    round_body = ellipse(body, vary(0.44, 0.5), vary(0.31, 0.35))
    silhouette = cover(smooth_union(round_body, disc(head, 0.275), 0.16), bird)
    canvas.paint(bird, silhouette, upper)
    _draw_breast(canvas, bird, silhouette, choices, vary)
    _draw_wing(canvas, body, choices, upper, vary)
    _draw_face(canvas, head, silhouette, choices)
    return _finish(canvas, picture, bird, silhouette, vary)


def _draw_tail(canvas: Canvas, body: Frame, choices: Choices, upper: Array, vary: _Variation) -> None:
    length = _TAIL_LENGTH[choices["tail"]] * vary(0.94, 1.06)
    spread = _TAIL_SPREAD[choices["tail"]]
    tail = body.at(-0.34, -0.02, np.pi + vary(-0.12, 0.12)).near(0.76)
    one = cone(tail.at(0.0, 0.0, spread), length, 0.10, 0.058)
    two = cone(tail.at(0.0, 0.0, -spread), length, 0.10, 0.058)
    canvas.paint(tail, cover(np.minimum(one, two, out=one), tail), upper * 0.72)


def _draw_legs(canvas: Canvas, bird: Frame, vary: _Variation) -> None:
    tone = _LEG * vary(0.6, 1.2)
    for place in (-0.02, 0.15):
        leg = bird.at(place, 0.36, np.pi / 2 - 0.12).near(0.28)
        canvas.paint(leg, cover(cone(leg, 0.24, 0.03, 0.022), leg), tone)
        toes = bird.at(place, 0.60).near(0.14)
        canvas.paint(toes, cover(cone(toes, 0.10, 0.03, 0.022), toes), tone)


def _draw_crest(canvas: Canvas, head: Frame, choices: Choices, upper: Array) -> None:
    head = head.near(0.6)
    back = cone(head.at(-0.02, -0.14, -2.28), 0.42, 0.13, 0.008)
    front = cone(head.at(0.08, -0.17, -1.98), 0.30, 0.10, 0.008)
    crest = cover(np.minimum(back, front, out=back), head)
    crest *= each(choices["crest"])
    canvas.paint(head, crest, upper * 0.84)


def _draw_bill(canvas: Canvas, head: Frame, choices: Choices, vary: _Variation) -> None:
    """A wedge that narrows towards its tip; a hook keeps its width for longer and then bends down."""
    kind = choices["bill"]
    length = each(_BILL_LENGTH[kind] * vary(0.94, 1.08))
    root = head.at(0.22, 0.03).near(0.56)
    x, y = root.xy()
    along = np.clip(x / length, 0, 1)
    bend = along * along * along
    hook = each(_BILL_HOOK[kind])
    y -= hook * bend
    blunt = np.minimum(hook * 4, 0.6)
    half = each(_BILL_HEIGHT[kind]) * (1 - along * (1 - blunt) - bend * blunt)
    shape = np.maximum(np.abs(y) - half, np.abs(x - length / 2) - length / 2)
    tone = _BILL[vary.random.integers(len(_BILL), size=vary.count)].T
    canvas.paint(
        root,
        cover(shape, root),
        tone[:, :, None, None] * np.where(y > 0.012, np.float32(0.75), np.float32(1)),
    )


def _draw_breast(canvas: Canvas, bird: Frame, silhouette: Array, choices: Choices, vary: _Variation) -> None:
    """The coloured underside from throat to vent, and its pattern."""
    middle = bird.at(0.24, 0.16, -0.5).near(0.5)
    inside = middle.crop(silhouette)
    tone = _BREAST[choices["breast_color"]].T * vary(0.93, 1.02)
    under = cover(ellipse(middle, 0.36, 0.46), middle, 2)
    under *= inside
    canvas.paint(middle, under, tone)
    kind = choices["breast_pattern"]
    pattern = middle.at(vary(-0.1, 0.1), vary(-0.1, 0.1), vary(0.7, 1.0))
    marks = cover(lattice(pattern, _MARK_PITCH[kind], _MARK_STRETCH[kind], _MARK_RADIUS[kind]), middle)
    marks *= cover(ellipse(middle, 0.33, 0.40), middle, 2)
    marks *= inside
    marks *= each((kind > 0) * 0.88)
    canvas.paint(middle, marks, tone * 0.15 + _MARK * 0.85)


def _draw_wing(canvas: Canvas, body: Frame, choices: Choices, upper: Array, vary: _Variation) -> None:
    """The folded wing with its feathers and, if there is one, its pale double bar."""
    wing = body.at(0.07, -0.03, np.pi - vary(0.0, 0.16)).near(0.56)
    shape = cover(cone(wing, 0.50, 0.195, 0.03), wing)
    canvas.paint(wing, shape, upper * 0.8)
    along, across = wing.xy()
    fan = across * 3.2 / np.maximum(0.36 - 0.4 * along, 0.1)
    feathers = np.clip(1 - 5 * np.abs(fan - np.rint(fan)), 0, 1)
    feathers *= np.clip(along * 4 - 0.9, 0, 1)
    feathers *= shape
    feathers *= 0.5
    canvas.paint(wing, feathers, upper * 0.45)
    along += across * 0.35
    bar = np.minimum(np.abs(along - 0.05) - 0.036, np.abs(along - 0.17) - 0.030)
    bar = cover(bar, wing)
    bar *= shape
    bar *= each(choices["wing_bar"])
    canvas.paint(wing, bar, _PALE)


def _draw_face(canvas: Canvas, head: Frame, silhouette: Array, choices: Choices) -> None:
    """Mask, eye ring and eye."""
    side = head.near(0.36)
    mask = cover(cone(side.at(0.27, 0.0, np.pi + 0.06), 0.44, 0.078, 0.062), side)
    mask *= side.crop(silhouette)
    mask *= each(choices["mask"])
    canvas.paint(side, mask, _DARK)
    eye = head.at(0.09, -0.035).near(0.15)
    ring = cover(disc(eye, 0.115), eye)
    ring *= each(choices["eye_ring"])
    canvas.paint(eye, ring, _PALE)
    canvas.paint(eye, cover(disc(eye, 0.066), eye), _DARK * 0.6)
    canvas.paint(eye, cover(disc(eye.at(0.022, -0.026), 0.026), eye), _PALE)


def _finish(canvas: Canvas, picture: Frame, bird: Frame, silhouette: Array, vary: _Variation) -> NDArray[np.uint8]:
    """Light from above on the bird, uneven light and grain over all; half of the pictures mirrored."""
    x, y = bird.xy()
    x *= -0.10
    y *= -0.42
    y += 0.30
    y += x
    np.clip(y, -0.35, 0.5, out=y)
    y *= silhouette
    y *= 0.42
    y += 1
    canvas.pixels *= y
    light = each(vary(-0.07, 0.07)) * picture.grid + each(vary(-0.09, 0.03)) * picture.grid[:, None]
    light += 1
    light *= each(vary(0.93, 1.06)) * 255
    canvas.pixels *= light
    grain = vary.random.standard_normal(light.shape, np.float32)
    grain *= each(vary(0.5, 2.6))
    grain += 0.5
    pixels = canvas.pixels
    pixels += grain
    np.clip(pixels, 0, 255, out=pixels)
    finished = pixels.astype(np.uint8).transpose(1, 0, 2, 3)
    mirrored = vary(0, 1) < 0.5
    finished[mirrored] = finished[mirrored, :, :, ::-1]
    return finished
