"""New columns and new samples joined to a dataset, matched by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ecbm.read.dataset import Dataset
from ecbm.read.inputs import concatenate

__all__ = ["append_samples", "column_of"]


def column_of(data: Dataset, values: Mapping[str, float]) -> Tensor:
    """Labels by id as a column of a dataset; NaN where none is given."""
    column = torch.full((len(data),), math.nan)
    for sample, value in values.items():
        row = data.rows_by_id.get(sample)
        if row is not None:
            column[row] = value
    return column


def append_samples(data: Dataset, added: Dataset, new_concepts: Mapping[str, Mapping[str, float]]) -> Dataset:
    """``added`` below ``data``, its columns matched by name; values of new concepts may come from either place."""
    concepts = torch.full((len(added), len(data.concept_names)), math.nan)
    for column, name in enumerate(data.concept_names):
        if name in added.concept_names:
            concepts[:, column] = added.concepts[:, added.concept_index(name)]
        else:
            concepts[:, column] = _implied(data, column, added)
        if name in new_concepts:
            given = column_of(added, new_concepts[name])
            concepts[:, column] = torch.where(given.isnan(), concepts[:, column], given)
    labels = added.labels
    if not data.predicts_number:
        known = [data.class_names.index(n) if n in data.class_names else 0 for n in added.class_names]
        labels = torch.tensor(known)[labels]
    both = Dataset(
        (*data.ids, *added.ids),
        concatenate(data.inputs, added.inputs),
        torch.cat([data.concepts, concepts]),
        torch.cat([data.labels, labels]),
        data.concept_names,
        data.class_names,
        (*data.splits, *added.splits),
        data.layout.declared,
        data.layout.units,
        data.target,
        data.target_unit,
    )
    if "row_digests" in data.__dict__:
        both.__dict__["row_digests"] = (*data.row_digests, *added.row_digests)
    return both


def _implied(data: Dataset, column: int, added: Dataset) -> Tensor:
    """What new samples say of a column that they lack: a value or grade that none of them has."""
    nothing = torch.full((len(added),), math.nan)
    concept = data.layout.concepts[data.layout.owner[column]]
    own = added.layout.by_name.get(concept.name)
    if own is None or concept.type not in ("categorical", "ordinal"):
        return nothing
    known = ~added.concepts[:, own.columns[0]].isnan()
    reached = concept.type == "ordinal" and concept.lowest + concept.columns.index(column) < own.lowest
    return torch.where(known, float(reached), nothing)
