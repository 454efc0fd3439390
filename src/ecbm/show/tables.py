"""Tables for people, as wide as the terminal: columns that do not fit are left out and named, none is cut."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecbm.terminal import new_console

__all__ = ["print_table"]

# Text goes on in the next line where it must: the first column's only if it is wider than the first number, other
# columns' where fewer columns are left than the second.
_FIRST, _NARROWEST = 40, 12


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    drop: Sequence[str] = (),
    names: Mapping[str, int] | Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print a table. The first column and those in ``names`` hold text, the others figures.

    Parameters
    ----------
    headers, rows
        What to print; cells are shown as they are, not as markup.
    drop
        Headers of columns that may be left out where the terminal is narrow, the first of them first.
    names
        Headers of further columns that hold text, which may go on in the next line but is never cut; with the least
        width that is worth having.
    """
    console = console or new_console()
    # In a file or a pipe there is no edge; a width that was asked for by COLUMNS counts everywhere.
    edge = console.width if console.is_terminal or "COLUMNS" in os.environ else None
    widths = [max(map(cell_len, (header, *(row[p] for row in rows)))) for p, header in enumerate(headers)]
    asked = names if isinstance(names, Mapping) else dict.fromkeys(names, _NARROWEST)
    least = [
        min(width, asked.get(header, _FIRST)) if place == 0 or header in asked else width
        for place, (header, width) in enumerate(zip(headers, widths, strict=True))
    ]
    shown, gone = list(range(len(headers))), []
    for header in drop:
        if edge is not None and header in headers and _total([least[p] for p in shown]) > edge:
            shown.remove(headers.index(header))
            gone.append(header.strip())
    text = [place for place in shown if place == 0 or headers[place] in asked]
    width = {place: widths[place] for place in shown}
    if edge is not None:
        width = _fitted(width, {place: least[place] for place in shown}, text, edge)
    table = Table(title=title or None, title_justify="left")
    for place in shown:
        side: Literal["left", "right"] = "left" if place in text else "right"
        table.add_column(headers[place], overflow="fold", justify=side, width=width[place])
    for row in rows:
        table.add_row(*(Text(row[place]) for place in shown))
    # A table that is wider than the terminal all the same is wrapped by the terminal, not cut by us.
    wide = new_console(width=_total(width.values()), file=console.file, quiet=console.quiet)
    wide.print(table)
    left = [name for name in gone if name]
    if left:
        wide.print(
            f"not shown in {edge} columns: {', '.join(left)} (a wider terminal or --json has more)",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _fitted(whole: dict[int, int], least: dict[int, int], text: Sequence[int], edge: int) -> dict[int, int]:
    """Widths that fill the terminal and, as long as text can be folded, do not go beyond it.

    Rich's own division of the width may take from a column that must not shrink.
    """
    width = dict(least)
    for place in text:
        width[place] += max(0, min(whole[place] - width[place], edge - _total(width.values())))
    for place in text:
        spare = max(0, width[place] - _NARROWEST)
        width[place] -= max(0, min(spare, _total(width.values()) - edge))
    return width


def _total(widths: Collection[int]) -> int:
    """How wide a table of such columns is, with its borders."""
    return sum(widths) + 3 * len(widths) + 1
