"""Small blocks of HTML for notebooks (``_repr_html_``): a heading, lines, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["block"]

_MOST = 12


def block(
    title: str, lines: Iterable[str], headers: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()
) -> str:
    """A heading, lines of text, and the first rows of a table; everything is escaped.

    Examples
    --------
    >>> block("<b>", ["one line"])
    '<div><strong>&lt;b&gt;</strong><br>one line</div>'
    """
    parts = [f"<strong>{escape(title)}</strong>", *(f"<br>{escape(line)}" for line in lines)]
    shown = list(rows)
    if shown:
        head = "".join(f"<th>{escape(name)}</th>" for name in headers)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in shown[:_MOST]
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if len(shown) > _MOST:
            parts.append(f"… and {len(shown) - _MOST} more")
    return f"<div>{''.join(parts)}</div>"
