"""Line charts as inline SVG, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from ecbm.errors import InputError

__all__ = ["Points", "line_chart"]

Points = Sequence[tuple[float, float]]

# (width, height) of the drawing for wide and for narrow screens; text has the same size in both.
_WIDE, _NARROW = (860, 340), (360, 300)
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 14, 52
_COLORS = 6
# Lines differ in their dashes too, for readers and printers without colour.
_DASHES = ("none", "9 5", "2 5", "14 4 2 4", "5 3", "1 4")


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers that cover low..high."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= span / count * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def line_chart(series: Mapping[str, Points], x_label: str, y_label: str, title: str, percent: bool) -> str:
    """The chart and its legend; ``percent`` writes the vertical axis in per cent.

    The vertical axis begins at 0, and one in per cent ends at 100 where the values do not go beyond: an axis that
    is cut makes small differences look large.
    """
    points = [point for line in series.values() for point in line]
    if not points or not all(math.isfinite(v) for point in points for v in point):
        raise InputError(f"chart {title!r}: give at least one point a line, all of them finite")
    xs, ys = zip(*points, strict=True)
    x_ticks = sorted({*xs}) if len({*xs}) <= 12 else nice_ticks(min(xs), max(xs), 8)
    y_ticks = nice_ticks(min(0.0, *ys), max(1.0 if percent else 0.0, *ys))
    legend = []
    for index, name in enumerate(series):
        style, dash = _style(index)
        legend.append(
            f'<li><svg viewBox="0 0 32 10" style="{style}" aria-hidden="true">'
            f'<polyline points="1,5 31,5" {dash}/><circle cx="16" cy="5" r="3.4"/></svg>{escape(name)}</li>'
        )
    spoken = escape(f"{title}: {y_label} against {x_label}, for {', '.join(series)}", quote=True)
    drawings = []
    for kind, (width, height) in (("wide", _WIDE), ("narrow", _NARROW)):
        inside = _drawing(series, x_ticks, y_ticks, (x_label, y_label), percent, width, height)
        drawings.append(
            f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}">{inside}</svg>'
        )
    return f'<div class="plot">{"".join(drawings)}</div><ul class="legend">{"".join(legend)}</ul>'


def _style(index: int) -> tuple[str, str]:
    return f"--c:var(--series-{index % _COLORS + 1})", f'stroke-dasharray="{_DASHES[index % len(_DASHES)]}"'


def _drawing(
    series: Mapping[str, Points],
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    labels: tuple[str, str],
    percent: bool,
    width: int,
    height: int,
) -> str:
    def across(x: float) -> float:
        span = (x_ticks[-1] - x_ticks[0]) or 1.0
        return _LEFT + 10 + (x - x_ticks[0]) / span * (width - _LEFT - _RIGHT - 20)

    def down(y: float) -> float:
        share = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return height - _BOTTOM - share * (height - _TOP - _BOTTOM)

    decimals = 1 if percent and y_ticks[1] - y_ticks[0] < 0.01 else 0
    parts = []
    for y in y_ticks:
        text = f"{y * 100:.{decimals}f}%" if percent else f"{y:g}"
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{down(y):.1f}" y2="{down(y):.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 10}" y="{down(y) + 4.5:.1f}" text-anchor="end">{text}</text>')
    for x in x_ticks:
        place = f'x="{across(x):.1f}" y="{height - _BOTTOM + 20}"'
        parts.append(f'<text {place} text-anchor="middle">{x:g}</text>')
    middle_x, middle_y = (_LEFT + width - _RIGHT) / 2, (_TOP + height - _BOTTOM) / 2
    parts.append(
        f'<text class="label" x="{middle_x}" y="{height - 8}" text-anchor="middle">{escape(labels[0])}</text>'
        f'<text class="label" transform="translate(15 {middle_y}) rotate(-90)" text-anchor="middle">'
        f"{escape(labels[1])}</text>"
    )
    for index, line in enumerate(series.values()):
        style, dash = _style(index)
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line)
        dots = "".join(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3.4"/>' for x, y in line)
        parts.append(f'<g style="{style}"><polyline points="{path}" {dash}/>{dots}</g>')
    return "".join(parts)
