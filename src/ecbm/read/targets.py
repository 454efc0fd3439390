"""What a dataset's labels are: classes by name, or one number a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name

__all__ = ["TARGETS", "check_number_labels", "given_numbers", "given_target", "number_in"]

TARGETS = ("class", "number")


def given_target(target: Any, unit: str) -> str:
    """What labels are, ``"class"`` or ``"number"``; a unit is for numbers."""
    if target not in TARGETS:
        raise unknown_name("target", str(target), TARGETS, "Dataset")
    if unit and target == "class":
        raise InputError(f"target_unit={unit!r}: classes have no unit; it is for target='number'")
    return str(target)


def given_numbers(labels: Any) -> Tensor:
    """Labels as float64."""
    try:
        # Added to 0: there is one zero, so that equal labels have equal bytes.
        return torch.as_tensor(labels, dtype=torch.float64) + 0.0
    except (TypeError, ValueError, RuntimeError):
        kind = type(labels).__name__
        raise InputError(f"labels: expected one number a sample (target='number'), got {kind}") from None


def check_number_labels(labels: Tensor, class_names: Sequence[str], ids: Sequence[str]) -> None:
    """Refuse a target without a name of its own, and labels that are not finite."""
    if len(class_names) != 1:
        raise InputError(
            f"class_names: {len(class_names)} names for a target that is a number; give one, what it is called"
        )
    wrong = ~labels.isfinite()
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise InputError(
            f"row {row + 1} (id {ids[row]!r}): its label is not a finite number; every sample needs one"
        )


def number_in(text: str, where: str) -> float:
    """The number that a label given as text means."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: {text!r} is no label; the target is a number, give a finite one")
    return number + 0.0
