"""What a caller gives for a dataset, brought to tensors; what cannot be one is refused in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.features import as_features
from ecbm.read.inputs import Inputs, TensorInputs
from ecbm.read.splits import SPLITS

__all__ = ["given_concepts", "given_inputs", "given_labels", "given_rows", "given_splits"]


def given_inputs(inputs: Any) -> Inputs:
    """Inputs as they are, or a tensor, an array or rows of numbers as inputs."""
    if isinstance(inputs, Tensor):
        return TensorInputs(inputs)
    if all(hasattr(inputs, name) for name in ("take", "raw", "subset", "shape")) and not isinstance(
        inputs, np.ndarray
    ):
        known: Inputs = inputs
        return known
    try:
        array = np.asarray(inputs)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype == object or array.ndim == 0:
        raise InputError(f"inputs: expected a tensor or an array with one row a sample, got {_kind(inputs)}")
    return TensorInputs(as_features(array, "inputs", None))


def given_concepts(concepts: Any) -> Tensor:
    """Concept labels as float32."""
    try:
        return torch.as_tensor(concepts, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"concepts: expected numbers, one row a sample and one column a concept, got {_kind(concepts)}"
        ) from None


def given_labels(labels: Any, class_names: Sequence[str]) -> Tensor:
    """Class labels as indices; names are looked up in ``class_names``."""
    plain = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if isinstance(plain, Sequence) and not isinstance(plain, str) and any(isinstance(name, str) for name in plain):
        index = {name: position for position, name in enumerate(class_names)}
        for row, name in enumerate(plain):
            if name not in index:
                raise unknown_name("class", name, class_names, where=f"labels, row {row + 1}")
        return torch.tensor([index[name] for name in plain], dtype=torch.long)
    try:
        # A copy: others' arrays may be read-only, or change later.
        numbers = torch.as_tensor(np.array(labels) if isinstance(labels, np.ndarray) else labels)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"labels: expected one class a sample, by number or by name, got {_kind(labels)}"
        ) from None
    if numbers.is_floating_point() and not bool((numbers == numbers.round()).all()):
        raise InputError("labels: class labels are whole numbers (indices into class_names) or class names")
    return numbers.to(torch.long)


def given_splits(splits: Iterable[str]) -> tuple[str, ...]:
    """Split names, each of them known."""
    names = tuple(splits)
    if not set(names) <= set(SPLITS):
        row = next(row for row, name in enumerate(names) if name not in SPLITS)
        raise unknown_name("split", names[row], SPLITS, where=f"splits, row {row + 1}")
    return names


def given_rows(rows: Any, count: int) -> list[int]:
    """Row numbers of ``count`` rows, from numbers or from a mask of that length."""
    if isinstance(rows, Tensor | np.ndarray):
        rows = rows.tolist()
    elif hasattr(rows, "to_numpy"):  # a column of a pandas frame
        rows = rows.to_numpy().tolist()
    if not isinstance(rows, Iterable) or isinstance(rows, str):
        raise InputError(f"rows: expected row numbers or a mask, got {_kind(rows)}")
    numbers = list(rows)
    masked = [isinstance(row, bool | np.bool_) for row in numbers]
    if any(masked):
        if not all(masked) or len(numbers) != count:
            raise InputError(
                f"rows: a mask needs one True or False for each of {count} samples, got {len(numbers)} values"
            )
        return [row for row, chosen in enumerate(numbers) if chosen]
    found = []
    for row in numbers:
        try:
            number = int(row)
        except (TypeError, ValueError):
            raise InputError(f"rows: {row!r} is not a row number; samples are found by id with data[id]") from None
        if not -count <= number < count:
            raise InputError(f"rows: there is no row {number}; there are {count} (0 to {count - 1})")
        found.append(number % count)
    return found


def _kind(value: Any) -> str:
    return type(value).__name__
