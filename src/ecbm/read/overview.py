"""A dataset at a glance: how often classes and concepts occur, and which concepts go together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ecbm.read.concept_types import Concept
from ecbm.read.dataset import Dataset

__all__ = ["co_occurrence", "overview"]

# So many concepts have a correlation with every other one computed; beyond, the matrix is too large to look at.
_MOST_CONCEPTS = 2000


def overview(data: Dataset, most_pairs: int = 10) -> dict[str, Any]:
    """Counts of classes and splits, rates of concepts, and the pairs of concepts that go together most.

    Returns
    -------
    dict
        ``samples``, ``splits``, ``input_shape``, ``classes`` (name to count), ``classes_by_split``, ``groups``,
        ``types`` (concept to type), ``concepts`` (name to ``mean`` and ``missing``; of a continuous one also
        ``deviation``, ``lowest``, ``highest`` and ``unit``), ``concepts_by_class`` (name to the mean in each
        class), ``together`` (see :func:`co_occurrence`), ``fingerprint``. All ready for JSON. Where labels are
        numbers there are no classes but a ``target`` (``name``, ``unit``, ``mean``, ``deviation``, ``lowest``,
        ``highest``).
    """
    known = ~data.concepts.isnan()
    shares = data.concepts.nanmean(0).tolist()
    missing = (1 - known.double().mean(0)).tolist()
    measured = {concept.name: _measured(data, concept) for concept in data.layout.of_type("continuous")}
    classes = () if data.predicts_number else data.class_names
    by_class = [data.concepts[data.labels == index].nanmean(0).tolist() for index in range(len(classes))]
    return {
        "samples": len(data),
        "splits": data.split_sizes,
        "input_shape": list(data.inputs.shape),
        "classes": _counts(data),
        "classes_by_split": {name: _counts(data.split(name)) for name in data.split_sizes},
        **({"target": _target(data)} if data.predicts_number else {}),
        "groups": {group: list(members) for group, members in data.groups.items()},
        "types": data.concept_types,
        "concepts": {
            name: {"mean": share, "missing": gone} | measured.get(name, {})
            for name, share, gone in zip(data.concept_names, shares, missing, strict=True)
        },
        "concepts_by_class": {
            name: dict(zip(classes, (row[column] for row in by_class), strict=True))
            for column, name in enumerate(data.concept_names)
        },
        "together": co_occurrence(data, most_pairs),
        "fingerprint": data.fingerprint,
    }


def _counts(data: Dataset) -> dict[str, int]:
    """How many samples each class has; no classes where labels are numbers."""
    if data.predicts_number:
        return {}
    counts = torch.bincount(data.labels, minlength=len(data.class_names)).tolist()
    return dict(zip(data.class_names, counts, strict=True))


def _target(data: Dataset) -> dict[str, Any]:
    mean = float(data.labels.mean()) if len(data) else None
    return {"name": data.class_names[0], "mean": mean} | _spread(data.labels, data.target_unit)


def _measured(data: Dataset, concept: Concept) -> dict[str, Any]:
    values = data.concepts[:, concept.columns[0]]
    return _spread(values[~values.isnan()].double(), concept.unit)


def _spread(known: Tensor, unit: str) -> dict[str, Any]:
    if not len(known):
        return {"unit": unit}
    low, high = (float(end) for end in known.aminmax())
    return {"deviation": float(known.std(correction=0)), "lowest": low, "highest": high, "unit": unit}


def co_occurrence(data: Dataset, most: int = 10) -> list[dict[str, Any]]:
    """Pairs of concepts of different groups with the largest correlation, either way, over samples that have both.

    Returns
    -------
    list of dict
        ``concepts`` (two names), ``correlation``, ``both`` (how many samples have both; none for a continuous
        concept, which is a number and not present or absent), ``samples`` (how many have both labels). Pairs
        within a group are left out: they exclude each other by construction.
    """
    k = len(data.concept_names)
    if not 1 < k <= _MOST_CONCEPTS:
        return []
    correlation, labelled, both = _correlations(data.concepts)
    group = {name: number for number, members in enumerate(data.groups.values()) for name in members}
    own = torch.tensor([group[name] for name in data.concept_names])
    usable = (own[:, None] != own[None, :]) & correlation.isfinite()
    strength = torch.where(usable, correlation.abs(), -1.0).triu(1)
    order = strength.flatten().argsort(descending=True)[:most].tolist()
    found = []
    measured = set(data.layout.squared.tolist())
    for place in order:
        a, b = divmod(place, k)
        if a < b and float(strength[a, b]) > 0:
            found.append(
                {
                    "concepts": [data.concept_names[a], data.concept_names[b]],
                    "correlation": float(correlation[a, b]),
                    "both": None if {a, b} & measured else int(both[a, b]),
                    "samples": int(labelled[a, b]),
                }
            )
    return found


def _correlations(concepts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pearson's correlation of every two columns over the rows that have both, their number, and in how many both
    are present.
    """
    known = (~concepts.isnan()).double()
    values = concepts.nan_to_num(0.0).double()
    count = known.T @ known
    mean = (values.T @ known) / count
    second = (values.square().T @ known) / count
    product = (values.T @ values) / count
    spread = (second - mean.square()).clamp_min(0).sqrt()
    scale = spread * spread.T
    correlation = (product - mean * mean.T) / torch.where(scale > 1e-12, scale, torch.nan)
    present = (values >= 0.5).double() * known
    return correlation, count, present.T @ present
