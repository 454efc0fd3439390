"""Corrections as tables: a row a label, in a CSV or Parquet file or a pandas table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecbm.errors import InputError
from ecbm.read.columns import Table
from ecbm.read.data_frames import is_frame, table_of_frame
from ecbm.read.table_files import read_table

if TYPE_CHECKING:
    import pandas

__all__ = ["corrections_from", "corrections_of", "is_table"]

Corrections = tuple[list[tuple[str, str, float | None]], list[tuple[str, str]]]
_TEXT = ("id", "concept", "label")
_COLUMNS = (*_TEXT, "value")


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return path.suffix.lower() in (".csv", ".parquet", ".pq")


def corrections_from(source: Path | pandas.DataFrame) -> Corrections:
    """Corrected concepts and classes: columns ``id``, ``concept``, ``value``; or ``id``, ``label``; or all."""
    if isinstance(source, Path):
        table = read_table(source, text=_TEXT)
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
    return _rows(table)


def _rows(table: Table) -> Corrections:
    ids = table.text("id", "an id")
    absent: list[str | None] = [None] * len(ids)
    concepts = table.optional_text("concept") if "concept" in table.names else absent
    labels = table.optional_text("label") if "label" in table.names else absent
    values = table.fractions(["value"])[:, 0].tolist() if "value" in table.names else [math.nan] * len(ids)
    corrected: list[tuple[str, str, float | None]] = []
    relabelled: list[tuple[str, str]] = []
    for row, (sample, concept, value, label) in enumerate(zip(ids, concepts, values, labels, strict=True)):
        if concept is None and not math.isnan(value):
            raise table.error(row, "concept", f"empty, but there is a value ({value:g}); which concept has it?")
        if concept is None and label is None:
            raise table.error(row, None, "nothing to correct; give a concept and its value, or a label")
        if concept is not None:
            corrected.append((sample, concept, None if math.isnan(value) else value))
        if label is not None:
            relabelled.append((sample, label))
    return corrected, relabelled


def corrections_of(
    concepts: Sequence[tuple[str, str, float]], labels: Sequence[tuple[str, str]]
) -> pandas.DataFrame:
    """Corrections as a pandas table."""
    import pandas

    rows = [(sample, concept, value, None) for sample, concept, value in concepts]
    rows += [(sample, None, math.nan, label) for sample, label in labels]  # type: ignore[misc]
    return pandas.DataFrame(rows, columns=["id", "concept", "value", "label"])
