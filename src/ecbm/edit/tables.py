"""Corrections as tables: a row a label, in a CSV or Parquet file or a pandas table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecbm.errors import InputError
from ecbm.read.columns import Table
from ecbm.read.data_frames import is_frame, table_of_frame
from ecbm.read.numbers import NOT_A_NUMBER
from ecbm.read.table_files import read_table
from ecbm.read.truth import truth_value

if TYPE_CHECKING:
    import pandas

    from ecbm.read.dataset import Dataset

__all__ = ["corrections_from", "corrections_of", "is_table", "yes_or_no_values"]

Corrections = tuple[list[tuple[str, str, float | str | None]], list[tuple[str, str]]]
_TEXT = ("id", "concept", "label")
_COLUMNS = (*_TEXT, "value")


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return path.suffix.lower() in (".csv", ".tsv", ".xlsx", ".parquet", ".pq")


def corrections_from(source: Path | pandas.DataFrame, data: Dataset | None = None) -> Corrections:
    """Corrected concepts and classes: columns ``id``, ``concept``, ``value``; or ``id``, ``label``; or all.

    With ``data`` values may be those of its concepts' types: names, grades, numbers in their unit.
    """
    typed = data is not None and not data.layout.plain
    numbers = data is not None and data.predicts_number
    if isinstance(source, Path):
        table = read_table(source, text=(*_TEXT, "value") if typed else _TEXT)
    elif is_frame(source):
        table = table_of_frame(source)
    else:
        raise InputError(f"expected a pandas DataFrame with id, concept and value, got {type(source).__name__}")
    for name in table.names:
        if name not in _COLUMNS:
            raise InputError(
                f"{table.path}: column {name!r} is none of id, concept, value, label; a table of corrections has "
                "one row a label (other changes: a JSON edit)"
            )
    table.require("id")
    if "concept" in table.names or "value" in table.names:
        table.require("concept")
        table.require("value")
    elif "label" not in table.names:
        raise InputError(f"{table.path}: nothing to correct; give columns concept and value, or label, beside id")
    return _rows(table, data if typed else None, numbers)


def _rows(table: Table, data: Dataset | None, numbers: bool) -> Corrections:
    ids = table.text("id", "an id")
    absent: list[str | None] = [None] * len(ids)
    concepts = table.optional_text("concept") if "concept" in table.names else absent
    labels = absent
    if "label" in table.names:
        labels = _number_labels(table) if numbers else table.optional_text("label")
    values: list[float | str] = [math.nan] * len(ids)
    if "value" in table.names:
        values = [*yes_or_no_values(table, "value")] if data is None else _typed_values(table, concepts, data)
    corrected: list[tuple[str, str, float | str | None]] = []
    relabelled: list[tuple[str, str]] = []
    for row, (sample, concept, value, label) in enumerate(zip(ids, concepts, values, labels, strict=True)):
        missing = not isinstance(value, str) and math.isnan(value)
        if concept is None and not missing:
            shown = value if isinstance(value, str) else f"{value:g}"
            raise table.error(row, "concept", f"empty, but there is a value ({shown}); which concept has it?")
        if concept is None and label is None:
            raise table.error(row, None, "nothing to correct; give a concept and its value, or a label")
        if concept is not None:
            corrected.append((sample, concept, None if missing else value))
        if label is not None:
            relabelled.append((sample, label))
    return corrected, relabelled


def _number_labels(table: Table) -> list[str | None]:
    """Labels that are numbers, as text; ``None`` where a cell is empty."""
    found = table.numbers("label", "the target is a number").tolist()
    return [None if math.isnan(number) else str(number) for number in found]


def yes_or_no_values(table: Table, column: str) -> list[float]:
    """Values of yes/no concepts: numbers in 0..1, yes and no in their usual forms; NaN where a cell is empty."""
    if not table.is_text(column):
        return [float(value) for value in table.fractions([column])[:, 0].tolist()]
    return [_yes_or_no(table, row, column, *cell) for row, cell in enumerate(_read_cells(table, column))]


def _typed_values(table: Table, concepts: Sequence[str | None], data: Dataset) -> list[float | str]:
    """Values as their concepts' types read them; what a type does not allow is refused with its row."""
    if not table.is_text("value"):
        return [float(value) for value in table.numbers("value").tolist()]
    found: list[float | str] = []
    for row, ((text, number), name) in enumerate(zip(_read_cells(table, "value"), concepts, strict=True)):
        concept = data.layout.by_name.get(name or "")
        if concept is not None and concept.type == "categorical":
            found.append(text or math.nan)
        elif concept is None or concept.type == "binary":
            found.append(_yes_or_no(table, row, "value", text, number))
        elif number == NOT_A_NUMBER:
            raise table.error(row, "value", f"{text!r} is not a number, which {name!r} needs")
        else:
            found.append(number)
    return found


def _read_cells(table: Table, column: str) -> list[tuple[str, float]]:
    """Each cell as it is written, and as a number."""
    cells, numbers = table.numbers_of(column)
    if numbers.doubtful is not None:
        raise InputError(
            f"{table.path}, column {column!r}: {numbers.doubtful!r} may have a decimal sign or separated "
            "thousands; write it with a point, or without the sign"
        )
    known = [*zip(cells.texts, numbers.values.tolist(), strict=True), ("", math.nan)]
    return [known[code] for code in cells.codes.tolist()]


def _yes_or_no(table: Table, row: int, column: str, text: str, number: float) -> float:
    truth = truth_value(text)
    if truth is not None:
        return truth
    if number == NOT_A_NUMBER:
        raise table.error(
            row, column, f"{text!r} is neither yes nor no; give 0, 1, a soft label between, or nothing"
        )
    if not 0 <= number <= 1 and not math.isnan(number):
        raise table.error(
            row, column, f"{number:g} is not in [0, 1]; give 0, 1, a soft label between, or an empty cell"
        )
    return number


def corrections_of(
    concepts: Sequence[tuple[str, str, float]], labels: Sequence[tuple[str, str]]
) -> pandas.DataFrame:
    """Corrections as a pandas table."""
    import pandas

    rows = [(sample, concept, value, None) for sample, concept, value in concepts]
    rows += [(sample, None, math.nan, label) for sample, label in labels]  # type: ignore[misc]
    return pandas.DataFrame(rows, columns=["id", "concept", "value", "label"])
