"""What an experiment found: tables, figures and sentences, as values that are written in several forms."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from ecbm.verify.fidelity import mean_interval

__all__ = ["Column", "Figure", "Findings", "Table", "cell", "mean_of", "spread_of"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, its header, and how numbers are written.

    With ``spread`` the row's value under that key is written behind it as ±.
    """

    key: str
    header: str
    form: str = ""
    spread: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of plain values under columns; ``name`` tells tables of one experiment apart."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure: what it is called, what it shows in words, and how to draw it on a figure of matplotlib's."""

    name: str
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (9.0, 3.2)


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything an experiment has to say."""

    experiment: str
    title: str
    tables: Sequence[Table]
    figures: Sequence[Figure]
    sentences: Sequence[str]


def cell(row: dict[str, Any], column: Column) -> str:
    """A value as people read it.

    Examples
    --------
    >>> cell({"f1": 0.81234, "sd": 0.01}, Column("f1", "F1", ".3f", "sd")), cell({}, Column("f1", "F1", ".3f"))
    ('0.812 ± 0.010', '–')
    """
    value = row.get(column.key)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    text = format(value, column.form) if column.form else str(value)
    spread = row.get(column.spread) if column.spread else None
    return text if spread is None else f"{text} ± {spread:{column.form}}"


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of what is known."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.fmean(known) if known else None


def spread_of(values: Sequence[float | None], *, interval: bool = False) -> float | None:
    """The standard deviation of what is known, or half of the 95 % interval of its mean; ``None`` of one value."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if len(known) < 2:
        return None
    return mean_interval(known).half if interval else statistics.stdev(known)
