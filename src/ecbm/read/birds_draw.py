"""Drawing the bird itself: each part takes its shape and colour from the concepts of its picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ecbm.read.birds_canvas import Array, Canvas, Frame, cone, cover, disc, ellipse, lattice, smooth_union
from ecbm.read.birds_scene import background, branch, color

__all__ = ["draw"]

Choices = Mapping[str, NDArray[np.int64]]

_WING = np.stack([color(c) for c in ("3f74bd", "5f9445", "c8433d", "8a5c38", "7d8794")])
_BREAST = np.stack([color(c) for c in ("f7f3ea", "f6cf4a", "e8823a")])
_BILL = np.stack([color(c) for c in ("e9a23b", "3d3a3f", "d9734a", "8a7a68")])
_DARK = color("2a2629")[:, None]
_PALE = color("fffaf0")[:, None]

# bill: short, long, hooked; tail: short, long, forked
_BILL_LENGTH = np.asarray([0.17, 0.44, 0.27])
_BILL_HEIGHT = np.asarray([0.085, 0.055, 0.125])
_BILL_HOOK = np.asarray([0.0, 0.02, 0.17])
_TAIL_LENGTH = np.asarray([0.26, 0.62, 0.50])
_TAIL_SPREAD = np.asarray([0.05, 0.03, 0.33])


def _pick(table: Array, index: NDArray[np.int64]) -> Array:
    colors: Array = table[index].T
    return colors


def _each(values: Array) -> Array:
    return np.asarray(values, np.float32)[:, None, None]


def draw(choices: Choices, size: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Pictures (n, 3, size, size) of birds with the given concepts: for each group, an index a picture."""
    count = len(choices["wing_color"])

    def vary(low: float, high: float) -> Array:
        return random.uniform(low, high, count).astype(np.float32)

    canvas = Canvas(background(size, count, random))
    picture = Frame.of_picture(size, count)

    # Placed so that bill and tail stay inside: the longer the bird, the less it may move.
    scale, mirror = vary(0.84, 1.0), random.choice((-1.0, 1.0), count).astype(np.float32)
    right = 0.56 + _BILL_LENGTH[choices["bill"]]
    left = -(0.42 + 0.85 * _TAIL_LENGTH[choices["tail"]])
    room = np.maximum(0.02, 0.97 - scale * (right - left) / 2)
    x = -mirror * scale * (right + left) / 2 + room * vary(-1, 1)
    y = vary(-0.02, 0.14)
    branch(canvas, picture, x, y + 0.62 * scale, random)
    bird = picture.at(x, y, vary(-0.12, 0.16) * mirror, scale, mirror)

    upper = _pick(_WING, choices["wing_color"]) * vary(0.88, 1.1) + random.normal(0, 0.02, (3, count))
    breast = _pick(_BREAST, choices["breast_color"]) * vary(0.93, 1.02)
    body, head = _draw_behind(canvas, bird, choices, upper, random)
    silhouette = smooth_union(ellipse(body, vary(0.44, 0.5), vary(0.31, 0.35)), disc(head, 0.275), 0.16)
    silhouette = cover(silhouette, bird)
    canvas.paint(silhouette, upper)
    _draw_breast(canvas, bird, body, silhouette, choices, breast, random)
    _draw_wing(canvas, body, choices, upper, random)
    _draw_face(canvas, head, silhouette, choices)

    # Light from above, on the bird and faintly on the whole picture.
    px, py = bird.xy()
    shade = np.clip(0.30 - 0.42 * py - 0.10 * px, -0.35, 0.5)
    shade *= silhouette * 0.42
    canvas.shade(shade + 1)
    u, v = picture.xy()
    light = 1 + _each(vary(-0.07, 0.07)) * u + _each(vary(-0.09, 0.03)) * v
    light *= _each(vary(0.93, 1.06))
    noise = random.standard_normal((count, size, size), np.float32)
    noise *= _each(vary(0.004, 0.014))
    canvas.shade(light)
    pixels = canvas.pixels
    pixels += noise
    pixels *= 255
    pixels += 0.5
    np.clip(pixels, 0, 255, out=pixels)
    return np.ascontiguousarray(pixels.astype(np.uint8).transpose(1, 0, 2, 3))


