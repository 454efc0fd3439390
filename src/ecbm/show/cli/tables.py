"""Tables for people, as wide as the terminal: columns that do not fit are left out and named, figures are never cut."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecbm.terminal import new_console

__all__ = ["print_table"]

# A name that is wider than what is left for it goes on in the next line, but never in fewer characters than this.
_NARROWEST = 12


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    drop: Sequence[str] = (),
    names: Sequence[str] = (),
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
        Headers of further columns that hold text, which may go on in the next line but is never cut.
    """
    shown = [place for place, _ in enumerate(headers)]
    text = {0, *(place for place, header in enumerate(headers) if header in names)}
    widths = [max(map(cell_len, (header, *(row[p] for row in rows)))) for p, header in enumerate(headers)]
    console = console or new_console()
    # In a file or a pipe there is no edge; a width that was asked for by COLUMNS counts everywhere.
    fixed = console.is_terminal or "COLUMNS" in os.environ

    def least(places: Sequence[int]) -> int:
        inside = sum(min(widths[p], _NARROWEST) if p in text else widths[p] for p in places)
        return inside + 3 * len(places) + 1

    gone: list[str] = []
    for header in drop:
        if fixed and least(shown) > console.width and header in headers:
            shown.remove(headers.index(header))
            gone.append(header)
    table = Table(title=title or None, title_justify="left")
    for place in shown:
        if place in text:
            table.add_column(headers[place], overflow="fold", min_width=min(widths[place], _NARROWEST))
        else:
            table.add_column(headers[place], justify="right", no_wrap=True, min_width=widths[place])
    for row in rows:
        table.add_row(*(Text(row[place]) for place in shown))
    whole = sum(widths[p] for p in shown) + 3 * len(shown) + 1
    # A table that is wider than the terminal all the same is wrapped by the terminal, not cut by us.
    wanted = max(least(shown), min(whole, console.width)) if fixed else whole
    console.print(table, width=wanted, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
    if gone:
        console.print(
            f"not shown in {console.width} columns: {', '.join(gone)} (a wider terminal or --json has them)",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
