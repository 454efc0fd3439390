"""Numbers that are probably wrong: continuous concepts, and labels that are numbers.

A ridge regression on features, other labels and class predicts every number without its fold. What is left, r,
comes from one of two groups: right numbers scatter around the prediction by a Student distribution (real
measurements have long tails), wrong ones could be anything, which a Cauchy distribution as wide as the column says.
In its units

    P(wrong | r) = ε c(r) / (ε c(r) + (1 − ε) t_ν(r / s) / s)
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

__all__ = ["NumberFindings", "judge_numbers", "predict_numbers"]

_L2 = (1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
_FREEDOM = 5.0
_STEPS = 60


@dataclasses.dataclass(frozen=True)
class NumberFindings:
    """For every sample the chance that its number is wrong, and what is expected in its place, in its unit.

    ``scale`` is the usual distance of right numbers from what is expected.
    """

    wrong: Tensor
    expected: Tensor
    scale: float


def predict_numbers(design: Tensor, targets: Tensor, known: Tensor, folds: Tensor) -> Tensor:
    """Predictions (n,) by ridge regressions that did not see the sample's fold, at the L2 that foretells best."""
    best, chosen = math.inf, torch.zeros_like(targets)
    for l2 in _L2:
        predicted = torch.zeros_like(targets)
        for fold in range(int(folds.max()) + 1):
            rows = known & (folds != fold)
            x = design[rows]
            gram = x.T @ x / max(len(x), 1)
            gram.diagonal().add_(l2)
            head = torch.linalg.solve(gram, x.T @ targets[rows] / max(len(x), 1))
            predicted[folds == fold] = design[folds == fold] @ head
        # Absolute values: a wrong number must not choose.
        error = float((predicted - targets)[known].abs().sum())
        if error < best:
            best, chosen = error, predicted
    return chosen


def judge_numbers(design: Tensor, values: Tensor, known: Tensor, folds: Tensor) -> NumberFindings:
    """The chance that each number is wrong.

    Parameters
    ----------
    design
        (n, d) what is known of every sample beside the number, with a column of ones.
    values, known
        (n,) numbers in their unit, and whether they are known.
    folds
        (n,) number of the fold in which a sample is left out.
    """
    some = values[known]
    if len(some) < 2 or float(some.std()) == 0:
        return NumberFindings(torch.zeros_like(values), values.clone(), 0.0)
    # The middle half says how wide a column is, whatever its worst cells hold.
    low, middle, high = torch.quantile(some, torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    spread = (high - low) / 1.349 or float(some.std())
    targets = torch.where(known, (values - middle) / spread, 0.0).clamp(-20.0, 20.0)
    predicted = predict_numbers(design, targets, known, folds)
    residual = (targets - predicted)[known]
    scale, rate = max(float(residual.abs().median()) / 0.6745, 1e-6), 0.02
    chances = torch.zeros_like(residual)
    for _ in range(_STEPS):
        core = _student(residual, scale)
        wide = _cauchy(residual)
        chances = torch.sigmoid(math.log(rate) + wide - math.log1p(-rate) - core)
        # A residual inside the usual scatter is no sign of an error, however wide errors may be.
        chances = torch.where(residual.abs() < 2 * scale, 0.0, chances)
        rate = min(max(float(chances.mean()), 1e-6), 0.45)
        pull = (_FREEDOM + 1) / (_FREEDOM + (residual / scale).square())
        right = 1 - chances
        scale = max(float(((right * pull * residual.square()).sum() / right.sum()).sqrt()), 1e-6)
    wrong = torch.zeros_like(values)
    wrong[known] = chances
    return NumberFindings(wrong, middle + spread * predicted, scale * spread)


def _student(residual: Tensor, scale: float) -> Tensor:
    """Log-density, and likewise below."""
    constant = math.lgamma((_FREEDOM + 1) / 2) - math.lgamma(_FREEDOM / 2) - 0.5 * math.log(_FREEDOM * math.pi)
    spread = torch.log1p((residual / scale).square() / _FREEDOM)
    return constant - math.log(scale) - 0.5 * (_FREEDOM + 1) * spread


def _cauchy(residual: Tensor) -> Tensor:
    return -math.log(math.pi) - torch.log1p(residual.square())
