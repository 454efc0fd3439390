"""Influence of every concept label of the training samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.train.heads.objectives import label_residual
from ecbm.train.stages import fill_missing
from ecbm.verify.influence.balance import Balance
from ecbm.verify.influence.flips import Flips
from ecbm.verify.influence.heads import Heads
from ecbm.verify.influence.ranges import moves_when_flipped
from ecbm.verify.influence.sensitivity import Sensitivity

__all__ = ["changes_of_flips"]


def changes_of_flips(heads: Heads, found: Sensitivity, flips: Flips) -> Tensor:
    """(n, concepts) predicted change of the target if a concept label were flipped; NaN where none is known."""
    by_column = found.of_terms(flips.residuals * _weight(heads))
    if heads.state.model.recipe.pos_weight == "balanced" and heads.regime != "joint":
        by_column = by_column + Balance(heads.state, found).of_flips(flips.labels)
    concepts = heads.state.model.layout.concepts
    changes = torch.stack([by_column[:, list(concept.columns)].sum(1) for concept in concepts], 1)
    if heads.regime == "independent" and bool(found.head.any()):
        changes += _through_inputs(heads, found, flips)
    return changes.masked_fill(~flips.known, torch.nan)


def _weight(heads: Heads) -> float:
    return heads.state.model.recipe.joint_weight if heads.regime == "joint" else 1.0


def _through_inputs(heads: Heads, found: Sensitivity, flips: Flips) -> Tensor:
    """The label head of an independent model reads true concepts: a flipped label is another input, too."""
    model, labels = heads.state.model, heads.state.train.concepts
    now = fill_missing(labels)
    then = torch.where(flips.labels.isnan(), labels.double().nanmean(0, keepdim=True), flips.labels)
    moves = model.concept_values(then) - model.concept_values(now)
    outputs = heads.label.design @ heads.label.head.T
    before = (found.class_residual * found.classes).sum(1)
    parts = []
    for concept in model.layout.concepts:
        columns = list(concept.columns)
        head = heads.label.head[:, columns]
        residual = label_residual(outputs + moves[:, columns] @ head.T, heads.label.labels)
        after = (residual * (found.classes + moves[:, columns] @ found.head[:, columns].T)).sum(1)
        part = (before - after) / len(found)
        if found.by_range is not None:
            for column in columns:
                shifted = moves_when_flipped(
                    heads.state.logits[:, column], labels[:, column], flips.labels[:, column]
                )
                part = part + found.by_range[:, column] @ shifted
        parts.append(part)
    return torch.stack(parts, 1)
