"""One concept that is often overlooked (or invented), with nothing else to tell by whom.

Where one concept alone is off, no other label of the sample gives the careless person away. What is left is a
plateau: of samples that clearly have the concept, a share φ has it recorded as absent, however clear they are. For
concept j

    P(c_ij = 1) = (1 − φ_j) s_ij  (overlooked)  or  s_ij + φ_j (1 − s_ij)  (invented),  s_ij = σ(α_j + β_j ·
    logit_ij)

against a curve without φ. A value in the middle of a group (stage 2 of 4) has a plateau by nature, because a linear
head cannot raise it any further; but then another value of the group is recorded instead. Such samples are left
out.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli

__all__ = ["Plateau", "find_plateaus", "fit_plateaus", "without_other_values"]

# On the tables and frozen features named in mixture.py half of one concept overlooked gained 4.2 to 10 ln n (2.4
# for a concept of 5 % of the samples), nature at most .6 ln n; 20 % of random slips gained up to 5.3 ln n with φ
# below .2. Features that were learnt from the labels contain the plateau already, and a curve over them gains
# nothing.
_GAIN = 3.0
_LEAST, _MOST = 0.25, 0.75
_STEPS = 25


@dataclasses.dataclass(frozen=True)
class Plateau:
    """A share ``rate`` of the samples that have a concept lack it in the records (``overlooks``), or not."""

    concept: int
    overlooks: bool
    rate: float
    gain: float


def without_other_values(labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """Weights (n, k), 0 where another value of the concept's group is recorded as present."""
    same = (groups[:, None] == groups[None, :]).double()
    same.fill_diagonal_(0.0)
    others = ((weights > 0) * labels) @ same.T
    return torch.where(others > 0.5, 0.0, weights)


def fit_plateaus(
    logits: Tensor, labels: Tensor, weights: Tensor, overlooks: bool, steps: int = _STEPS
) -> tuple[Tensor, Tensor]:
    """φ (k,) and the log-likelihood (k,) of every concept on its own, by Fisher scoring from φ = 0.3."""
    k = logits.shape[1]
    curve, rate = Curve.identity(k), torch.full((k,), 0.3, dtype=torch.float64)
    prior = torch.tensor([0.1, 1.0, 1e-3], dtype=torch.float64)
    for _ in range(steps):
        s = curve(logits)
        recorded = ((1 - rate) * s if overlooks else s + rate * (1 - s)).clamp(1e-9, 1 - 1e-9)
        scale, residual = weights / (recorded * (1 - recorded)), labels - recorded
        along = (1 - rate) * s * (1 - s)
        across = -s if overlooks else 1 - s
        parts = along, along * logits, across
        gradient = torch.stack([(scale * residual * part).sum(0) for part in parts], 1)
        gradient -= prior * torch.stack([curve.offset, curve.steepness - 1, torch.zeros_like(rate)], 1)
        information = torch.stack(
            [torch.stack([(scale * one * other).sum(0) for other in parts], 1) for one in parts], 1
        )
        information.diagonal(dim1=1, dim2=2).add_(prior)
        moved = torch.linalg.solve(information, gradient)
        curve = Curve(
            curve.offset + moved[:, 0].clamp(-1.0, 1.0),
            (curve.steepness + moved[:, 1].clamp(-1.0, 1.0)).clamp(0.05, 20.0),
        )
        rate = (rate + moved[:, 2].clamp(-0.1, 0.1)).clamp(0.0, 0.95)
    s = curve(logits)
    recorded = (1 - rate) * s if overlooks else s + rate * (1 - s)
    return rate, (weights * bernoulli(recorded, labels)).sum(0)


def find_plateaus(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> list[Plateau]:
    """Concepts that are overlooked or invented on their own, most convincing first."""
    found = []
    counted = without_other_values(labels, weights, groups)
    _, plain = curves.fitted(logits, labels, counted)
    needed = _GAIN * math.log(max(len(labels), 2))
    for overlooks in (True, False):
        rates, likelihood = fit_plateaus(logits, labels, counted, overlooks)
        for concept in range(labels.shape[1]):
            gain, rate = float(likelihood[concept] - plain[concept]), float(rates[concept])
            if gain > needed and _LEAST < rate < _MOST:
                found.append(Plateau(concept, overlooks, rate, gain))
    best: dict[int, Plateau] = {}
    for plateau in sorted(found, key=lambda plateau: -plateau.gain):
        best.setdefault(plateau.concept, plateau)
    return list(best.values())
