"""A pandas table in place of a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ecbm.errors import InputError
from ecbm.read.columns import Table
from ecbm.read.table_files import Choice

if TYPE_CHECKING:
    import pandas

__all__ = ["is_frame", "table_of_frame"]

NAME = Path("DataFrame")


def is_frame(given: Any) -> bool:
    """Whether something is a pandas table. pandas is not loaded to find out: whoever has one has loaded it."""
    return type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns")


def table_of_frame(frame: pandas.DataFrame, ignore: Iterable[str] = ()) -> Table:
    """The columns of a pandas table, not its index; messages call it ``DataFrame`` and count rows from 1."""
    if not len(frame):
        raise InputError(f"{NAME}: the table has no rows; give one row a sample")
    chosen = Choice(set(ignore), None).of(NAME, [str(name) for name in frame.columns])
    positions = [place for place, name in enumerate(frame.columns) if str(name) in chosen]
    arrays = []
    for place in positions:
        column = frame.iloc[:, place]
        try:
            # One column at a time and in this thread: Arrow's own pool must not outlive a refused table.
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            # Numbers and text mixed: all of it as text, so that the wrong cell can be named.
            cells = [None if missing else str(cell) for cell, missing in zip(column, column.isna(), strict=True)]
            arrays.append(pa.array(cells, pa.string()))
    return Table(NAME, pa.table(arrays, names=chosen))
