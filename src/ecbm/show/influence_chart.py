"""Bars of influence: in a terminal as text, in a file as SVG, on a page of its own as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

__all__ = ["bar_chart_svg", "bars"]

# Colour-blind safe (Okabe and Ito). Sides differ, too, so that no colour is needed.
_HARMFUL, _HELPFUL, _MEASURED = "#D55E00", "#0072B2", "#333333"
_ROW, _LEFT, _MIDDLE, _RIGHT, _TOP, _BOTTOM = 22, 12, 300, 72, 64, 44
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bars(changes: Sequence[float], width: int = 12) -> list[str]:
    """A bar of text for every change, as long as its share of the largest; ``−`` and ``+`` say the side.

    Examples
    --------
    >>> bars([-2.0, 1.0, 0.0], 4)
    ['− ████', '+ ██', '']
    """
    largest = max((abs(change) for change in changes if math.isfinite(change)), default=0.0)
    found = []
    for change in changes:
        if not largest or not math.isfinite(change) or change == 0:
            found.append("")
            continue
        eighths = max(1, round(8 * width * abs(change) / largest))
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8].strip())
        found.append(f"{'−' if change < 0 else '+'} {bar}")
    return found


def bar_chart_svg(
    names: Sequence[str], changes: Sequence[float], title: str, measured: Sequence[float] | None = None
) -> str:
    """A drawing that stands alone: one bar a name, to the left where removing it lowers the loss.

    ``measured`` are drawn as marks over the bars; NaN where nothing was measured.
    """
    marks = [*(measured or ())]
    largest = max((abs(v) for v in (*changes, *marks) if math.isfinite(v)), default=0.0) or 1.0
    half = 220.0
    width, height = _LEFT + _MIDDLE + 2 * half + _RIGHT, _TOP + _ROW * len(names) + _BOTTOM
    middle = _LEFT + _MIDDLE + half
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" font-weight="600" fill="#111">{escape(title)}</text>',
        f'<text x="{middle - 8:g}" y="48" text-anchor="end" fill="{_HARMFUL}">◀ harmful: the loss falls</text>',
        f'<text x="{middle + 8:g}" y="48" fill="{_HELPFUL}">helpful: the loss rises ▶</text>',
    ]
    for place, (name, change) in enumerate(zip(names, changes, strict=True)):
        y = _TOP + _ROW * place
        side = f'x="{_LEFT + _MIDDLE - 8}" y="{y + 15}" text-anchor="end"'
        parts.append(f'<text {side} fill="#111">{escape(_short(name))}</text>')
        if math.isfinite(change):
            length = half * abs(change) / largest
            x = middle - length if change < 0 else middle
            colour = _HARMFUL if change < 0 else _HELPFUL
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="{_ROW - 6}" fill="{colour}"/>'
            )
            parts.append(
                f'<text x="{middle + half + 6:g}" y="{y + 15}" fill="#333" font-size="11">{change:+.3g}</text>'
            )
        if place < len(marks) and math.isfinite(marks[place]):
            at = middle + half * marks[place] / largest
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y + 1}" y2="{y + _ROW - 1}" stroke="{_MEASURED}" '
                'stroke-width="2.5"/>'
            )
    foot = _TOP + _ROW * len(names)
    parts.append(f'<line x1="{middle:g}" x2="{middle:g}" y1="{_TOP - 4}" y2="{foot}" stroke="#333"/>')
    said = "predicted change of the target's loss if removed or flipped"
    said += "; dark marks: measured" if any(map(math.isfinite, marks)) else ""
    parts.append(f'<text x="{middle:g}" y="{foot + 24}" text-anchor="middle" fill="#333">{said}</text></svg>')
    return "\n".join(parts) + "\n"


def _short(name: str, most: int = 42) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
