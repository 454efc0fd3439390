"""What the second of two editors is told."""

from __future__ import annotations

import json
import sqlite3

from ecbm.words import summary_words

__all__ = ["moved_on_words"]


def moved_on_words(connection: sqlite3.Connection, expected: int | None, head: int | None) -> str:
    """What the second of two editors is told."""
    row = connection.execute(
        "SELECT summary, sequence FROM versions WHERE version = ?", (-1 if head is None else head,)
    ).fetchone()
    what = ""
    if row is not None:
        author = connection.execute(
            "SELECT content FROM details WHERE sequence = ? AND part = 'author'", (row[1],)
        ).fetchone()
        by = f"by {json.loads(author[0])}: " if author else ""
        what = f" ({by}{summary_words(json.loads(row[0]))})"
    return (
        f"the model moved on since you looked: you started from version {expected}, now it is version "
        f"{head}{what}; nothing was changed: look at it with 'ecbm show' and run your edit again"
    )
