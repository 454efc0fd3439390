"""What to ask next: the likeliest errors and, where hardly any are expected, labels that stand for many."""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.verify.suggest.answers import round_size
from ecbm.verify.suggest.checks import spot_checks
from ecbm.verify.suggest.evidence import Records

__all__ = ["next_questions"]

# Of all errors, found and expected, a tenth is left; or one label in two thousand.
_SHARE_LEFT, _RATE_LEFT = 0.1, 1 / 2000
# The ranking has run dry when of the labels that it gave last, so many or an eighth of all, fewer than a tenth
# were wrong.
_LAST, _SHARE_LAST, _DRY = 20, 8, 0.1
_CHECKS = 10
# An order that answers have changed is tried on a few before it is followed further.
_DOUBTFUL = 20


def next_questions(
    records: Records, before: Tensor, chances: Tensor, opinion: Tensor, allowed: Tensor
) -> tuple[list[tuple[int, int]], int]:
    """Labels (row, concept) to ask about in the next round, in this order, and how many of them are checks.

    As a rule these are the likeliest errors. Where next to none is expected among the labels that are left, and
    the ranking has run dry, those that are likelier wrong than not are asked, and then one label of each cell that
    nobody has looked at. Chances alone would not do: where scores are small, their order may still be right.

    Parameters
    ----------
    records
        Labels and what was answered so far (``truth``).
    before, chances
        (n, k) that a label is wrong, without the answers and after them
        (:func:`ecbm.verify.suggest.answers.learn`).
    opinion
        (n, k) :func:`ecbm.verify.suggest.checks.without_the_class`.
    allowed
        (n, k) labels that may be asked about.
    """
    answered = ~records.truth.isnan()
    left, k = allowed & ~answered, chances.shape[1]
    scores = torch.where(left, chances, -1.0).flatten()
    order = _first(scores, round_size(int(answered.sum())))
    untouched = _first(torch.where(left, before, -1.0).flatten(), len(order))
    if not torch.equal(order.sort().values, untouched.sort().values):
        order = order[:_DOUBTFUL]
    expected = float(scores.clamp_min(0.0).sum())
    found = int(((records.truth != records.labels) & answered).sum())
    checks = []
    if expected <= max(_SHARE_LEFT * (found + expected), _RATE_LEFT * scores.numel()) and _dry(
        records, before, answered, left
    ):
        checks = spot_checks(records, opinion, chances, answered, left, _CHECKS)
    if not checks:
        return [divmod(index, k) for index in order.tolist()], 0
    likely = [divmod(index, k) for index in order[scores[order] >= 0.5].tolist()]
    asked = [(check.row, check.concept) for check in checks]
    return likely + [label for label in asked if label not in likely], len(asked)


def _first(scores: Tensor, count: int) -> Tensor:
    """Places of the highest scores that are not negative."""
    order = scores.argsort(descending=True, stable=True)[:count]
    return order[scores[order] >= 0]


def _dry(records: Records, before: Tensor, answered: Tensor, left: Tensor) -> bool:
    """Whether hardly any of the labels was wrong that the ranking, as it is without answers, gave last."""
    if not bool(left.any()):
        return True
    given = answered & (before >= before[left].max())
    wrong = (records.truth != records.labels)[given]
    last = before[given].argsort(stable=True)[: max(_LAST, int(answered.sum()) // _SHARE_LAST)]
    return len(last) >= _LAST and float(wrong[last].double().mean()) < _DRY
