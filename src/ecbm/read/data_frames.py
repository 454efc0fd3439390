"""Tables in memory in place of a file: pandas, and what Hugging Face ``datasets`` gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.read.columns import Habits, Table
from ecbm.read.table_files import Choice

if TYPE_CHECKING:
    import pandas

__all__ = ["frame_in", "is_frame", "table_of_frame"]

NAME = Path("DataFrame")
# What others call these splits.
_SPLITS = {"validation": "val", "valid": "val", "dev": "val"}


def is_frame(given: Any) -> bool:
    """Whether something is a pandas table. pandas is not loaded to find out: whoever has one has loaded it."""
    return type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns")


def frame_in(given: Any, split_column: str = "split") -> Any:
    """The pandas table in what was given: itself, a Hugging Face table, or such tables by split; ``None`` if none
    is.

    ``datasets`` is recognised by what it offers and never imported.
    """
    if is_frame(given):
        return given
    if _is_hugging_face(given):
        return _frame_of(given)
    if isinstance(given, Mapping) and given and all(_is_hugging_face(part) for part in given.values()):
        import pandas

        parts = []
        for name, part in given.items():
            frame = _frame_of(part)
            parts.append(frame.assign(**{split_column: _SPLITS.get(str(name), str(name))}))
        return pandas.concat(parts, ignore_index=True)
    return None


def _is_hugging_face(given: Any) -> bool:
    return callable(getattr(given, "to_pandas", None)) and isinstance(getattr(given, "features", None), Mapping)


def _frame_of(given: Any) -> Any:
    """A Hugging Face table as a pandas one; classes that it keeps as numbers get their names."""
    frame = given.to_pandas()
    for column, kind in given.features.items():
        names = getattr(kind, "names", None)
        if column in frame.columns and isinstance(names, list | tuple):
            # A class that is not known is kept there as −1.
            cells = [names[int(code)] if code == code and int(code) >= 0 else None for code in frame[column]]
            frame = frame.assign(**{column: cells})
    return frame


def table_of_frame(frame: pandas.DataFrame, ignore: Iterable[str] = (), habits: Habits | None = None) -> Table:
    """The columns of a pandas table, not its index; messages call it ``DataFrame`` and count rows from 1."""
    if not len(frame):
        raise InputError(f"{NAME}: the table has no rows; give one row a sample")
    chosen = Choice(set(ignore), None).of(NAME, [str(name) for name in frame.columns])
    positions = [place for place, name in enumerate(frame.columns) if str(name) in chosen]
    arrays = []
    for place in positions:
        column = frame.iloc[:, place]
        first = next((cell for cell in column if cell is not None), None)
        if isinstance(first, Mapping | bytes):
            name = str(frame.columns[place])
            raise InputError(
                f"{NAME}, column {name!r}: holds pictures or other objects; save them as files for "
                f"{option('images')}, or pass {option('ignore', [name])}"
            )
        try:
            # One column at a time and in this thread: Arrow's own pool must not outlive a refused table.
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            # Numbers and text mixed: all of it as text, so that the wrong cell can be named.
            cells = [None if missing else str(cell) for cell, missing in zip(column, column.isna(), strict=True)]
            arrays.append(pa.array(cells, pa.string()))
    return Table(NAME, pa.table(arrays, names=chosen), habits=habits)
