"""From opinions to chances: how probable it is that a recorded label is wrong.

Each label has a chance of having been changed, ``down`` (present, recorded as absent) and ``up`` (absent, recorded
as present): nothing but the rate ε of random slips, which all concepts share, and what patterns add for their
concepts and samples. With s = P(present) from a curve over the second level's logit, Bayes gives

    P(wrong | recorded absent)  = s·down / (s·down + (1 − s)(1 − up))
    P(wrong | recorded present) = (1 − s)·up / ((1 − s)·up + s(1 − down))

One rate for all concepts keeps the second level's order across them; a rate for each would hand the whole list to
the concept with the least certain estimate.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli

__all__ = ["Slips", "chance_wrong", "fit_curves", "fit_slips", "slip_likelihood", "with_slips", "with_sum"]

_STEPS = 25
_SMALLEST, _LARGEST = 1e-5, 0.4
_FIRST = 0.03
# As if one slip had been seen: without it, a curve that is a little flatter explains all errors of a small table.
_KNOWN_SLIPS = 1.0


@dataclasses.dataclass(frozen=True)
class Slips:
    """The rate of random slips, and the curve of every concept."""

    rate: float
    curve: Curve


def with_slips(flips: Tensor, rate: float) -> Tensor:
    """Chances of a change by a pattern or by a slip."""
    return flips + (1 - flips) * rate


def chance_wrong(present: Tensor, labels: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """P(wrong) of every label; ``present`` is P(present), ``down`` and ``up`` the chances of a change."""
    recorded = labels > 0.5
    wrong = torch.where(recorded, (1 - present) * up, present * down)
    right = torch.where(recorded, present * (1 - down), (1 - present) * (1 - up))
    return wrong / (wrong + right).clamp_min(1e-300)


def slip_likelihood(slips: Slips, logits: Tensor, labels: Tensor, weights: Tensor) -> float:
    """Log-likelihood of labels that were changed at the rate of slips and at nothing else."""
    return float((weights * bernoulli(slips.rate + (1 - 2 * slips.rate) * slips.curve(logits), labels)).sum())


def fit_slips(logits: Tensor, labels: Tensor, weights: Tensor, steps: int = _STEPS) -> Slips:
    """ε and the curves of concepts without a pattern: the likeliest ones, by Fisher scoring.

    All curves touch ε and none touches another, so the information matrix is an arrow and its system is solved by
    one 2 × 2 block a concept. A rate and a steepness can explain each other; expectation maximisation, which moves
    one at a time, needs hundreds of steps where this needs a dozen.
    """
    k = logits.shape[1]
    curve, rate = Curve.identity(k), torch.tensor(_FIRST, dtype=torch.float64)
    for _ in range(steps):
        p = curve(logits)
        recorded = (rate + (1 - 2 * rate) * p).clamp(1e-9, 1 - 1e-9)
        scale = weights / (recorded * (1 - recorded))
        residual = labels - recorded
        along, across = (1 - 2 * rate) * p * (1 - p), 1 - 2 * p
        pull, push = scale * residual * along, scale * along.square()
        gradient = torch.stack([pull.sum(0), (pull * logits).sum(0)], 1)
        gradient -= torch.stack([0.1 * curve.offset, curve.steepness - 1], 1)
        cross = push * logits
        blocks = torch.stack([push.sum(0) + 0.1, cross.sum(0), cross.sum(0), (cross * logits).sum(0) + 1], 1)
        border = scale * along * across
        borders = torch.stack([border.sum(0), (border * logits).sum(0)], 1)
        solved = torch.linalg.solve(blocks.view(k, 2, 2), torch.stack([gradient, borders], 2))
        slope = (scale * residual * across).sum() - (borders * solved[:, :, 0]).sum()
        bend = (scale * across.square()).sum() - (borders * solved[:, :, 1]).sum()
        slope, bend = slope + _KNOWN_SLIPS / rate, bend + _KNOWN_SLIPS / rate.square()
        # In the logarithm of the rate, so that no step leaves its range.
        change = (slope / (rate * bend).clamp_min(1e-9)).clamp(-1.0, 1.0)
        following = (rate * change.exp()).clamp(_SMALLEST, _LARGEST)
        moved = solved[:, :, 0] - solved[:, :, 1] * (following - rate)
        curve = Curve(
            curve.offset + moved[:, 0].clamp(-1.0, 1.0),
            (curve.steepness + moved[:, 1].clamp(-1.0, 1.0)).clamp(0.05, 20.0),
        )
        rate = following
    return Slips(float(rate), curve)


def fit_curves(
    logits: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor, steps: int = 2 * _STEPS
) -> Curve:
    """The curves where the chances of a change are known, by expectation maximisation."""
    curve = Curve.identity(logits.shape[1])
    for _ in range(steps):
        wrong = chance_wrong(curve(logits), labels, down, up)
        curve = curves.step(curve, logits, (labels - wrong).abs(), weights)
    return curve


def with_sum(chances: Tensor, weights: Tensor, total: float) -> Tensor:
    """Chances in the same order whose weighted sum is ``total``: their log odds are moved alike."""
    odds = torch.logit(chances.clamp(1e-15, 1 - 1e-15))
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if float((weights * torch.sigmoid(odds + middle)).sum()) > total else (middle, high)
        )
    return torch.sigmoid(odds + low)
