"""Tables from CSV and Parquet files, read column by column, with errors that name file, line and column."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ecbm.errors import InputError, unknown_name

__all__ = ["Table", "read_table"]

# What people leave in a cell whose label is missing. Only concept cells are compared with this list: a class
# may well be called "NA" or "None".
_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"})
_TRUTH = {"true": 1.0, "false": 0.0}
# One block must hold a whole row; tables with very many concepts have long rows.
_BLOCK_BYTES = 16 * 2**20


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
            self._lines = _record_lines(self._raw)[1 : len(self) + 1]
        return self._lines

    def error(self, row: int, column: str | None, problem: str) -> InputError:
        """The error for a cell (or, without a column, for a row)."""
        where = f"{self.path}, {self.unit} {self.places[row]}"
        return InputError(f"{where}, column {column!r}: {problem}" if column else f"{where}: {problem}")

    def require(self, column: str, option: str) -> None:
        """Raise, with near matches, when a column is absent; ``option`` is the argument that names it."""
        if column not in self.names:
            hint = str(unknown_name("column", column, self.names)).split("; ", 1)[1]
            raise InputError(
                f"{self.path}: no column {column!r}; {hint} Rename the column or pass {option}='its name'"
            )

    def text(self, column: str, what: str) -> list[str]:
        """The cells of a column as text, none of them empty."""
        cells = self._columns.column(column)
        kind = cells.type
        if pa.types.is_dictionary(kind):
            cells, kind = cells.cast(kind.value_type), kind.value_type
        if pa.types.is_null(kind):
            raise self.error(0, column, f"empty; every row needs {what}")
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
                raise InputError(
                    f"{self.path}, column {column!r}: {kind} cannot be read as {what}; store text or integers"
                )
            cells = cells.cast(pa.string())
        values: list[str | None] = cells.to_pylist()
        if not all(values):
            row = next(row for row, value in enumerate(values) if not value)
            raise self.error(row, column, f"empty; every row needs {what}")
        return [value for value in values if value is not None]

    def fractions(self, columns: Sequence[str]) -> NDArray[np.float32]:
        """(rows, columns) numbers in [0, 1]; NaN where a cell is missing."""
        result = np.empty((len(self), len(columns)), np.float32)
        for position, name in enumerate(columns):
            values = self._numbers(name)
            wrong = ~((values >= 0) & (values <= 1)) & ~np.isnan(values)
            if wrong.any():
                row = int(wrong.argmax())
                raise self.error(
                    row,
                    name,
                    f"{values[row]:g} is not in [0, 1]; give 0, 1, a soft label between, or an empty cell",
                )
            result[:, position] = values
        return result

    def _numbers(self, name: str) -> NDArray[np.float64]:
        cells = self._columns.column(name)
        kind = cells.type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return np.asarray(cells.cast(pa.float64()).to_numpy(), np.float64)
        if pa.types.is_null(kind):
            return np.full(len(self), np.nan)
        if pa.types.is_decimal(kind):
            return np.asarray(cells.cast(pa.float64()).to_numpy(), np.float64)
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


def read_table(path: Path, text: Iterable[str], ignore: Iterable[str] = ()) -> Table:
    """Read a CSV (``.csv``) or Parquet (``.parquet``, ``.pq``) file.

    Parameters
    ----------
    path
        The file.
    text
        Columns that hold text; all others are concepts.
    ignore
        Columns to leave out.
    """
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{path}: unknown kind of table {path.suffix!r}; give a .csv or .parquet file")
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path of the table")
    leave = set(ignore)
    try:
        table = _read_csv(path, set(text), leave) if kind == ".csv" else _read_parquet(path, leave)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({_one_line(error)})") from None
    if not len(table):
        raise InputError(f"{path}: the table has no rows; add one line a sample below the header")
    return table


def _read_parquet(path: Path, ignore: set[str]) -> Table:
    try:
        columns = pa.parquet.ParquetFile(path).read()
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({_one_line(error)})") from None
    _check_names(path, columns.column_names, ignore)
    # pandas keeps the index of a frame in columns of this name; it is no concept.
    keep = [n for n in columns.column_names if n not in ignore and not n.startswith("__index_level_")]
    return Table(path, columns.select(keep))


def _read_csv(path: Path, text: set[str], ignore: set[str]) -> Table:
    raw = path.read_bytes()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path}: the file is UTF-16; save it as 'CSV UTF-8'")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not raw.strip():
        raise InputError(f"{path}: the file is empty; write a header line and one line a sample")
    try:
        names = _header(raw)
    except UnicodeDecodeError:
        raise InputError(f"{path}, line 1: the header is not UTF-8; save the table as 'CSV UTF-8'") from None
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a readable header ({_one_line(error)})") from None
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise InputError(
            f"{path}, line 1: columns are not separated by commas; save the table as comma-separated CSV"
        )
    _check_names(path, names, ignore)
    keep = [name for name in names if name not in ignore]
    try:
        columns = _parse(raw, {n: pa.string() if n in text else pa.float64() for n in keep})
    except pa.ArrowInvalid:
        # A cell that is no number, or a damaged line: if all reads as text, the cell is looked for later.
        try:
            columns = _parse(raw, {name: pa.string() for name in keep})
        except pa.ArrowInvalid as error:
            raise _damaged(path, raw, len(names), error) from None
    return Table(path, columns, raw)


def _parse(raw: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    return pa.csv.read_csv(
        pa.BufferReader(raw),
        read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=["", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"],
        ),
    )


def _header(raw: bytes) -> list[str]:
    """The first record; a quoted name may contain a line break, so this cannot simply take the first line."""
    for record in csv.reader(_lines_of(raw), strict=True):
        if record:
            return record
    return []


def _lines_of(raw: bytes) -> Iterable[str]:
    return io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="")


def _record_lines(raw: bytes) -> list[int]:
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


def _damaged(path: Path, raw: bytes, width: int, error: Exception) -> InputError:
    """Find the first record with another number of cells than the header, or that is not UTF-8."""
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return InputError(f"{path}, line {number}: not UTF-8 text; save the table as 'CSV UTF-8'")
    begins, reader = 1, csv.reader(_lines_of(raw))
    try:
        for record in reader:
            if record and len(record) != width:
                return InputError(
                    f"{path}, line {begins}: {len(record)} cells but the header has {width} columns; "
                    "check commas and quotation marks"
                )
            begins = reader.line_num + 1
    except csv.Error as problem:
        return InputError(f"{path}, line {begins}: {_one_line(problem)}; check commas and quotation marks")
    return InputError(f"{path}: not a readable CSV file ({_one_line(error)})")


def _check_names(path: Path, names: Sequence[str], ignore: set[str]) -> None:
    for position, name in enumerate(names, 1):
        if not name and "" not in ignore:
            raise InputError(
                f"{path}, line 1: column {position} has no name; name it or leave it out (pandas: index=False)"
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path}: two columns are called {twice[0]!r}; column names must be unique")
    for name in sorted(ignore - set(names)):
        raise unknown_name("column to ignore", name, names, where=str(path))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
