"""One self-contained HTML page: pictures, tables and charts inside the file, no scripts, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from ecbm._version import __version__
from ecbm.errors import InputError
from ecbm.files import write_text
from ecbm.show.page_cards import Badge, Card, ConceptBar, card_block, key, share
from ecbm.show.page_chart import Points, line_chart

__all__ = ["Badge", "Card", "ConceptBar", "Page", "style_sheet"]

Value = str | int | float

# Tables with more columns than this are shown row by row on a narrow screen.
_NARROW = 5


class Page:
    """A page put together block by block; every method returns the page.

    Parameters
    ----------
    title, subtitle, above
        The heading, and a line below and above it.
    style
        Style sheets of the package on top of those that every page has.

    Examples
    --------
    >>> page = Page("A report", "What the model learnt")
    >>> _ = page.section("Accuracy", "On the test split.").metrics({"Class accuracy": "0.95"})
    >>> "<h1>A report</h1>" in page.html()
    True
    """

    def __init__(self, title: str, subtitle: str = "", above: str = "", style: Sequence[str] = ()) -> None:
        self.title, self.subtitle, self.above, self._style = title, subtitle, above, tuple(style)
        self._sections: list[tuple[str, list[str]]] = [("", [])]

    def section(self, title: str, lead: str = "") -> Page:
        """Start a section; what follows belongs to it."""
        self._sections.append((title, [f'<p class="lead">{escape(lead)}</p>'] if lead else []))
        return self

    def block(self, html: str) -> Page:
        """A block of HTML as it is: what it is made of must be escaped already (:mod:`ecbm.show.page_parts`)."""
        return self._add(html)

    def text(self, paragraph: str) -> Page:
        """A paragraph."""
        return self._add(f'<p class="text">{escape(paragraph)}</p>')

    def code(self, lines: str) -> Page:
        """Lines of code or of a terminal, as they are."""
        return self._add(f"<pre><code>{escape(lines)}</code></pre>")

    def metrics(self, values: Mapping[str, Value | tuple[Value, str]]) -> Page:
        """Tiles with one number each; a pair adds a note under the number."""
        tiles = []
        for name, given in values.items():
            value, note = given if isinstance(given, tuple) else (given, "")
            remark = f'<dd class="note">{escape(note)}</dd>' if note else ""
            tiles.append(f"<div><dt>{escape(name)}</dt><dd>{escape(_written(value))}</dd>{remark}</div>")
        return self._add(f'<dl class="metrics">{"".join(tiles)}</dl>')

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[Value]],
        highlight: Collection[int] = (),
        meters: Collection[int] = (),
        caption: str = "",
    ) -> Page:
        """A table whose first column names the rows.

        ``highlight`` numbers the rows to mark; ``meters`` the columns whose numbers 0..1 get a small bar too.
        """
        return self._add(_table(headers, [tuple(row) for row in rows], highlight, meters, caption))

    def gallery(self, cards: Iterable[Card]) -> Page:
        """Cards side by side, as many as fit."""
        shown = list(cards)
        blocks = "".join(card_block(card) for card in shown)
        return self._add(f'<div class="gallery">{blocks}</div>{key(shown)}')

    def before_after(self, before: Card, after: Card, change: str) -> Page:
        """Two cards with what was changed between them: an intervention and what became of it."""
        left, right = card_block(before, wide=True), card_block(after, wide=True)
        block = f'<div class="change">{left}<p>{_ARROW}{escape(change)}</p>{right}</div>'
        return self._add(block + key([before, after]))

    def line_chart(
        self,
        series: Mapping[str, Points],
        x_label: str,
        y_label: str,
        title: str = "Chart",
        percent: bool = False,
    ) -> Page:
        """Lines through (x, y) points, one a name, with the numbers in a table that opens on a click."""
        chart = line_chart(series, x_label, y_label, title, percent)
        places = sorted({x for line in series.values() for x, _ in line})
        columns = [dict(line) for line in series.values()]
        rows = [(f"{x:g}", *(column.get(x, "") for column in columns)) for x in places]
        numbers = _table([x_label, *series], rows)
        details = f"<details><summary>The numbers</summary>{numbers}</details>"
        return self._add(f'<figure class="chart">{chart}{details}</figure>')

    def html(self) -> str:
        """The whole page."""
        taken: set[str] = set()
        links, parts = [], []
        for title, blocks in self._sections:
            if not title:
                parts += blocks
                continue
            anchor = _anchor(title, taken)
            links.append(f'<li><a href="#{anchor}">{escape(title)}</a></li>')
            heading = f'<h2 id="{anchor}">{escape(title)}</h2>'
            parts.append(f'<section aria-labelledby="{anchor}">{heading}{"".join(blocks)}</section>')
        body = "\n".join(parts)
        subtitle = f'<p class="subtitle">{escape(self.subtitle)}</p>' if self.subtitle else ""
        contents = f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>' if len(links) > 1 else ""
        style = style_sheet("tokens", "page", *self._style)
        above = f'<p class="above">{escape(self.above)}</p>' if self.above else ""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f'<header class="hero"><div class="wrap">{above}<h1>{escape(self.title)}</h1>{subtitle}{contents}'
            f'</div></header>\n<main><div class="wrap">\n{body}\n</div></main>\n'
            f'<footer><div class="wrap">Written by ecbm {escape(__version__)}.</div></footer>\n'
            "</body>\n</html>\n"
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to ``path``, wholly or not at all; missing folders are made."""
        target = Path(path)
        content = self.html()
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, content)
        return target

    def _add(self, block: str) -> Page:
        self._sections[-1][1].append(block)
        return self


