"""Samples one by one: what ``data[...]`` gives, and a dataset as PyTorch's loaders want it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import ConceptLayout

if TYPE_CHECKING:
    import pandas

    from ecbm.read.dataset import Dataset

__all__ = ["Sample", "TorchView", "frame_of", "pick", "sample_at"]


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """One sample by names: ``concepts`` maps every concept column to its label, ``None`` where it is missing;
    ``values`` maps every concept to what its type says: a number, a name, a grade.
    """

    id: str
    x: Tensor
    concepts: dict[str, float | None]
    label: str | float
    split: str
    layout: ConceptLayout | None = dataclasses.field(default=None, repr=False)

    @property
    def values(self) -> dict[str, str | float | None]:
        """From every concept to its value: a number in 0..1, a name, a grade, a number in its unit; or ``None``."""
        if self.layout is None:
            return dict(self.concepts)
        labels = [math.nan if value is None else value for value in self.concepts.values()]
        return {
            concept.name: concept.value_of([labels[column] for column in concept.columns])
            for concept in self.layout.concepts
        }

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the concepts that are present (a label of 0.5 or more); others with their values."""
        if self.layout is None:
            return tuple(name for name, value in self.concepts.items() if value is not None and value >= 0.5)
        labels = [math.nan if value is None else value for value in self.concepts.values()]
        return self.layout.said(labels)

    def __repr__(self) -> str:
        shown = ", ".join(self.present) or "no concept present"
        return f"Sample({self.id!r}, {self.label!r}, {self.split}: {shown})"


def sample_at(data: Dataset, row: int) -> Sample:
    """The sample of a row."""
    values = data.concepts[row].tolist()
    concepts = {
        name: None if math.isnan(value) else value for name, value in zip(data.concept_names, values, strict=True)
    }
    label = data.label_of(row)
    layout = None if data.layout.plain else data.layout
    return Sample(data.ids[row], data.inputs.take([row])[0], concepts, label, data.splits[row], layout)


def pick(data: Dataset, key: Any) -> Sample | Dataset:
    """``data[key]``: a sample by id or row, or a part by ids, rows, a slice or a mask."""
    if isinstance(key, str):
        return sample_at(data, _row_of(data, key))
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -len(data) <= key < len(data):
            # IndexError, which ends a loop over a sequence, is what Python expects here.
            raise IndexError(f"row {key} of a dataset of {len(data)} samples")
        return sample_at(data, int(key) % len(data))
    if isinstance(key, slice):
        return data.select(range(len(data))[key])
    if isinstance(key, tuple) and not all(isinstance(name, str) for name in key):
        raise InputError("data[...] takes one key: an id, a row, or ids, rows, a slice or a mask of samples")
    if isinstance(key, Sequence) and key and all(isinstance(name, str) for name in key):
        return data.select([_row_of(data, name) for name in key])
    return data.select(key)


def _row_of(data: Dataset, name: str) -> int:
    if name not in data.rows_by_id and name in data.split_sizes:
        raise unknown_name("sample id", name, [f"data.split({name!r})"])
    return data.row(name)


class TorchView(torch.utils.data.Dataset[tuple[Tensor, Tensor, Tensor]]):
    """A dataset as ``torch.utils.data`` wants it: ``(x, concepts, label)`` a row, as tensors.

    Missing concept labels are NaN; mask them in the loss.
    """

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a dataset of {len(self)} samples")
        return self.__getitems__([row % len(self)])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """A batch at once, which loaders ask for where it exists: pictures are then decoded together."""
        inputs = self.data.inputs.take(list(rows))
        return [(x, self.data.concepts[row], self.data.labels[row]) for x, row in zip(inputs, rows, strict=True)]


def frame_of(data: Dataset) -> pandas.DataFrame:
    """The labels as a table: id, split, label and one column a concept."""
    import pandas

    columns: dict[str, Any] = {
        "id": list(data.ids),
        "split": list(data.splits),
        "label": data.said_labels(),
    }
    clash = next((name for name in data.concept_names if name in columns), None)
    if clash is not None:
        raise InputError(
            f"to_frame: a concept is called {clash!r}, as a column of the table; write_dataset keeps both"
        )
    columns |= {name: data.concepts[:, column].numpy() for column, name in enumerate(data.concept_names)}
    return pandas.DataFrame(columns)
