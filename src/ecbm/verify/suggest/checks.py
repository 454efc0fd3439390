"""Labels worth a look where no model can know: a whole class may be wrong in one concept.

If every picture of a class has a concept recorded the wrong way, the model has learnt it, and so has everything
that saw the class. A model that never saw the class says otherwise; but classes do differ from all others by
nature, so this is no proof and makes no suggestion. It says where one question to a person is worth most: a cell is
a class, a concept and a recorded value, and one label of each is asked for, those first in which the model without
the class disagrees most.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.verify.suggest.evidence import Evidence, Records
from ecbm.verify.suggest.logistic import out_of_fold, with_ones

__all__ = ["Check", "cells_of", "spot_checks", "without_the_class"]

_CLASS_FOLDS = 10
_SMALLEST_CELL = 10
_L2 = 1e-2


@dataclasses.dataclass(frozen=True)
class Check:
    """One label to ask about, standing for ``size`` labels; ``doubt`` is the share that a model which never saw the
    class would have recorded otherwise."""

    row: int
    concept: int
    size: int
    doubt: float


def without_the_class(records: Records, evidence: Evidence, labels: Tensor) -> Tensor:
    """P(present) (n, k) by heads that saw no sample of the class (of its tenth of the classes, where there are
    many).
    """
    folds = torch.arange(records.class_count) % _CLASS_FOLDS
    if records.class_count < 2:
        return labels
    design = with_ones(evidence.directions)
    return out_of_fold(design, labels, records.weights, folds[records.classes], [_L2]).probabilities


def cells_of(records: Records) -> Tensor:
    """(n, k) number of the cell that each label belongs to."""
    k = records.labels.shape[1]
    cells = (records.classes[:, None] * k + torch.arange(k)) * 2
    return cells + (records.labels > 0.5).long()


def spot_checks(
    records: Records, opinion: Tensor, chances: Tensor, answered: Tensor, allowed: Tensor, limit: int
) -> list[Check]:
    """One label of each cell that nobody has been asked about, by size and doubt.

    Parameters
    ----------
    opinion
        (n, k) :func:`without_the_class`.
    chances
        (n, k) that a label is wrong. Within a cell the likeliest one is asked for.
    answered, allowed
        (n, k) labels that were answered, and that may be asked about.
    """
    cells, known = cells_of(records), records.weights > 0
    count = int(cells.max()) + 1 if cells.numel() else 0
    flat = cells[known]
    size = torch.bincount(flat, minlength=count)
    doubt = (records.labels - opinion).abs()[known]
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, flat, doubt)
    asked = torch.bincount(cells[answered], minlength=count)
    worth = torch.where((asked == 0) & (size >= _SMALLEST_CELL), total, 0.0)
    found: list[Check] = []
    for cell in worth.argsort(descending=True, stable=True).tolist():
        if len(found) == limit or float(worth[cell]) <= 0:
            break
        rows, columns = ((cells == cell) & known & allowed).nonzero(as_tuple=True)
        if len(rows):
            best = int(chances[rows, columns].argmax())
            share = float(total[cell]) / max(int(size[cell]), 1)
            found.append(Check(int(rows[best]), int(columns[best]), int(size[cell]), share))
    return found
