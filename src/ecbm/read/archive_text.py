"""The text files of public archives: numbered lists, and large tables of integers separated by spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.read.arrow_memory import arrow_stream

__all__ = ["find_file", "line_with", "read_bytes", "read_integers", "read_numbered"]


def find_file(name: str, *folders: Path) -> Path:
    """The first of ``folders`` that holds ``name``."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    places = " or ".join(str(folder) for folder in folders)
    raise InputError(f"no {name} in {places}; give the folder into which the archive was unpacked")


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); unpack the archive again") from None


def read_numbered(path: Path, what: str) -> dict[int, str]:
    """A file of lines "number value": the values by number, in the order of the file."""
    result: dict[int, str] = {}
    for line, content in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        number, _, value = content.strip().partition(" ")
        if not content.strip():
            continue
        if not number.isdigit() or not value.strip():
            raise InputError(f"{path}, line {line}: {content.strip()[:60]!r} is not 'number {what}'")
        if int(number) in result:
            raise InputError(f"{path}, line {line}: number {number} stands twice; numbers must be unique")
        result[int(number)] = value.strip()
    if not result:
        raise InputError(f"{path}: the file is empty; unpack the archive again")
    return result


def read_integers(
    path: Path,
    raw: bytes,
    columns: int,
    *,
    named: bool = False,
    width: int | None = None,
    first_line: int = 1,
) -> tuple[list[str], NDArray[np.int64]]:
    """A table of integers separated by spaces, quickly.

    Parameters
    ----------
    path
        For messages.
    raw
        The content.
    columns
        How many integers of each line to read.
    named
        Whether a name stands before the integers of a line.
    width
        Usual number of fields of a line, if there are fields that are not wanted; a line with more or fewer
        is then read all the same, as long as the wanted ones are there. ``None``: every line has exactly the
        fields wanted.
    first_line
        Number of the first line, for messages.

    Returns
    -------
    names, values
        The names (empty without ``named``) and an integer array of shape (lines, columns).
    """
    raw = raw.translate(bytes.maketrans(b"\t\r", b"  "))
    while b"  " in raw:
        raw = raw.replace(b"  ", b" ")
    raw = raw.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")
    wanted = columns + named
    fields = [f"f{position}" for position in range(width or wanted)]
    types = {name: pa.int64() for name in fields[:wanted]}
    if named:
        types["f0"] = pa.string()
    odd: list[list[str]] = []

    def handle(row: pa.csv.InvalidRow) -> str:
        cells = row.text.split()
        if width is None or len(cells) < wanted:
            return "error"
        odd.append(cells[:wanted])
        return "skip"

    try:
        table = pa.csv.read_csv(
            arrow_stream(raw),
            read_options=pa.csv.ReadOptions(column_names=fields, use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=" ", quote_char=False, invalid_row_handler=handle),
            convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=fields[:wanted]),
        )
        names = table.column(0).to_pylist() + [row[0] for row in odd] if named else []
        parts = [table.column(position).to_numpy() for position in range(int(named), wanted)]
        extra = np.array([row[int(named) :] for row in odd], dtype=object).reshape(-1, columns).astype(np.int64)
        return names, np.concatenate([np.stack(parts, 1).astype(np.int64), extra])
    except (pa.ArrowInvalid, ValueError):
        raise _broken_line(path, raw, columns, named, exact=width is None, first_line=first_line) from None


def line_with(raw: bytes, cells: Sequence[str], first_line: int = 1) -> int:
    """Number of the first line that begins with these cells."""
    wanted = [cell.encode() for cell in cells]
    lines = enumerate(raw.splitlines(), first_line)
    return next((line for line, content in lines if content.split()[: len(wanted)] == wanted), first_line)


def _broken_line(path: Path, raw: bytes, columns: int, named: bool, *, exact: bool, first_line: int) -> InputError:
    for line, content in enumerate(raw.decode("utf-8", "replace").split("\n"), first_line):
        cells = content.split()[int(named) :]
        sound = len(cells) == columns if exact else len(cells) >= columns
        if content.strip() and not (sound and all(re.fullmatch(r"[+-]?\d+", cell) for cell in cells[:columns])):
            shown = content.strip()[:60]
            return InputError(f"{path}, line {line}: {shown!r} does not hold {columns} whole numbers; repair it")
    return InputError(f"{path}: not a readable table of numbers; unpack the archive again")
