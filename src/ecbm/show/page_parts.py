"""Parts that pages are made of besides cards and charts: notices, facts, intervals, tiles, lines of history.

Each function returns HTML in which everything that was given is escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

from ecbm.errors import InputError

__all__ = [
    "HistoryRow", "IntervalRow", "Tile", "columns", "facts", "history_rows", "interval_rows", "notice", "thumbnail",
    "tiles",
]  # fmt: skip

_SEAL = (
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.7" '
    'stroke-linejoin="round" stroke-linecap="round"><path d="M12 2.6l2.5 1.8 3.1-.1 1 2.9 2.5 1.8-.9 3 .9 3-2.5 1.8'
    '-1 2.9-3.1-.1L12 21.4l-2.5-1.8-3.1.1-1-2.9L2.9 15l.9-3-.9-3 2.5-1.8 1-2.9 3.1.1z"/>'
    '<path d="M8.4 12.2l2.5 2.5 4.8-5.2"/></svg>'
)
_OPEN = (
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.7">'
    '<circle cx="12" cy="12" r="8.6" stroke-dasharray="4 3"/></svg>'
)
_WARNING = (
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.7" '
    'stroke-linejoin="round" stroke-linecap="round"><path d="M12 4.2L2.8 20h18.4zM12 10v4.6M12 17.3v.2"/></svg>'
)
_MARKS = {"certified": _SEAL, "open": _OPEN, "know": _WARNING, "plain": ""}
# Drawn width and height of one interval, and the room left at both ends for its dot.
_TRACK, _TALL, _END = 200, 20, 7


def notice(kind: str, heading: str, words: str, remarks: Sequence[str] = (), remark_title: str = "") -> str:
    """A box with a heading: ``certified`` (proven), ``open`` (not), ``know`` (to know beforehand) or ``plain``."""
    title = f'<p class="small strong">{escape(remark_title)}</p>' if remark_title and remarks else ""
    listed = "".join(f"<li>{escape(one)}</li>" for one in remarks)
    more = f'{title}<ul class="small">{listed}</ul>' if remarks else ""
    text = f"<p>{escape(words)}</p>" if words else ""
    return f'<aside class="notice {kind}">{_MARKS[kind]}<div><h3>{escape(heading)}</h3>{text}{more}</div></aside>'


def columns(*blocks: str) -> str:
    """Blocks side by side where there is room."""
    return f'<div class="columns">{"".join(f"<div>{block}</div>" for block in blocks if block)}</div>'


def facts(pairs: Mapping[str, str], mono: Iterable[str] = ()) -> str:
    """Names and what they are; those in ``mono`` are set as code."""
    code = set(mono)
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd{' class=mono' if name in code else ''}>{escape(value)}</dd></div>"
        for name, value in pairs.items()
    )
    return f'<dl class="facts">{rows}</dl>'


@dataclasses.dataclass(frozen=True)
class IntervalRow:
    """A figure with its interval, on a track from ``scale[0]`` to ``scale[1]``; ``before`` is an open dot.

    ``mark`` is a fine line: a value that comes without looking.
    """

    name: str
    value: float
    low: float
    high: float
    shown: str
    interval: str
    scale: tuple[float, float]
    before: float | None = None
    was: str = ""
    change: str = ""
    mark: float | None = None
    strong: bool = False


def interval_rows(rows: Sequence[IntervalRow], caption: str, heads: tuple[str, str, str, str] | None = None) -> str:
    """Figures under each other, each as a dot on its interval, with the numbers beside it."""
    compared = any(row.was for row in rows)
    titles = heads or ("before", "this version", "95 % interval", "change")
    head = '<th scope="col"></th><th scope="col" class="track"></th>'
    names = titles if compared else titles[1:3]
    head += "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in names)
    body = []
    for row in rows:
        cells = [(titles[1], f"<b>{escape(row.shown)}</b>"), (titles[2], escape(row.interval))]
        if compared:
            cells = [(titles[0], escape(row.was)), *cells, (titles[3], escape(row.change))]
        numbers = "".join(
            f'<td class="number" data-label="{escape(label, quote=True)}">{value}</td>' for label, value in cells
        )
        kind = ' class="strong"' if row.strong else ""
        body.append(
            f'<tr{kind}><th scope="row">{escape(row.name)}</th><td class="track">{_track(row)}</td>{numbers}</tr>'
        )
    return (
        f'<div class="intervals"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
        f'<p class="small">{escape(caption)}</p></div>'
    )


def _track(row: IntervalRow) -> str:
    first, last = row.scale

    def across(value: float) -> float:
        share = (value - first) / ((last - first) or 1.0)
        return _END + min(max(share, 0.0), 1.0) * (_TRACK - 2 * _END)

    middle = _TALL / 2
    parts = [f'<line class="rail" x1="{_END}" x2="{_TRACK - _END}" y1="{middle}" y2="{middle}"/>']
    if row.mark is not None and row.mark >= first:
        parts.append(
            f'<line class="guess" x1="{across(row.mark):.1f}" x2="{across(row.mark):.1f}" y1="3" y2="17"/>'
        )
    if row.low == row.low:
        ends = f'x1="{across(row.low):.1f}" x2="{across(row.high):.1f}"'
        parts.append(f'<line class="range" {ends} y1="{middle}" y2="{middle}"/>')
    if row.before is not None and row.before == row.before:
        parts.append(f'<circle class="before" cx="{across(row.before):.1f}" cy="{middle}" r="4.6"/>')
    if row.value == row.value:
        parts.append(f'<circle class="now" cx="{across(row.value):.1f}" cy="{middle}" r="4.2"/>')
    return f'<svg viewBox="0 0 {_TRACK} {_TALL}" aria-hidden="true">{"".join(parts)}</svg>'


@dataclasses.dataclass(frozen=True)
class Tile:
    """A small picture with lines under it. ``kind`` of a line: ``was``, ``strong``, ``wrong``, ``meta`` or none."""

    picture: str | None
    alt: str
    lines: Sequence[tuple[str, str]] = ()
    wrong: bool = False


def tiles(given: Sequence[Tile], small: bool = False) -> str:
    """Tiles side by side; ``small`` ones in a close row."""
    blocks = []
    for tile in given:
        picture = (
            f'<img src="{tile.picture}" alt="{escape(tile.alt)}">' if tile.picture else '<span class="none"></span>'
        )
        lines = "".join(f'<span class="{kind or "line"}">{_marked(kind, text)}</span>' for kind, text in tile.lines)
        caption = f"<figcaption>{lines}</figcaption>" if lines else ""
        kind = ' class="wrong"' if tile.wrong else ""
        blocks.append(f"<figure{kind}>{picture}{caption}</figure>")
    return f'<div class="tiles{" small" if small else ""}">{"".join(blocks)}</div>'


def _marked(kind: str, text: str) -> str:
    if kind == "wrong":
        return f'{escape(text)} <span class="cross" aria-label="wrong">✕</span>'
    return f"<s>{escape(text)}</s>" if kind == "was" else escape(text)


def thumbnail(picture: Tensor, side: int = 144) -> str:
    """A picture (1 or 3, height, width; uint8 or float 0..1) as a small JPEG in a ``data:`` address."""
    if picture.ndim != 3 or picture.shape[0] not in (1, 3):
        raise InputError(
            f"a picture of shape {tuple(picture.shape)}; give (3, height, width) or (1, height, width)"
        )
    pixels = picture.detach().cpu()
    values = pixels.float() if pixels.is_floating_point() else pixels.float() / 255
    array = (values.clamp(0, 1) * 255).round().byte().expand(3, -1, -1).permute(1, 2, 0).numpy()
    image = Image.fromarray(np.ascontiguousarray(array))
    share = side / min(image.size)
    size = max(1, round(image.width * share)), max(1, round(image.height * share))
    image = image.resize(size, Image.Resampling.BICUBIC if share > 1 else Image.Resampling.LANCZOS)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    file = io.BytesIO()
    image.crop((left, top, left + side, top + side)).save(file, "JPEG", quality=84)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


@dataclasses.dataclass(frozen=True)
class HistoryRow:
    """One version: its node on the line, what it did, and who, when and why."""

    number: int
    what: str
    reason: str
    meta: str
    mono: str
    chips: Sequence[str] = ()
    state: str = "plain"


def history_rows(rows: Sequence[HistoryRow]) -> str:
    """Versions on a line, newest first; ``state``: ``current``, ``plain``, ``undone`` (off it) or ``gone``."""
    blocks = []
    for row in rows:
        chips = "".join(f'<span class="chip">{escape(one)}</span>' for one in row.chips)
        reason = f"<p>“{escape(row.reason)}”</p>" if row.reason else ""
        blocks.append(
            f'<li class="{row.state}"><span class="node" aria-hidden="true"></span><div><p class="what"><b>Version '
            f"{row.number}</b> {escape(row.what)} {chips}</p>{reason}"
            f'<p class="small">{escape(row.meta)} <code>{escape(row.mono)}</code></p></div></li>'
        )
    return f'<ol class="history">{"".join(blocks)}</ol>'
