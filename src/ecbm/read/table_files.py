"""Tables from CSV and Parquet files."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ecbm.errors import InputError, unknown_name
from ecbm.read.arrow_memory import arrow_stream
from ecbm.read.columns import Table

__all__ = ["read_table"]

# One block must hold a whole row; tables with very many concepts have long rows.
_BLOCK_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Which columns of a file to read."""

    ignore: set[str]
    only: set[str] | None

    def of(self, path: Path, names: Sequence[str]) -> list[str]:
        """The columns to read, in the order of the file."""
        for name in sorted(self.ignore - set(names)):
            raise unknown_name("column to ignore", name, names, where=str(path))
        wanted = [name for name in names if name not in self.ignore and (self.only is None or name in self.only)]
        if "" in wanted:
            raise InputError(
                f"{path}: column {names.index('') + 1} has no name; name it or drop it (pandas: index=False)"
            )
        twice = [name for name, count in Counter(wanted).items() if count > 1]
        if twice:
            raise InputError(f"{path}: two columns are called {twice[0]!r}; column names must be unique")
        return wanted


def read_table(
    path: Path, text: Iterable[str], ignore: Iterable[str] = (), only: Iterable[str] | None = None
) -> Table:
    """Read a CSV (``.csv``) or Parquet (``.parquet``, ``.pq``) file.

    Parameters
    ----------
    path
        The file.
    text
        Columns that hold text; all others are concepts.
    ignore
        Columns to leave out.
    only
        Columns to read, if not all; nothing is asked of the others.
    """
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{path}: unknown kind of table {path.suffix!r}; give a .csv or .parquet file")
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path of the table")
    choice = _Choice(set(ignore), None if only is None else set(only))
    try:
        table = _read_csv(path, set(text), choice) if kind == ".csv" else _read_parquet(path, choice)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({_one_line(error)})") from None
    if not len(table):
        raise InputError(f"{path}: the table has no rows; add one line a sample below the header")
    return table


def _read_parquet(path: Path, choice: _Choice) -> Table:
    try:
        columns = pa.parquet.ParquetFile(path).read()
        columns.validate(full=True)  # text that is no UTF-8 would otherwise surface where a cell is first read
        names = columns.column_names
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({_one_line(error)})") from None
    # pandas keeps the index of a frame in columns of this name; it is no concept.
    keep = [n for n in choice.of(path, names) if not n.startswith("__index_level_")]
    return Table(path, columns.select(keep))


def _read_csv(path: Path, text: set[str], choice: _Choice) -> Table:
    raw = path.read_bytes()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path}: the file is UTF-16; save it as 'CSV UTF-8'")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not raw.strip():
        raise InputError(f"{path}: the file is empty; write a header line and one line a sample")
    try:
        names = _header(raw)
    except UnicodeDecodeError:
        raise _not_utf8(path, raw) from None
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a readable header ({_one_line(error)})") from None
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise InputError(
            f"{path}, line 1: columns are not separated by commas; save the table as comma-separated CSV"
        )
    keep = choice.of(path, names)
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
        arrow_stream(raw),
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


def _not_utf8(path: Path, raw: bytes) -> InputError:
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return InputError(f"{path}, line {number}: not UTF-8 text; save the table as 'CSV UTF-8'")
    return InputError(f"{path}: not UTF-8 text; save the table as 'CSV UTF-8'")


def _damaged(path: Path, raw: bytes, width: int, error: Exception) -> InputError:
    """Find the first record with another number of cells than the header, or that is not UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _not_utf8(path, raw)
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
