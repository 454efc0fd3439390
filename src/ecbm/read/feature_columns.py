"""Columns of a table as what a model sees: numbers as they are, words one-hot, missing ones as NaN.

What is kept beside the numbers is only what a new row needs to be read in the same way: names, and the values of
columns of words. Statistics (what a missing value is replaced by, and every scale) belong to the model: they are
those of its training samples, and follow them when samples are removed or erased
(:class:`ecbm.train.backbones.Standardise`).
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.errors import InputError, UnknownNameError, unknown_name
from ecbm.options import comma_hint, option, type_option
from ecbm.read.columns import Table
from ecbm.read.kinds import Doubt, words_in
from ecbm.read.said_types import Said
from ecbm.read.truth import truth_words

__all__ = ["FeatureColumn", "FeatureColumns", "expanded", "feature_columns_of"]

_MOST_WORDS = 50


@dataclasses.dataclass(frozen=True)
class FeatureColumn:
    """One column: its values if it holds words, none if it holds numbers; and whether those were percentages."""

    name: str
    values: tuple[str, ...] = ()
    percent: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features made of it."""
        return tuple(f"{self.name}::{value}" for value in self.values) or (self.name,)


@dataclasses.dataclass(frozen=True)
class FeatureColumns:
    """The columns of a table that a model sees, in order."""

    columns: tuple[FeatureColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features: one a number, one a value of a column of words."""
        return tuple(name for column in self.columns for name in column.names)

    def read(self, table: Table) -> Tensor:
        """(rows, features) float32 of a table with these columns; NaN where a cell is missing."""
        for column in self.columns:
            table.require(column.name)
        parts = [_values(table, column) for column in self.columns]
        rows = np.concatenate(parts, axis=1).astype(np.float32)
        # One kind of NaN: rows are compared by their bytes.
        return torch.from_numpy(np.where(np.isnan(rows), np.float32(np.nan), rows))

    def to_bytes(self) -> bytes:
        """As JSON."""
        plain = [dataclasses.asdict(column) | {"values": list(column.values)} for column in self.columns]
        return json.dumps(plain, ensure_ascii=False, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> FeatureColumns:
        """Inverse of :meth:`to_bytes`."""
        return cls.from_plain(json.loads(content))

    @classmethod
    def from_plain(cls, columns: Sequence[Mapping[str, Any]]) -> FeatureColumns:
        if not isinstance(columns, list) or not columns:
            raise TypeError("expected a list of columns")
        return cls(
            tuple(
                FeatureColumn(str(one["name"]), tuple(map(str, one["values"])), bool(one["percent"]))
                for one in columns
            )
        )


def feature_columns_of(
    table: Table, names: Sequence[str], said: Mapping[str, Said]
) -> tuple[FeatureColumns, dict[str, str]]:
    """The given columns of a table as features, and in words what each was taken for."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"{option('features')}: column {twice!r} is named twice")
    found: list[FeatureColumn] = []
    why: dict[str, str] = {}
    doubts: list[Doubt] = []
    for name in names:
        made = _column(table, name, said.get(name))
        if isinstance(made, Doubt):
            doubts.append(made)
            continue
        found.append(made)
        gaps = int(np.isnan(_values(table, made)).any(1).sum())
        missing = f"; {gaps:,} missing, replaced by the training mean" if gaps else ""
        kind = f"{len(made.values)} words, one-hot" if made.values else "percentages" if made.percent else "numbers"
        why[name] = kind + missing
    if doubts:
        raise doubts[0].error(table, doubts[1:])
    return FeatureColumns(tuple(found)), why


def expanded(table: Table, names: Sequence[str]) -> list[str]:
    """Names, with patterns such as ``lab_*`` replaced by the columns that fit; refused where there is none.

    Before anything else is read: a feature whose name is not found would be taken for a concept, and asked about.
    """
    found: list[str] = []
    for name in names:
        fitting = [column for column in table.names if fnmatch.fnmatchcase(column, name)]
        if name not in table.names and not ("*" in name and fitting):
            unknown = unknown_name("column", name, table.names, where=f"{table.path}: {option('features')}")
            raise UnknownNameError(f"{unknown}{comma_hint('features', name, table.names)}")
        found += [name] if name in table.names else fitting
    return found


def _column(table: Table, name: str, said: Said | None) -> FeatureColumn | Doubt:
    kind = said.kind if said is not None else None
    if kind == "ordinal":
        raise InputError(
            f"{type_option(name, 'ordinal')}: {name!r} is a feature; features are numbers or categorical"
        )
    if table.is_numeric(name):
        if kind != "categorical":
            return FeatureColumn(name)
        codes = sorted({value for value in table.plain_numbers(name).tolist() if value == value})
        return FeatureColumn(name, tuple(f"{code:g}" for code in codes))
    cells, numbers = table.numbers_of(name)
    if kind != "categorical" and (numbers.all_numbers or numbers.doubtful is not None):
        table.numbers(name)  # refuses what could be two numbers
        return FeatureColumn(name, percent=numbers.percent)
    words = words_in(table, cells, said.values if said is not None else ())
    if kind != "categorical" and truth_words(words.known) is not None:
        return FeatureColumn(name)
    if kind in ("continuous", "binary") or (kind is None and bool(np.isfinite(numbers.values).any())):
        table.numbers(name, f"a feature holds numbers, or words alone ({type_option(name, 'categorical')})")
    filled = int((words.codes >= 0).sum())
    if kind is None and (len(words.known) > _MOST_WORDS or filled < 2 * len(words.known)):
        seen = f"{len(words.known)} different texts in {filled} rows"
        remedy = f"if they are values of one feature, say {type_option(name, 'categorical')}; else leave it out"
        return Doubt(name, 0, seen, remedy)
    return FeatureColumn(name, tuple(said.values if said is not None and said.values else sorted(words.known)))


def _values(table: Table, column: FeatureColumn) -> NDArray[np.float64]:
    """(rows, features) of one column."""
    name = column.name
    if not column.values:
        return _numbers(table, column)[:, None]
    if table.is_numeric(name):
        numbers = table.plain_numbers(name)
        texts = [None if value != value else f"{value:g}" for value in numbers.tolist()]
    else:
        words = words_in(table, table.cells(name), column.values)
        texts = [None if code < 0 else words.known[code] for code in words.codes.tolist()]
    place = {value: number for number, value in enumerate(column.values)}
    result = np.zeros((len(table), len(column.values)))
    for row, text in enumerate(texts):
        if text is None:
            result[row] = np.nan
        elif text in place:
            result[row, place[text]] = 1.0
        else:
            hint = str(unknown_name("value", text, column.values)).split("; ", 1)[1]
            raise table.error(row, name, f"{text!r} is no value of this feature; {hint}; leave unknown ones empty")
    return result


def _numbers(table: Table, column: FeatureColumn) -> NDArray[np.float64]:
    name = column.name
    if table.is_numeric(name):
        values = table.plain_numbers(name)
        _check_percent(table, column, bool(np.isfinite(values).any()), False)
    else:
        cells, numbers = table.numbers_of(name)
        _check_percent(table, column, bool(np.isfinite(numbers.values).any()), numbers.percent)
        words = words_in(table, cells)
        truth = None if numbers.all_numbers else truth_words(words.known)
        if truth is not None:
            values = np.array([*(truth[word] for word in words.known), np.nan])[words.codes]
        else:
            values = table.numbers(name, "this feature holds numbers")
    infinite = np.isinf(values)
    if infinite.any():
        raise table.error(int(infinite.argmax()), name, "not a finite number; leave the cell empty")
    return values


def _check_percent(table: Table, column: FeatureColumn, filled: bool, percent: bool) -> None:
    if filled and percent != column.percent:
        expected = "percentages" if column.percent else "numbers without a percent sign"
        raise InputError(
            f"{table.path}, column {column.name!r}: expected {expected}, as in the data that the model knows"
        )
