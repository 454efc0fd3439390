"""Named columns of a file, with errors that name file, line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ecbm.errors import InputError, unknown_name

__all__ = ["Table", "record_lines"]

# What people leave in a cell whose label is missing. Only concept cells are compared with this list: a class
# may well be called "NA" or "None".
_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"})
_TRUTH = {"true": 1.0, "false": 0.0}


class Table:
    """Named columns of a file, which knows where each row stands in that file."""

    def __init__(self, path: Path, columns: pa.Table, raw: bytes | None = None) -> None:
        self.path, self._columns, self._raw = path, columns, raw
        self._lines: list[int] | None = None

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    @property
    def names(self) -> list[str]:
        """Column names in the order of the file."""
        return list(self._columns.column_names)

    @property
    def unit(self) -> str:
        """How rows are counted: lines of a CSV file (the header is line 1), rows of a Parquet file."""
        return "row" if self._raw is None else "line"

    @property
    def places(self) -> Sequence[int]:
        """Line (CSV) or row (Parquet) number of every row, as a person would count it."""
        if self._raw is None:
            return range(1, len(self) + 1)
        if self._lines is None:
            self._lines = record_lines(self._raw)[1 : len(self) + 1]
        return self._lines

    def error(self, row: int, column: str | None, problem: str) -> InputError:
        """The error for a cell (or, without a column, for a row)."""
        where = f"{self.path}, {self.unit} {self.places[row]}"
        return InputError(f"{where}, column {column!r}: {problem}" if column else f"{where}: {problem}")

    def require(self, column: str, option: str = "") -> None:
        """Raise, with near matches, when a column is absent; ``option`` is the argument that names it, if any."""
        if column not in self.names:
            hint = str(unknown_name("column", column, self.names)).split("; ", 1)[1]
            hint += "" if hint.endswith("?") else "."
            remedy = f"Rename the column or pass {option}='its name'" if option else "Rename the column"
            raise InputError(f"{self.path}: no column {column!r}; {hint} {remedy}")

    def text(self, column: str, what: str) -> list[str]:
        """The cells of a column as text, none of them empty."""
        values = self.optional_text(column, what)
        if not all(values):
            row = next(row for row, value in enumerate(values) if not value)
            raise self.error(row, column, f"empty; every row needs {what}")
        return [value for value in values if value is not None]

    def optional_text(self, column: str, what: str = "text") -> list[str | None]:
        """The cells of a column as text, ``None`` where they are empty."""
        cells = self._columns.column(column)
        kind = cells.type
        if pa.types.is_dictionary(kind):
            cells, kind = cells.cast(kind.value_type), kind.value_type
        if pa.types.is_null(kind):
            return [None] * len(self)
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
                raise InputError(
                    f"{self.path}, column {column!r}: {kind} cannot be read as {what}; store text or integers"
                )
            cells = cells.cast(pa.string())
        return [value or None for value in cells.to_pylist()]

    def is_text(self, column: str) -> bool:
        """Whether the cells of a column are text."""
        kind = self._columns.column(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))

    def fractions(self, columns: Sequence[str], unbounded: Sequence[str] = ()) -> NDArray[np.float32]:
        """(rows, columns) numbers in [0, 1], any in ``unbounded`` columns; NaN where a cell is missing."""
        result = np.empty((len(self), len(columns)), np.float32)
        for position, name in enumerate(columns):
            values = self.numbers(name)
            wrong = ~((values >= 0) & (values <= 1)) & ~np.isnan(values)
            if wrong.any() and name not in unbounded:
                row = int(wrong.argmax())
                raise self.error(
                    row,
                    name,
                    f"{values[row]:g} is not in [0, 1]; give 0, 1, a soft label between, or an empty cell",
                )
            result[:, position] = values
        return result

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The cells of a column as numbers; NaN where a cell is missing."""
        cells = self._columns.column(name)
        kind = cells.type
        if pa.types.is_null(kind):
            return np.full(len(self), np.nan)
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(), np.float64)
        if pa.types.is_nested(kind):
            raise InputError(f"{self.path}, column {name!r}: {kind} is no number; pass ignore=[{name!r}]")
        if not pa.types.is_dictionary(kind):
            cells = cells.dictionary_encode()
        cells = cells.unify_dictionaries().combine_chunks()
        if isinstance(cells, pa.ChunkedArray):
            cells = cells.chunk(0)
        codes = cells.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        known = cells.dictionary.to_pylist()
        numbers = np.array([*(_number(value) for value in known), np.nan])
        bad = np.isneginf(numbers)[codes]
        if bad.any():
            row = int(bad.argmax())
            raise self.error(
                row,
                name,
                f"{known[codes[row]]!r} is not a number; concepts are 0, 1, between, or empty for missing; "
                "pass ignore=[...] for columns that are no concepts",
            )
        return np.asarray(numbers[codes], np.float64)


def _number(value: object) -> float:
    """The number in a cell; NaN when missing, minus infinity when it is no number."""
    text = str(value).strip()
    folded = text.casefold()
    if folded in _MISSING:
        return np.nan
    if folded in _TRUTH:
        return _TRUTH[folded]
    try:
        return float("-inf") if "_" in text else float(text)
    except ValueError:
        return float("-inf")


def record_lines(raw: bytes) -> list[int]:
    """Line on which each record (header first) begins; blank lines hold no record."""
    if b'"' not in raw:
        return [number for number, line in enumerate(raw.splitlines(), 1) if line]
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", errors="replace", newline=""))
    lines, begins = [], 1
    for record in reader:
        if record:
            lines.append(begins)
        begins = reader.line_num + 1
    return lines
