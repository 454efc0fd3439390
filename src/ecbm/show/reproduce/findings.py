"""What an experiment found: tables, figures and sentences, as values that are written in several forms."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from ecbm.verify.fidelity import mean_interval

__all__ = [
    "Column",
    "Detail",
    "Figure",
    "Findings",
    "Table",
    "cell",
    "mean_of",
    "number",
    "shown_columns",
    "spread_of",
]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, its header, and how numbers are written.

    With ``spread`` the row's value under that key is written behind it as ±, with ``between`` the values under two
    keys in brackets. ``plain`` is the key of a value that programs read better.
    """

    key: str
    header: str
    form: str = ""
    spread: str = ""
    between: tuple[str, str] | None = None
    plain: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """What a table of plain values has of it."""
        return (self.plain or self.key, *([self.spread] if self.spread else []), *(self.between or ()))


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
class Detail:
    """Sentences about one part of an experiment, under a heading."""

    heading: str
    sentences: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything an experiment has to say.

    ``summary`` is for the reader of the whole report, ``lead`` the few sentences that the experiment's section
    starts with, ``details`` what stands behind them.
    """

    experiment: str
    title: str
    tables: Sequence[Table]
    figures: Sequence[Figure]
    summary: str
    lead: Sequence[str]
    details: Sequence[Detail] = ()

    @property
    def sentences(self) -> list[str]:
        """Lead and details, one after the other."""
        said = [f"{detail.heading}: {' '.join(detail.sentences)}" for detail in self.details]
        return [*self.lead, *said]


def cell(row: dict[str, Any], column: Column) -> str:
    """A value as people read it.

    Examples
    --------
    >>> cell({"f1": 0.81234, "sd": 0.01}, Column("f1", "F1", ".3f", "sd")), cell({}, Column("f1", "F1", ".3f"))
    ('0.812 ± 0.010', '–')
    >>> cell({"gap": -0.1, "low": -0.25, "high": 0.05}, Column("gap", "gap", "+.2f", between=("low", "high")))
    '−0.10 (−0.25 to +0.05)'
    """
    value = row.get(column.key)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if not column.form:
        return str(value)
    text = number(value, column.form)
    spread = row.get(column.spread) if column.spread else None
    if spread is not None:
        text += f" ± {spread:{column.form}}"
    if column.between is not None:
        low, high = (number(row[key], column.form) for key in column.between)
        text += f" ({low} to {high})"
    return text


def number(value: float, form: str = ".2f") -> str:
    """A number with a real minus (one in an exponent stays); what rounds to 0 has no sign.

    Examples
    --------
    >>> number(-0.128), number(-0.001), number(0.5, "+.1f"), number(0.0, "+.1f")
    ('−0.13', '0.00', '+0.5', '0.0')
    """
    text = format(value, form)
    if text[:1] in ("+", "-") and not any(digit in "123456789" for digit in text):
        return text[1:]
    return f"−{text[1:]}" if text.startswith("-") else text


def shown_columns(table: Table) -> list[Column]:
    """Those in which some row has something."""
    return [column for column in table.columns if any(row.get(column.key) not in (None, "") for row in table.rows)]


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
