"""Named columns of a file, with errors that name file, line and column."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ecbm.errors import InputError, unknown_name
from ecbm.options import option
from ecbm.read.numbers import Numbers, has_decimal_comma, numbers_in

__all__ = ["Cells", "Habits", "Table", "record_lines"]


@dataclasses.dataclass(frozen=True)
class Habits:
    """How cells were written, as far as the user has said so: marks for missing, and the decimal sign."""

    missing: frozenset[str] = frozenset()
    decimal: str | None = None

    @classmethod
    def of(cls, missing: Collection[str] = (), decimal: str | None = None) -> Habits:
        if decimal not in (None, ".", ","):
            raise InputError(f"{option('decimal', decimal)}: give '.' or ','")
        return cls(frozenset(mark.strip() for mark in missing), decimal)


@dataclasses.dataclass(frozen=True)
class Cells:
    """A column by its different contents: ``texts[codes[row]]``; −1 where a cell is empty."""

    texts: list[str]
    codes: NDArray[np.int64]


class Table:
    """Named columns of a file, which knows where each row stands in that file.

    Parameters
    ----------
    path
        The file, for messages.
    columns
        Its content.
    unit
        How rows are counted there: ``"line"`` of a text file (the header is line 1), ``"row"`` of another.
    places
        The number of every row as a person would count it; by default rows from 1. A function is called on first
        use: only messages need it.
    habits
        What the user said about cells.
    remarks
        What was remarkable about the file.
    """

    def __init__(
        self,
        path: Path,
        columns: pa.Table,
        *,
        unit: str = "row",
        places: Callable[[], Sequence[int]] | None = None,
        habits: Habits | None = None,
        remarks: Sequence[str] = (),
    ) -> None:
        self.path, self._columns, self.unit, self._find_places = path, columns, unit, places
        self.habits, self.remarks = habits or Habits(), tuple(remarks)

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    @property
    def names(self) -> list[str]:
        """Column names in the order of the file."""
        return list(self._columns.column_names)

    @cached_property
    def places(self) -> Sequence[int]:
        """The number of every row, as a person would count it."""
        return range(1, len(self) + 1) if self._find_places is None else self._find_places()

    def error(self, row: int, column: str | None, problem: str) -> InputError:
        """The error for a cell (or, without a column, for a row)."""
        where = f"{self.path}, {self.unit} {self.places[row]}"
        return InputError(f"{where}, column {column!r}: {problem}" if column else f"{where}: {problem}")

    def require(self, column: str, argument: str = "") -> None:
        """Raise, with near matches, when a column is absent; ``argument`` is what names it, if anything does."""
        if column not in self.names:
            hint = str(unknown_name("column", column, self.names)).split("; ", 1)[1]
            hint += "" if hint.endswith("?") else "."
            remedy = (
                f"Rename the column or pass {option(argument, 'its name')}" if argument else "Rename the column"
            )
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

    def is_numeric(self, name: str) -> bool:
        """Whether a column holds numbers as numbers, not as text."""
        kind = self._columns.column(name).type
        return bool(
            pa.types.is_floating(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        )

    def cells(self, name: str) -> Cells:
        """The different texts of a column, and which row has which."""
        cells = self._columns.column(name)
        kind = cells.type
        refusal = InputError(f"{self.path}, column {name!r}: {kind} is no number; pass {option('ignore', [name])}")
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise refusal
        if not pa.types.is_dictionary(kind):
            try:
                cells = cells.cast(pa.string()).dictionary_encode()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise refusal from None
        cells = cells.unify_dictionaries().combine_chunks()
        if isinstance(cells, pa.ChunkedArray):
            cells = cells.chunk(0)
        codes = cells.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        known = [str(value) for value in cells.dictionary.to_pylist()]
        return Cells(known, codes)

    def numbers_of(self, name: str) -> tuple[Cells, Numbers]:
        """The different texts of a column as numbers."""
        cells = self.cells(name)
        found = numbers_in(
            cells.texts,
            missing=self.habits.missing,
            decimal=self.habits.decimal,
            comma_elsewhere=lambda: self._has_decimal_commas,
        )
        return cells, found

    def numbers(self, name: str, what: str = "") -> NDArray[np.float64]:
        """The cells of a column as numbers; NaN where a cell is missing. ``what`` says what it should hold."""
        if self.is_numeric(name):
            return self.plain_numbers(name)
        cells, found = self.numbers_of(name)
        if found.doubtful is not None:
            row = int((cells.codes == _place_of(cells.texts, found.doubtful)).argmax())
            raise self.error(
                row,
                name,
                f"{found.doubtful!r} may have a decimal sign or separated thousands; pass {option('decimal', ',')} "
                f"or {option('decimal', '.')}",
            )
        values = np.append(found.values, np.nan)[cells.codes]
        bad = np.isneginf(values)
        if bad.any():
            row = int(bad.argmax())
            raise self.not_a_number(row, name, cells.texts[cells.codes[row]], what)
        return values

    def plain_numbers(self, name: str) -> NDArray[np.float64]:
        """The cells of a numeric column."""
        cells = self._columns.column(name)
        if pa.types.is_null(cells.type):
            return np.full(len(self), np.nan)
        values = np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(), np.float64)
        marks = [number for number in map(_float, self.habits.missing) if number is not None]
        return np.where(np.isin(values, marks), np.nan, values) if marks else values

    def not_a_number(self, row: int, name: str, text: str, what: str = "") -> InputError:
        """The error for a cell that is none."""
        what = what or "concepts are 0, 1, between, or empty for missing"
        remedy = (
            f"pass {option('ignore', [name])} if it is no concept, {option('missing', [text])} if it means missing"
        )
        if text.strip()[:1] in ("<", ">") and any(sign.isdigit() for sign in text):
            remedy = "write the limit itself, or leave the cell empty"
        return self.error(row, name, f"{text!r} is not a number; {what}; {remedy}")

    @cached_property
    def _has_decimal_commas(self) -> bool:
        """Whether some column has decimal commas for certain."""
        return any(
            has_decimal_comma(self.cells(name).texts)
            for name in self.names
            if _is_text(self._columns.column(name).type)
        )


def _place_of(texts: Sequence[str], shown: str) -> int:
    return next((place for place, text in enumerate(texts) if shown in text), 0)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def record_lines(raw: bytes, delimiter: str = ",") -> list[int]:
    """Line on which each record (header first) begins; blank lines hold no record."""
    if b'"' not in raw:
        return [number for number, line in enumerate(raw.splitlines(), 1) if line]
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", errors="replace", newline=""), delimiter=delimiter
    )
    lines, begins = [], 1
    for record in reader:
        if record:
            lines.append(begins)
        begins = reader.line_num + 1
    return lines