_ARROW = (
    '<svg viewBox="0 0 48 48" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="3" '
    'stroke-linecap="round" stroke-linejoin="round"><path d="M6 24h34M28 12l12 12-12 12"/></svg>'
)


def style_sheet(*names: str) -> str:
    """Style sheets of the package, one after the other; ``tokens`` holds the colours that all of them use."""
    folder = resources.files("ecbm.show").joinpath("assets")
    return "\n".join(folder.joinpath(f"{name}.css").read_text("utf-8") for name in names)


def _written(value: Value) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _is_number(value: Value) -> bool:
    return (
        not isinstance(value, str)
        or re.fullmatch(r"[-+−±]?[\d.,]+(?: to [\d.,]+)? ?(?:[%s×]|points)?", value) is not None
    )


def _anchor(title: str, taken: set[str]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    name = next(n for i in range(len(taken) + 1) if (n := f"{stem}-{i}" if i else stem) not in taken)
    taken.add(name)
    return name


def _table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Value]],
    highlight: Collection[int] = (),
    meters: Collection[int] = (),
    caption: str = "",
) -> str:
    for number, row in enumerate(rows):
        if len(row) != len(headers):
            raise InputError(f"table row {number + 1}: {len(row)} cells for {len(headers)} headers")
    numeric = [column > 0 and any(_is_number(row[column]) for row in rows) for column in range(len(headers))]

    def cell(value: Value, column: int) -> str:
        bar = ""
        if column in meters and not isinstance(value, str):
            bar = f'<span class="meter" aria-hidden="true"><i style="--p:{share(value)}"></i></span>'
        # A narrow screen shows a wide table row by row, with its header beside each figure.
        label = f' data-label="{escape(headers[column], quote=True)}"'
        name, kind = ("th", ' scope="row"') if column == 0 else ("td", label)
        align = ' class="number"' if numeric[column] else ""
        return f"<{name}{kind}{align}>{escape(_written(value))}{bar}</{name}>"

    aligned = [' class="number"' if number else "" for number in numeric]
    titles = (f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(headers, aligned, strict=True))
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(cell(value, column) for column, value in enumerate(row))
        lines.append(f'<tr class="marked">{cells}</tr>' if number in highlight else f"<tr>{cells}</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head, body = "".join(titles), "".join(lines)
    wide = ' class="wide"' if len(headers) > _NARROW else ""
    return (
        f'<div class="scroll"><table{wide}>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
