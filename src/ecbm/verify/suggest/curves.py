"""What a careful person would record, as a curve over the model's logit: P(present) = σ(α + β · logit).

A model that was trained on wrong labels has learnt the errors: where half of the samples were labelled by somebody
who never records a crest, it is never surer of a crest than one half. The curve takes that back (a steep β maps one
half to nearly one). All estimators of this package fit it together with what went wrong, one α and β a concept.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

__all__ = ["Curve", "bernoulli", "fitted", "step"]

# Steepness is drawn towards 1 and the offset towards 0 by as much as a label or two would: enough to keep a concept
# with few labels in place, nothing against a hundred.
_STEEPNESS_WEIGHT, _OFFSET_WEIGHT = 1.0, 0.1
_LOWEST, _HIGHEST = 0.05, 20.0


@dataclasses.dataclass(frozen=True)
class Curve:
    """α and β of every concept (k,)."""

    offset: Tensor
    steepness: Tensor

    @classmethod
    def identity(cls, count: int) -> Curve:
        """The model's own probabilities."""
        return cls(torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64))

    def __call__(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(self.offset + self.steepness * logits)

    def __getitem__(self, concepts: Tensor) -> Curve:
        return Curve(self.offset[concepts], self.steepness[concepts])


def bernoulli(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Log-likelihood of 0/1 labels, elementwise."""
    return torch.where(labels > 0.5, probabilities, 1 - probabilities).clamp_min(1e-12).log()


def step(
    curve: Curve, logits: Tensor, targets: Tensor, weights: Tensor, offset_weight: float = _OFFSET_WEIGHT
) -> Curve:
    """One Newton step for every concept towards soft ``targets`` (n, k); offsets are drawn to 0 so hard."""
    p = curve(logits)
    residual, curvature = weights * (targets - p), weights * p * (1 - p)
    along = curvature * logits
    slope = residual.sum(0) - offset_weight * curve.offset
    tilt = (residual * logits).sum(0) - _STEEPNESS_WEIGHT * (curve.steepness - 1)
    a = curvature.sum(0) + offset_weight
    b, c = along.sum(0), (along * logits).sum(0) + _STEEPNESS_WEIGHT
    determinant = a * c - b.square()
    return Curve(
        curve.offset + ((c * slope - b * tilt) / determinant).clamp(-2.0, 2.0),
        (curve.steepness + ((a * tilt - b * slope) / determinant).clamp(-1.0, 1.0)).clamp(_LOWEST, _HIGHEST),
    )


def fitted(logits: Tensor, labels: Tensor, weights: Tensor, steps: int = 8) -> tuple[Curve, Tensor]:
    """The curve of labels without errors, and its log-likelihood of every concept (k,)."""
    curve = Curve.identity(logits.shape[1])
    for _ in range(steps):
        curve = step(curve, logits, labels, weights)
    return curve, (weights * bernoulli(curve(logits), labels)).sum(0)
