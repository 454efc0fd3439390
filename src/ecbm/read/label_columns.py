"""What the label column of a table holds: classes, or a number to be predicted; in doubt it is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError, unknown_name
from ecbm.options import option, type_option
from ecbm.read.columns import Table
from ecbm.read.said_types import Said
from ecbm.read.targets import TARGETS

if TYPE_CHECKING:
    from ecbm.read.dataset import Dataset
    from ecbm.read.sidecar import Sidecar

__all__ = ["Target", "target_of"]

# So many different numbers are asked about before they are taken for names of classes.
_MOST_WHOLE, _MOST_DECIMAL = 30, 9


@dataclasses.dataclass(frozen=True)
class Target:
    """What labels are; of a number its name, its unit, and whether its cells are text that this program wrote."""

    number: bool = False
    name: str = "label"
    unit: str = ""
    exact: bool = False

    def texts(self, table: Table, column: str) -> list[str]:
        """The cells of the label column, none of them empty; numbers as text that reads back the same."""
        if not self.number:
            return table.text(column, "a class label")
        if self.exact:
            return table.text(column, "a number")
        values = table.numbers(column, "the label is a number, in every row")
        wrong = ~np.isfinite(values)
        if wrong.any():
            seen = "empty" if np.isnan(values[int(wrong.argmax())]) else "not a finite number"
            raise table.error(int(wrong.argmax()), column, f"{seen}; every row needs a number to be predicted")
        return [repr(value) for value in values.tolist()]

    def said(self, labels: Sequence[str]) -> str:
        """The label column in words."""
        if not self.number:
            return f"class, one of {len(set(labels))}"
        numbers = [float(label) for label in labels]
        low, high = min(numbers, default=0.0), max(numbers, default=0.0)
        return f"number, {low:g} to {high:g}" + (f" {self.unit}" if self.unit else "")


def target_of(
    table: Table,
    column: str,
    said: Said | None,
    label_type: str | None,
    sidecar: Sidecar | None,
    like: Dataset | None,
) -> Target:
    """What the label column is: as its dataset says, as the user says, or by cells that leave no doubt."""
    if label_type is not None and label_type not in TARGETS:
        raise unknown_name("label type", label_type, TARGETS, option("label_type", label_type))
    if sidecar is not None:
        exact = sidecar.target == "number"
        return Target(exact, sidecar.class_names[0], sidecar.target_unit, exact) if exact else Target()
    if like is not None:
        return Target(True, like.class_names[0], like.target_unit) if like.predicts_number else Target()
    if said is not None:
        if said.kind == "ordinal" or said.values:
            given = type_option(column, said.kind + (f":{','.join(said.values)}" if said.values else ""))
            raise InputError(
                f"{given}: this is the label, which is a class ({type_option(column, 'categorical')}) or a number "
                f"({type_option(column, 'continuous')})"
            )
        number = said.kind == "continuous"
        if label_type is not None and number != (label_type == "number"):
            raise InputError(
                f"{option('label_type', label_type)} and {type_option(column, said.kind)} say two things of the "
                "label; give one of them"
            )
        return Target(number, column, said.unit)
    if label_type is not None:
        return Target(label_type == "number", column)
    if column in table.names:
        _refuse_doubt(table, column)
    return Target()


def _refuse_doubt(table: Table, column: str) -> None:
    """Many different numbers may be a measurement: whether they are is asked for."""
    values = _numbers(table, column)
    if values is None:
        return
    different = np.unique(values)
    decimals = bool((different != np.round(different)).any())
    if len(different) > (_MOST_DECIMAL if decimals else _MOST_WHOLE):
        what = "numbers with decimals" if decimals else "whole numbers"
        number, classes = type_option(column, "continuous"), type_option(column, "categorical")
        raise table.error(
            0,
            column,
            f"{len(different)} different {what}, {different[0]:g} to {different[-1]:g}; say what the label is (a "
            f"number to be predicted: {number}, classes: {classes})",
        )


def _numbers(table: Table, column: str) -> NDArray[np.float64] | None:
    """The label column as numbers; ``None`` where some of its cells are words."""
    if table.is_numeric(column):
        values = table.plain_numbers(column)
    else:
        cells, found = table.numbers_of(column)
        if not found.all_numbers:
            return None
        values = np.append(found.values, np.nan)[cells.codes]
    known: NDArray[np.float64] = values[np.isfinite(values)]
    return known if len(known) else None
