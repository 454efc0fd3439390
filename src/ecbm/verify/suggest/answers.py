"""Learning from a person's answers: which suggestions were errors, and which were not.

Three things follow from an answer. The label's truth is known (``Records.truth``). Chances move with those of their
kind: log odds get an offset for the concept and recorded value, and one for the cell (the class too), with normal
priors, and a slope. And a whole cell may turn out to be wrong where nothing had said so: a cell is either as its
chances say, give or take an offset, or wrong at an unknown rate, and the answers decide between the two by Bayes'
rule.

An offset and a slope that all labels share make chances of scores and leave the order as it is. Everything else
changes the order, and is believed only if left-out answers are foretold clearly better than by the shared ones, and
followed only if it promises twice as many errors among what would be asked next: a little is soon promised by
luck, and a ranking that is good already has nothing to gain.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest.checks import cells_of
from ecbm.verify.suggest.curves import bernoulli
from ecbm.verify.suggest.evidence import Records

__all__ = ["learn", "learn_alone", "round_size"]

# How strongly offsets are drawn to 0: not at all moved, or one of these, whichever foretells left-out answers best.
# Chances that are right already must not be moved by luck, so a move has to gain more than this in log-likelihood;
# one that changes the order ln 100, a hundred to one.
_PRECISIONS = (30.0, 5.0, 1.0)
_WORTH, _WORTH_OF_ORDER = 2.0, math.log(100)
_CHOOSING_FOLDS = 4
# What the next round has to promise for another order than the one without answers. Chosen with draws 0 and 1 of
# 178 wines, breast cancer and digits.
_TIMES_AS_MANY = 2.0
# Ten times as many raised whole cells of right labels for three surprising answers (178 wines, breast cancer); a
# tenth takes a few more questions to believe in half a class (the generated clinic).
_BAD_CELLS = 1e-3
# Log odds of a cell that is not bad are off by so much (standard deviation), summed over so many steps each way.
_OFF, _STEPS_OFF = 1.0, 8
_CLIP = 14.0
_STEPS, _SMALL = 15, 1e-5


def round_size(answered: int) -> int:
    """How many labels to ask about before learning again, after so many answers."""
    return max(20, answered // 4)


@dataclasses.dataclass(frozen=True)
class _Effects:
    """Offsets of log odds for all labels, kinds and cells, and a change of slope."""

    common: Tensor
    by_kind: Tensor
    by_cell: Tensor

    def __call__(self, odds: Tensor, kinds: Tensor, cells: Tensor) -> Tensor:
        return odds + self.common[0] + self.common[1] * odds / _CLIP + self.by_kind[kinds] + self.by_cell[cells]


@dataclasses.dataclass(frozen=True)
class _Given:
    """Answers (m,): log odds before them, whether the label was wrong, and the numbers of its kind and its cell.

    ``kind_of`` (cells,) is the kind that a cell belongs to, of ``kind_count``.
    """

    odds: Tensor
    wrong: Tensor
    kinds: Tensor
    cells: Tensor
    kind_of: Tensor
    kind_count: int

    def __getitem__(self, some: Tensor) -> _Given:
        return _Given(
            self.odds[some], self.wrong[some], self.kinds[some], self.cells[some], self.kind_of, self.kind_count
        )

    def moved(self, effects: _Effects) -> Tensor:
        return effects(self.odds, self.kinds, self.cells)


def _fit(given: _Given, precision: float, kinds: bool, cells: bool) -> _Effects:
    """Penalised logistic regression of answers with their log odds as offset, with effects of kinds and of cells.

    A cell belongs to one kind, so in a Newton step cells are eliminated first, then kinds, and a system of two is
    left: the work is that of reading the answers.
    """
    inputs = torch.stack([torch.ones_like(given.odds), given.odds / _CLIP], 1)
    common = torch.zeros(2, dtype=torch.float64)
    by_kind = torch.zeros(given.kind_count, dtype=torch.float64)
    by_cell = torch.zeros(len(given.kind_of), dtype=torch.float64)

    def over(places: Tensor, values: Tensor, count: int) -> Tensor:
        return torch.zeros(count, *values.shape[1:], dtype=torch.float64).index_add_(0, places, values)

    for _ in range(_STEPS):
        p = torch.sigmoid(given.moved(_Effects(common, by_kind, by_cell)))
        residual, curvature = given.wrong - p, p * (1 - p)
        seen = torch.cat([residual[:, None], curvature[:, None], curvature[:, None] * inputs], 1)
        slope = inputs.T @ residual - precision * common
        bend = (inputs.T * curvature) @ inputs + precision * torch.eye(2, dtype=torch.float64)
        of_cells = over(given.cells, seen, len(given.kind_of))
        pull, push, cross = of_cells[:, 0] - precision * by_cell, of_cells[:, 1], of_cells[:, 2:]
        held = push + precision
        of_kinds = over(given.kind_of, of_cells, given.kind_count)
        kind_pull, kind_push, kind_cross = of_kinds[:, 0] - precision * by_kind, of_kinds[:, 1], of_kinds[:, 2:]
        if cells:
            slope, bend = slope - cross.T @ (pull / held), bend - (cross.T / held) @ cross
            kind_pull = kind_pull - over(given.kind_of, push * pull / held, given.kind_count)
            kind_push = kind_push - over(given.kind_of, push.square() / held, given.kind_count)
            kind_cross = kind_cross - over(given.kind_of, push[:, None] * cross / held[:, None], given.kind_count)
        kind_held = kind_push + precision
        if kinds:
            slope = slope - kind_cross.T @ (kind_pull / kind_held)
            bend = bend - (kind_cross.T / kind_held) @ kind_cross
        step = torch.linalg.solve(bend, slope)
        kind_step = (kind_pull - kind_cross @ step) / kind_held * kinds
        cell_step = (pull - cross @ step - push * kind_step[given.kind_of]) / held * cells
        common = common + step.clamp(-2.0, 2.0)
        by_kind, by_cell = by_kind + kind_step.clamp(-2.0, 2.0), by_cell + cell_step.clamp(-2.0, 2.0)
        if max(float(part.abs().max()) for part in (step, kind_step, cell_step)) < _SMALL:
            break
    return _Effects(common, by_kind, by_cell)


def _foretold(given: _Given, folds: Tensor, precision: float, kinds: bool, cells: bool) -> float:
    """Log-likelihood of left-out answers; those of one fold alone foretell nothing."""
    total = 0.0
    for fold in range(_CHOOSING_FOLDS):
        out = folds == fold
        if bool(out.all()):  # of no answers, too
            return -math.inf
        if bool(out.any()):
            left = given[out]
            effects = _fit(given[~out], precision, kinds, cells)
            total += float(bernoulli(torch.sigmoid(left.moved(effects)), left.wrong).sum())
    return total


def _learnt(given: _Given, folds: Tensor) -> tuple[_Effects | None, _Effects | None]:
    """Effects that leave the order as it is, and effects that change it; none of which no move is worth it."""
    unmoved = float(bernoulli(torch.sigmoid(given.odds), given.wrong).sum())
    common = max((_foretold(given, folds, precision, False, False), precision) for precision in _PRECISIONS)
    alike = _fit(given, common[1], False, False) if common[0] > unmoved + _WORTH else None
    if given.kind_count == 1:
        return alike, None
    found = max(
        (_foretold(given, folds, precision, True, cells), precision, cells)
        for cells in (False, True)
        for precision in _PRECISIONS
    )
    if found[0] <= max(unmoved, common[0]) + _WORTH_OF_ORDER:
        return alike, None
    return alike, _fit(given, found[1], True, found[2])


def _log_odds(chances: Tensor) -> tuple[Tensor, Tensor]:
    """Log odds as far as a regression should feel them, and what lies beyond, which keeps the order of the rest."""
    odds = torch.logit(chances.clamp(1e-300, 1 - 1e-16))
    felt = odds.clamp(-_CLIP, _CLIP)
    return felt, odds - felt


def learn(records: Records, chances: Tensor, asked: Tensor | None = None) -> Tensor:
    """Chances (n, k) after the answers in ``records.truth``; an answered label's own chance is 0 or 1.

    Parameters
    ----------
    records
        Labels and what a person found about some of them.
    chances
        (n, k) that a label is wrong, as they are without answers.
    asked
        (n, k) labels that a person may be asked about; all of those that are known, if not given.
    """
    answered = ~records.truth.isnan()
    if not bool(answered.any()):
        return chances
    cells = cells_of(records)
    kind_count = 2 * records.labels.shape[1]
    kinds = cells % kind_count
    odds, beyond = _log_odds(chances)
    mistaken = (records.truth != records.labels).double()
    kind_of = torch.arange(int(cells.max()) + 1) % kind_count
    given = _Given(
        odds[answered], mistaken[answered], kinds[answered], cells[answered], kind_of, kind_count
    )  # fmt: skip
    # What a bad cell shows says nothing about the others: all would be raised by a few answers about one.
    usual = _bad_cells(given.odds, given)[0][given.cells] <= 0.5
    folds = records.folds[:, None].expand_as(cells)[answered] % _CHOOSING_FOLDS
    alike, apart = _learnt(given[usual], folds[usual])
    same = chances if alike is None else torch.sigmoid(alike(odds, kinds, cells) + beyond)
    best = apart or alike
    moved = (odds if best is None else best(odds, kinds, cells)) + beyond
    weight, rate = _bad_cells(moved[answered], given)
    # Within a cell the order stays: what is likelier to be wrong is asked first.
    p = torch.sigmoid(moved)
    p = (1 - weight[cells]) * p + weight[cells] * (0.98 * rate[cells] + 0.02 * p)
    left = (records.weights > 0 if asked is None else asked) & ~answered
    p = p if _promises_more(p[left], same[left], round_size(len(given.odds))) else same
    return torch.where(answered, mistaken, p)


def _promises_more(p: Tensor, same: Tensor, count: int) -> bool:
    """Whether the next ``count`` labels by ``p`` are wrong so much more often than the next by ``same``, as far as
    ``p`` knows, that it is worth leaving an order that answers have not touched.
    """
    count = min(count, len(p))
    return float(p.topk(count).values.sum()) > _TIMES_AS_MANY * float(p[same.topk(count).indices].sum())


def learn_alone(chances: Tensor, looked: Tensor, wrong: Tensor, folds: Tensor) -> Tensor:
    """Chances (n,) of one label a sample after answers: ``looked`` (n,) where there is one, ``wrong`` (n,) what it
    was. All move alike; an answered label's own chance is 0 or 1.
    """
    if not bool(looked.any()):
        return chances
    odds, beyond = _log_odds(chances)
    nothing = torch.zeros(len(chances), dtype=torch.long)
    given = _Given(odds[looked], wrong[looked].double(), nothing[looked], nothing[looked], nothing[:1], 1)
    alike, _ = _learnt(given, folds[looked] % _CHOOSING_FOLDS)
    p = chances if alike is None else torch.sigmoid(alike(odds, nothing, nothing) + beyond)
    return torch.where(looked, wrong.double(), p)


def _bad_cells(odds: Tensor, given: _Given) -> tuple[Tensor, Tensor]:
    """The chance that a cell is wrong at a rate of its own, and that rate, (cells,) each.

    Chances may be a little off in any cell; a bad one is where even that does not explain the answers.
    """
    count = len(given.kind_of)

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(count, dtype=torch.float64).index_add_(0, given.cells, values)

    asked, bad = summed(torch.ones_like(odds)), summed(given.wrong)
    offsets = torch.linspace(-4.0, 4.0, 2 * _STEPS_OFF + 1, dtype=torch.float64)
    prior = torch.log_softmax(-offsets.square() / 2, 0)
    said = torch.stack([summed(bernoulli(torch.sigmoid(odds + _OFF * offset), given.wrong)) for offset in offsets])
    as_said = (said + prior[:, None]).logsumexp(0)
    at_a_rate = torch.lgamma(bad + 1) + torch.lgamma(asked - bad + 1) - torch.lgamma(asked + 2)
    weight = torch.sigmoid(math.log(_BAD_CELLS / (1 - _BAD_CELLS)) + at_a_rate - as_said)
    return torch.where(asked > 0, weight, 0.0), (bad + 1) / (asked + 2)