def _draw_behind(
    canvas: Canvas, bird: Frame, choices: Choices, upper: Array, random: np.random.Generator
) -> tuple[Frame, Frame]:
    """Tail, legs, crest and bill; returns the frames of the body and the head."""
    count = len(upper.T)

    def vary(low: float, high: float) -> Array:
        return random.uniform(low, high, count).astype(np.float32)

    body = bird.at(-0.06, 0.12, vary(-0.62, -0.46))
    head = bird.at(0.27 + vary(-0.02, 0.02), -0.34 + vary(-0.02, 0.02), vary(-0.14, 0.16))

    length = _TAIL_LENGTH[choices["tail"]] * vary(0.94, 1.08)
    spread = _TAIL_SPREAD[choices["tail"]]
    tail = body.at(-0.34, -0.02, np.pi + vary(-0.12, 0.12))
    one = cone(tail.at(0.0, 0.0, spread), length, 0.10, 0.062)
    two = cone(tail.at(0.0, 0.0, -spread), length, 0.10, 0.062)
    canvas.paint(cover(np.minimum(one, two, out=one), bird), upper * 0.74)

    leg = color("a8744a")[:, None] * vary(0.6, 1.2)
    for place in (-0.02, 0.15):
        canvas.paint(cover(cone(bird.at(place, 0.36, np.pi / 2 - 0.12), 0.24, 0.03, 0.022), bird), leg)
        toes = bird.at(place + 0.0, 0.60)
        canvas.paint(cover(cone(toes, 0.10, 0.03, 0.022), bird), leg)

    crest = cone(head.at(-0.02, -0.14, -2.28), 0.42, 0.13, 0.008)
    front = cone(head.at(0.08, -0.17, -1.98), 0.30, 0.10, 0.008)
    crest = cover(np.minimum(crest, front, out=crest), bird)
    crest *= _each(choices["crest"])
    canvas.paint(crest, upper * 0.86)

    kind = choices["bill"]
    length = _each(_BILL_LENGTH[kind] * vary(0.94, 1.08))
    px, py = head.at(0.20, 0.03).xy()
    along = np.clip((px - 0.04) / length, 0, 1)
    cube = along * along * along
    hook = _each(_BILL_HOOK[kind])
    py -= hook * cube
    blunt = np.minimum(hook * 4, 0.6)
    half = _each(_BILL_HEIGHT[kind]) * (1 - along * (1 - blunt) - cube * blunt)
    shape = np.maximum(np.abs(py) - half, px - 0.04 - length)
    np.maximum(shape, -px, out=shape)
    bill = _pick(_BILL, random.integers(len(_BILL), size=count))
    canvas.paint(cover(shape, bird), bill[:, :, None, None] * (1 - 0.25 * (py > 0.012)))
    return body, head


def _draw_breast(
    canvas: Canvas,
    bird: Frame,
    body: Frame,
    silhouette: Array,
    choices: Choices,
    breast: Array,
    random: np.random.Generator,
) -> None:
    """The coloured underside from throat to vent, and its pattern."""
    under = cover(ellipse(bird.at(0.24, 0.16, -0.5), 0.36, 0.46), bird, 2)
    under *= silhouette
    canvas.paint(under, breast)
    kind = choices["breast_pattern"]
    count = len(kind)
    streaked = kind == 2
    turn = np.where(streaked, 0.25, 0.6) + random.uniform(-0.15, 0.15, count)
    phase = random.uniform(-0.1, 0.1, (2, count))
    marks = lattice(
        bird.at(0.2 + phase[0], 0.1 + phase[1], turn),
        np.where(streaked, 0.155, 0.19),
        np.where(streaked, 2.4, 1.0),
        np.where(streaked, 0.048, 0.06),
    )
    marks = cover(marks, bird)
    marks *= cover(ellipse(bird.at(0.24, 0.16, -0.5), 0.33, 0.40), bird, 2)
    marks *= silhouette
    marks *= _each((kind > 0) * 0.85)
    canvas.paint(marks, breast * 0.15 + color("3a2a24")[:, None] * 0.85)


def _draw_wing(
    canvas: Canvas, body: Frame, choices: Choices, upper: Array, random: np.random.Generator
) -> None:
    """The folded wing with its feathers and, if there is one, its pale bar."""
    count = len(upper.T)
    wing = body.at(0.12, -0.02, np.pi - random.uniform(0.0, 0.16, count))
    shape = cover(cone(wing, 0.52, 0.205, 0.03), body)
    canvas.paint(shape, upper * 0.82)
    along, across = wing.xy()
    fan = across / (0.36 - 0.4 * along)
    feathers = np.clip(np.abs(fan * 3.2 - np.rint(fan * 3.2)) * -5 + 1, 0, 1)
    feathers *= np.clip(along * 4 - 0.8, 0, 1)
    feathers *= shape
    canvas.paint(feathers * 0.45, upper * 0.5)
    curve = along + across * across * 2.5 - 0.16
    bar = cover(np.abs(curve) - 0.042, body)
    bar *= shape
    bar *= _each(choices["wing_bar"])
    canvas.paint(bar, np.broadcast_to(_PALE, upper.shape))


def _draw_face(canvas: Canvas, head: Frame, silhouette: Array, choices: Choices) -> None:
    """Mask, eye ring and eye."""
    count = len(choices["mask"])
    mask = cover(cone(head.at(0.27, 0.0, np.pi + 0.06), 0.44, 0.075, 0.06), head)
    mask *= _each(choices["mask"])
    mask *= silhouette
    canvas.paint(mask, np.broadcast_to(_DARK, (3, count)))
    eye = head.at(0.09, -0.04)
    ring = cover(disc(eye, 0.125), head)
    ring *= _each(choices["eye_ring"])
    canvas.paint(ring, np.broadcast_to(_PALE, (3, count)))
    canvas.paint(cover(disc(eye, 0.068), head), np.broadcast_to(_DARK * 0.7, (3, count)))
    glint = cover(disc(eye.at(0.022, -0.026), 0.026), head)
    canvas.paint(glint, np.broadcast_to(_PALE, (3, count)))
