"""Tables from Excel workbooks (``.xlsx``). Needs ``ecbm[excel]``."""

from __future__ import annotations

import datetime
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ecbm.errors import InputError, unknown_name
from ecbm.options import option
from ecbm.read.columns import Habits, Table

if TYPE_CHECKING:
    from ecbm.read.table_files import Choice

__all__ = ["read_sheet"]

_ERRORS = ("#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")


def read_sheet(path: Path, choice: Choice, sheet: str | None, habits: Habits) -> Table:
    """Read one sheet of a workbook; the first row that is not empty is the header.

    Values are those that were stored when the workbook was last saved; a formula without one is refused.
    """
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(
            f"{path}: reading .xlsx needs the package openpyxl; install it with: pip install 'ecbm[excel]'"
        )
    name, rows, formulas = _rows(path, sheet)
    start = next((place for place, row in enumerate(rows) if any(cell is not None for cell in row)), None)
    if start is None:
        raise InputError(f"{path}, sheet {name!r}: empty; write a header row and one row a sample")
    header = ["" if cell is None else _text(cell).strip() for cell in rows[start]]
    while header and not header[-1] and all(row[len(header) - 1] is None for row in rows[start + 1 :]):
        header.pop()
    kept = [place for place in range(start + 1, len(rows)) if any(cell is not None for cell in rows[place])]
    chosen = choice.of(path, header)
    arrays = []
    for column, title in enumerate(header):
        if title not in chosen:
            continue
        cells = [rows[place][column] for place in kept]
        for place, cell in zip(kept, cells, strict=True):
            if cell is None and formulas[place][column] is not None:
                raise InputError(
                    f"{path}, row {place + 1}, column {title!r}: a formula whose value is not stored; open the "
                    "workbook in a spreadsheet program and save it"
                )
            if cell in _ERRORS:
                raise InputError(f"{path}, row {place + 1}, column {title!r}: {cell}; repair or empty the cell")
        arrays.append(_array(cells))
    places = [place + 1 for place in kept]
    remarks = [f"read sheet {name!r}"]
    return Table(path, pa.table(arrays, names=chosen), places=lambda: places, habits=habits, remarks=remarks)


def _rows(path: Path, sheet: str | None) -> tuple[str, list[Sequence[Any]], list[Sequence[Any]]]:
    """A sheet's name, its values as stored, and its content with formulas as they are written."""
    from openpyxl import load_workbook

    try:
        stored = load_workbook(path, read_only=True, data_only=True)
        written = load_workbook(path, read_only=True, data_only=False)
        tables = {one.title: list(one.iter_rows(values_only=True)) for one in stored.worksheets}
        filled = [title for title, rows in tables.items() if any(cell is not None for row in rows for cell in row)]
        if sheet is not None and sheet not in tables:
            raise unknown_name("sheet", sheet, tables, where=str(path))
        if sheet is None and len(filled) > 1:
            names = ", ".join(repr(title) for title in filled)
            raise InputError(f"{path}: {len(filled)} sheets ({names}); say which with {option('sheet', filled[0])}")
        name = sheet or (filled or list(tables))[0]
        formulas = list(written[name].iter_rows(values_only=True))
        width = max((len(row) for row in [*tables[name], *formulas]), default=0)
        height = max(len(tables[name]), len(formulas))
        stored.close()
        written.close()
        return name, _square(tables[name], height, width), _square(formulas, height, width)
    except InputError:
        raise
    # A damaged archive, or XML that is none, raises nearly every kind of exception.
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"{path}: not a readable .xlsx workbook ({reason}); save it again") from None


def _square(rows: Sequence[Sequence[Any]], height: int, width: int) -> list[Sequence[Any]]:
    padded = [[*map(_cell, row), *[None] * (width - len(row))] for row in rows]
    return [*padded, *([[None] * width] * (height - len(rows)))]


def _cell(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _array(cells: Sequence[Any]) -> Any:
    """Numbers where all are; otherwise text, numbers among it as they are written."""
    if all(cell is None or isinstance(cell, bool) for cell in cells):
        return pa.array(cells, pa.bool_())
    if all(cell is None or (isinstance(cell, int) and not isinstance(cell, bool)) for cell in cells):
        return pa.array(cells, pa.int64())
    if all(cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in cells):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array([None if cell is None else _text(cell) for cell in cells], pa.string())


def _text(cell: Any) -> str:
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(" ")
    if isinstance(cell, float) and math.isfinite(cell) and cell == int(cell):
        return str(int(cell))
    return str(cell)
