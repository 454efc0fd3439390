"""Learning from a person's answers: which suggestions were errors, and which were not.

Three things follow from an answer. The label's truth is known (``Records.truth``). Chances
move with those of their kind: log odds get an offset for the concept and recorded value, and one for the cell (the
class too), with normal priors, and a slope. And a whole cell may turn out to be wrong where nothing had said so: a
cell is either as its chances say, or wrong at an unknown rate, and the answers decide between the two by Bayes'
rule.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest.checks import cells_of
from ecbm.verify.suggest.curves import bernoulli
from ecbm.verify.suggest.evidence import Records

__all__ = ["learn", "learn_alone"]

# How strongly offsets are drawn to 0: not at all moved, or one of these, whichever foretells left-out answers best.
# Chances that are right already must not be moved by luck, so a move has to gain more than this in log-likelihood.
_PRECISIONS = (30.0, 5.0, 1.0)
_WORTH = 2.0
_CHOOSING_FOLDS = 4
# Ten times as many raised whole cells of right labels for three surprising answers (178 wines, breast cancer); a
# tenth takes a few more questions to believe in half a class (the generated clinic).
_BAD_CELLS = 1e-3
_CLIP = 14.0
_STEPS = 15


@dataclasses.dataclass(frozen=True)
class _Effects:
    """Offsets of log odds for all labels, kinds and cells, and a change of slope."""

    common: Tensor
    by_kind: Tensor
    by_cell: Tensor

    def __call__(self, odds: Tensor, kinds: Tensor, cells: Tensor) -> Tensor:
        return odds + self.common[0] + self.common[1] * odds / _CLIP + self.by_kind[kinds] + self.by_cell[cells]


def _fit(
    odds: Tensor, wrong: Tensor, kinds: Tensor, cells: Tensor, sizes: tuple[int, int], precision: float
) -> _Effects:
    """Penalised logistic regression of answers (m,) with their log odds as offset."""
    kind_names, kind = kinds.unique(return_inverse=True)
    cell_names, cell = cells.unique(return_inverse=True)
    m, a, b = len(odds), len(kind_names), len(cell_names)
    design = torch.zeros(m, 2 + a + b, dtype=torch.float64)
    design[:, 0], design[:, 1] = 1.0, odds / _CLIP
    design[torch.arange(m), 2 + kind] = 1.0
    design[torch.arange(m), 2 + a + cell] = 1.0
    effects = torch.zeros(2 + a + b, dtype=torch.float64)
    for _ in range(_STEPS):
        p = torch.sigmoid(odds + design @ effects)
        gradient = design.T @ (wrong - p) - precision * effects
        hessian = (design.T * (p * (1 - p))) @ design
        hessian.diagonal().add_(precision)
        effects = effects + torch.linalg.solve(hessian, gradient).clamp(-2.0, 2.0)
    by_kind, by_cell = (torch.zeros(size, dtype=torch.float64) for size in sizes)
    by_kind[kind_names], by_cell[cell_names] = effects[2 : 2 + a], effects[2 + a :]
    return _Effects(effects[:2], by_kind, by_cell)


def _learnt(
    odds: Tensor, wrong: Tensor, kinds: Tensor, cells: Tensor, sizes: tuple[int, int], folds: Tensor
) -> _Effects | None:
    """The effects at the precision that foretells left-out answers best; none if no move is worth it."""
    best, chosen = float(bernoulli(torch.sigmoid(odds), wrong).sum()) + _WORTH, None
    for precision in _PRECISIONS:
        total = 0.0
        for fold in range(_CHOOSING_FOLDS):
            out = folds == fold
            if not bool(out.any()) or bool(out.all()):
                continue
            given = (~out).nonzero().flatten()
            effects = _fit(odds[given], wrong[given], kinds[given], cells[given], sizes, precision)
            total += float(bernoulli(torch.sigmoid(effects(odds[out], kinds[out], cells[out])), wrong[out]).sum())
        if total > best:
            best, chosen = total, precision
    return None if chosen is None else _fit(odds, wrong, kinds, cells, sizes, chosen)


def learn(records: Records, chances: Tensor) -> Tensor:
    """Chances (n, k) after the answers in ``records.truth``; an answered label's own chance is 0 or 1."""
    answered = ~records.truth.isnan()
    if not bool(answered.any()):
        return chances
    cells = cells_of(records)
    kinds = cells % (2 * records.labels.shape[1])
    odds = torch.logit(chances.clamp(1e-12, 1 - 1e-12)).clamp(-_CLIP, _CLIP)
    mistaken = (records.truth != records.labels).double()
    wrong, given = mistaken[answered], cells[answered]
    sizes = int(kinds.max()) + 1, int(cells.max()) + 1
    rows = records.folds[:, None].expand_as(cells)[answered] % _CHOOSING_FOLDS
    effects = _learnt(odds[answered], wrong, kinds[answered], given, sizes, rows)
    p = torch.sigmoid(odds if effects is None else effects(odds, kinds, cells))
    weight, rate = _bad_cells(p[answered], wrong, given, sizes[1])
    # Within a cell the order stays: what is likelier to be wrong is asked first.
    p = (1 - weight[cells]) * p + weight[cells] * (0.98 * rate[cells] + 0.02 * p)
    return torch.where(answered, mistaken, p)


def learn_alone(chances: Tensor, looked: Tensor, wrong: Tensor, folds: Tensor) -> Tensor:
    """Chances (n,) of one label a sample after answers: ``looked`` (n,) where there is one, ``wrong`` (n,) what it
    was. All move alike; an answered label's own chance is 0 or 1.
    """
    if not bool(looked.any()):
        return chances
    odds = torch.logit(chances.clamp(1e-12, 1 - 1e-12)).clamp(-_CLIP, _CLIP)
    nothing = torch.zeros(len(chances), dtype=torch.long)
    given = odds[looked], wrong[looked].double(), nothing[looked], nothing[looked]
    effects = _learnt(*given, (1, 1), folds[looked] % _CHOOSING_FOLDS)
    p = chances if effects is None else torch.sigmoid(effects(odds, nothing, nothing))
    return torch.where(looked, wrong.double(), p)


def _bad_cells(p: Tensor, wrong: Tensor, cells: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The chance that a cell is wrong at a rate of its own, and that rate, (count,) each."""

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(count, dtype=torch.float64).index_add_(0, cells, values)

    asked, bad, said = summed(torch.ones_like(wrong)), summed(wrong), summed(bernoulli(p, wrong))
    at_a_rate = torch.lgamma(bad + 1) + torch.lgamma(asked - bad + 1) - torch.lgamma(asked + 2)
    weight = torch.sigmoid(math.log(_BAD_CELLS / (1 - _BAD_CELLS)) + at_a_rate - said)
    return torch.where(asked > 0, weight, 0.0), (bad + 1) / (asked + 2)
