"""Tables from text files (CSV and its kin), Parquet files and spreadsheets."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ecbm.errors import InputError, UnknownNameError, unknown_name
from ecbm.options import comma_hint, option
from ecbm.read.arrow_memory import arrow_stream
from ecbm.read.columns import Habits, Table, record_lines
from ecbm.read.dialects import Dialect, dialect_of

__all__ = ["TABLES", "TEXT_TABLES", "FileOptions", "read_table"]

TEXT_TABLES = (".csv", ".tsv", ".txt", ".tab")
TABLES = (*TEXT_TABLES, ".parquet", ".pq", ".xlsx")

# One block must hold a whole row; tables with very many concepts have long rows.
_BLOCK_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """What the user said about the file: ``None`` and nothing where it is to be found out."""

    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    habits: Habits = dataclasses.field(default_factory=Habits)


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which columns of a file to read."""

    ignore: set[str]
    only: set[str] | None

    def of(self, path: Path, names: Sequence[str]) -> list[str]:
        """The columns to read, in the order of the file."""
        for name in sorted(self.ignore - set(names)):
            unknown = unknown_name("column to ignore", name, names, where=str(path))
            raise UnknownNameError(f"{unknown}{comma_hint('ignore', name, names)}")
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
    path: Path,
    text: Iterable[str],
    ignore: Iterable[str] = (),
    only: Iterable[str] | None = None,
    options: FileOptions | None = None,
) -> Table:
    """Read a text table (``.csv``, ``.tsv``, ``.txt``), a Parquet file (``.parquet``, ``.pq``) or a spreadsheet.

    Parameters
    ----------
    path
        The file.
    text
        Columns that hold text; all others are taken for numbers where they are.
    ignore
        Columns to leave out.
    only
        Columns to read, if not all; nothing is asked of the others.
    options
        What the user said about the file.
    """
    kind = path.suffix.lower()
    if kind == ".xls":
        raise InputError(f"{path}: an old Excel workbook; open it and save it as .xlsx or CSV")
    if kind not in TABLES:
        raise InputError(f"{path}: unknown kind of table {path.suffix!r}; give a .csv, .xlsx or .parquet file")
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path of the table")
    choice = Choice(set(ignore), None if only is None else set(only))
    said = options or FileOptions()
    try:
        if kind == ".xlsx":
            from ecbm.read.spreadsheets import read_sheet

            table = read_sheet(path, choice, said.sheet, said.habits)
        else:
            _refuse_other_options(path, kind, said)
            table = (
                _read_text(path, set(text), choice, said)
                if kind in TEXT_TABLES
                else _read_parquet(path, choice, said.habits)
            )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({_one_line(error)})") from None
    if not len(table):
        raise InputError(f"{path}: the table has no rows; add one line a sample below the header")
    return table


def _refuse_other_options(path: Path, kind: str, said: FileOptions) -> None:
    if said.sheet is not None:
        raise InputError(f"{path}: {option('sheet')} is for .xlsx workbooks")
    if kind not in TEXT_TABLES and (said.encoding is not None or said.delimiter is not None):
        raise InputError(f"{path}: {option('encoding')} and {option('delimiter')} are for text tables")


def _read_parquet(path: Path, choice: Choice, habits: Habits) -> Table:
    try:
        columns = pa.parquet.ParquetFile(path).read()
        columns.validate(full=True)  # text that is no UTF-8 would otherwise surface where a cell is first read
        names = columns.column_names
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({_one_line(error)})") from None
    # pandas keeps the index of a frame in columns of this name; it is no concept.
    keep = [n for n in choice.of(path, names) if not n.startswith("__index_level_")]
    return Table(path, columns.select(keep), habits=habits)


def _read_text(path: Path, text: set[str], choice: Choice, said: FileOptions) -> Table:
    raw = path.read_bytes()
    if not raw.strip():
        raise InputError(f"{path}: the file is empty; write a header line and one line a sample")
    dialect = dialect_of(path, raw, said.encoding, said.delimiter)
    try:
        names = _header(dialect)
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a readable header ({_one_line(error)})") from None
    remarks = list(dialect.remarks)
    if _is_pandas_index(dialect, names):
        remarks.append("the first column has no name and counts rows from 0: the index of pandas, left out")
        choice = dataclasses.replace(choice, ignore=choice.ignore | {""})
    elif _trailing(dialect, names):
        choice = dataclasses.replace(choice, ignore=choice.ignore | {""})
    keep = choice.of(path, names)
    try:
        columns = _parse(dialect, {n: pa.string() if n in text else pa.float64() for n in keep})
    except pa.ArrowInvalid:
        # A cell that is no number, or a damaged line: if all reads as text, the cell is looked for later.
        try:
            columns = _parse(dialect, {name: pa.string() for name in keep})
        except pa.ArrowInvalid as error:
            raise _damaged(path, dialect, len(names), error) from None
    rows = columns.num_rows
    return Table(
        path,
        columns,
        unit="line",
        places=lambda: record_lines(dialect.raw, dialect.delimiter)[1 : rows + 1],
        habits=said.habits,
        remarks=remarks,
    )


def _is_pandas_index(dialect: Dialect, names: Sequence[str]) -> bool:
    """Whether the first column has no name and holds 0, 1, 2, …: what pandas writes unless told otherwise."""
    if not names or names[0] != "" or "" in names[1:]:
        return False
    try:
        cells = [record[0] for record in _records(dialect) if record][1:]
    except csv.Error:
        return False
    return bool(cells) and all(cell == str(number) for number, cell in enumerate(cells))


def _trailing(dialect: Dialect, names: Sequence[str]) -> bool:
    """Whether every line ends with a separator, as some programs write it: a last column without name or cells."""
    if not names or names[-1] != "" or "" in names[:-1]:
        return False
    try:
        return all(not record or (len(record) == len(names) and not record[-1]) for record in _records(dialect))
    except csv.Error:
        return False


def _parse(dialect: Dialect, types: dict[str, pa.DataType]) -> pa.Table:
    return pa.csv.read_csv(
        arrow_stream(dialect.raw),
        read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=["", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"],
        ),
    )


def _header(dialect: Dialect) -> list[str]:
    """The first record; a quoted name may contain a line break, so this cannot simply take the first line."""
    for record in _records(dialect, strict=True):
        if record:
            return record
    return []


def _records(dialect: Dialect, *, strict: bool = False) -> Iterator[list[str]]:
    lines = io.TextIOWrapper(io.BytesIO(dialect.raw), encoding="utf-8", newline="")
    return csv.reader(lines, delimiter=dialect.delimiter, strict=strict)


def _damaged(path: Path, dialect: Dialect, width: int, error: Exception) -> InputError:
    """Find the first record with another number of cells than the header."""
    marks = {",": "commas", ";": "semicolons"}.get(dialect.delimiter, "separators")
    lines = io.TextIOWrapper(io.BytesIO(dialect.raw), encoding="utf-8", newline="")
    begins, reader = 1, csv.reader(lines, delimiter=dialect.delimiter)
    try:
        for record in reader:
            if record and len(record) != width:
                return InputError(
                    f"{path}, line {begins}: {len(record)} cells but the header has {width} columns; "
                    f"check {marks} and quotation marks"
                )
            begins = reader.line_num + 1
    except csv.Error as problem:
        return InputError(f"{path}, line {begins}: {_one_line(problem)}; check {marks} and quotation marks")
    return InputError(f"{path}: not a readable CSV file ({_one_line(error)})")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
