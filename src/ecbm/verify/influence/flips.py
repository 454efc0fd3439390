"""What a concept label becomes when it is flipped.

| type | flipped |
|---|---|
| binary | 1 − t: present becomes absent, a soft label its complement |
| categorical | the value that the model finds likeliest among the others |
| ordinal | the neighbouring grade that the model finds likelier |
| continuous | missing: a number has no opposite |
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.read.concept_types import Concept
from ecbm.train.heads.activations import activate
from ecbm.train.heads.objectives import concept_residual
from ecbm.train.terms import concept_scaling, concept_terms

__all__ = ["Flips", "flips_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Flips:
    """Every known training label flipped.

    ``labels`` (n, k) are the columns' labels afterwards, ``residuals`` (n, k) the derivatives of their terms;
    ``known`` (n, concepts) says which labels there are.
    """

    labels: Tensor
    residuals: Tensor
    known: Tensor


def flips_of(state: EditorState, labels: Tensor | None = None) -> Flips:
    """Flip all labels of the training samples, each on its own; to given ``labels`` where another model decides."""
    train = state.train
    labels = _flipped(state) if labels is None else labels
    scaling = concept_scaling(train)
    terms = concept_terms(labels.float(), state.model.positive_weights, train.layout, scaling)
    residuals = concept_residual(state.logits, terms.targets.double(), terms.weights.double(), terms.layout)
    first = [concept.columns[0] for concept in train.layout.concepts]
    return Flips(labels, residuals, ~train.concepts[:, first].isnan())


def _flipped(state: EditorState) -> Tensor:
    train, layout = state.train, state.train.layout
    labels = 1 - train.concepts.double()
    if not layout.plain:
        values = activate(state.logits, layout)
        for concept in layout.concepts:
            columns = list(concept.columns)
            now, seen = train.concepts[:, columns].double(), values[:, columns]
            if concept.type == "categorical":
                labels[:, columns] = _other_value(now, seen)
            elif concept.type == "ordinal":
                labels[:, columns] = _next_grade(now, seen)
            elif concept.type == "continuous":
                labels[:, columns] = torch.nan
    return labels


def _other_value(now: Tensor, seen: Tensor) -> Tensor:
    here = now.nan_to_num(0.0).argmax(1)
    others = seen.clone()
    others[torch.arange(len(here)), here] = -1
    flipped = torch.nn.functional.one_hot(others.argmax(1), now.shape[1]).double()
    return torch.where(now.isnan(), torch.nan, flipped)


def _next_grade(now: Tensor, seen: Tensor) -> Tensor:
    top = now.shape[1]
    grade = (now.nan_to_num(0.0) >= 0.5).sum(1)
    reached = torch.cat([torch.ones(len(seen), 1), seen, torch.zeros(len(seen), 1)], 1)
    likely = reached[:, :-1] - reached[:, 1:]  # (n, grades)
    every = torch.arange(len(grade))
    below = torch.where(grade > 0, likely[every, (grade - 1).clamp_min(0)], -1.0)
    above = torch.where(grade < top, likely[every, (grade + 1).clamp_max(top)], -1.0)
    flipped = torch.where(above > below, grade + 1, grade - 1)
    labels = (flipped[:, None] >= torch.arange(1, top + 1)).double()
    return torch.where(now.isnan(), torch.nan, labels)


def flipped_value(concept: Concept, labels: Tensor) -> str | float | None:
    """What an edit would be told: a name, a grade, a number, or ``None`` for missing."""
    return concept.value_of(labels[list(concept.columns)].tolist())
