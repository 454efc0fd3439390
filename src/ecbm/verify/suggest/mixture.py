"""Unknown annotators: a share of the samples was labelled by somebody who overlooks or invents several concepts.

Such errors are invisible to confidence, because the model has learnt them and wrong labels look typical. What sees
them is that *several concepts of the same samples are off together*. The model, for sample i and concept j:

    careful   P(c_ij = 1) = s_ij,  s_ij = σ(α_j + β_j · logit_ij)
    careless  P(c_ij = 1) = (1 − ρ_j) s_ij   (overlooks)   or   s_ij + ρ_j (1 − s_ij)   (invents)

with one unknown group a sample, a share π of careless ones, and rates ρ_j, fitted by expectation maximisation.

Concepts also hang together by nature: a hidden cause makes several findings present or absent together. Then the
group shifts what is ambiguous and leaves what is clear, P = σ(α_gj + β_j · logit_ij), where a careless person
leaves out the clear ones too. Both models have as many parameters; a pattern is believed only where carelessness
explains the labels nearly as well as a shift or better.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli

__all__ = ["Carelessness", "find_careless", "fit_careless", "fit_shift", "flip_chances", "membership"]

# Fitted on drawn birds, other concepts of CUB, a generated clinic and 178 wines, two draws each; planted patterns
# had rates of .76 to 1, gains of 1.8 to 60 |S| ln n and at least .93 of the gain of a shift, labels without a
# pattern at most .6 |S| ln n (.9 with two concepts) or .37 of the shift's gain.
_LEAST_RATE, _HOPELESS_RATE = 0.25, 0.1
_GAIN_FOR_EACH = 1.3
_SHARE_OF_SHIFT = 0.8
_SMALLEST_SHARE, _LARGEST_SHARE = 0.02, 0.98
_FIRST_STEPS, _SEARCH_STEPS, _FINAL_STEPS = 12, 30, 60
_SURE = 1.5


@dataclasses.dataclass(frozen=True)
class Carelessness:
    """A share of the samples in which some concepts were overlooked, or invented.

    ``rates`` are of ``concepts``, in order; ``members`` (n,) is the chance that a sample belongs to the careless
    group, seen from all of its labels.
    """

    overlooks: bool
    concepts: Tensor
    rates: Tensor
    share: float
    members: Tensor
    curve: Curve
    log_likelihood: float
    gain: float = 0.0
    gain_of_shift: float = 0.0


def flip_chances(pattern: Carelessness, members: Tensor) -> tuple[Tensor, Tensor]:
    """P(recorded absent | present) and P(recorded present | absent), (n, concepts) each, for given membership."""
    flips = members * pattern.rates
    nothing = torch.zeros_like(flips)
    return (flips, nothing) if pattern.overlooks else (nothing, flips)


def _recorded(present: Tensor, rates: Tensor, overlooks: bool) -> Tensor:
    """P(recorded present) by a careless person."""
    return (1 - rates) * present if overlooks else present + rates * (1 - present)


def _evidence(
    logits: Tensor, labels: Tensor, weights: Tensor, curve: Curve, rates: Tensor, overlooks: bool
) -> tuple[Tensor, Tensor]:
    """Log-likelihood under careful labels (n, k), and what carelessness adds to it (n, k)."""
    present = curve(logits)
    careful = weights * bernoulli(present, labels)
    return careful, weights * bernoulli(_recorded(present, rates, overlooks), labels) - careful


def fit_careless(
    logits: Tensor,
    labels: Tensor,
    weights: Tensor,
    members: Tensor,
    overlooks: bool,
    *,
    steps: int = _SEARCH_STEPS,
    curve: Curve | None = None,
    rates: Tensor | None = None,
) -> Carelessness:
    """Expectation maximisation from given members, a fixed number of steps.

    Parameters
    ----------
    logits, labels, weights
        (n, k): the model's logits, recorded labels 0/1, and 0 where a label is missing.
    members
        (n,) chances of belonging to the careless group, to start from.
    overlooks
        Whether the careless group overlooks concepts or invents them.
    """
    k = logits.shape[1]
    curve = Curve.identity(k) if curve is None else curve
    rates = torch.full((k,), 0.5, dtype=torch.float64) if rates is None else rates
    share, total = members.mean(), torch.zeros((), dtype=torch.float64)
    for index in range(steps + 1):
        if index:
            careful, added = _evidence(logits, labels, weights, curve, rates, overlooks)
            careless, other = torch.log(share) + added.sum(1), torch.log1p(-share)
            members, total = torch.sigmoid(careless - other), (careful.sum(1) + careless.logaddexp(other)).sum()
        if index == steps:
            break
        share = members.mean().clamp(_SMALLEST_SHARE, _LARGEST_SHARE)
        present = curve(logits)
        recorded = _recorded(present, rates, overlooks)
        # The chance that a careless person changed this label.
        if overlooks:
            changed = torch.where(labels > 0.5, 0.0, rates * present / (1 - recorded).clamp_min(1e-9))
            could = labels + changed
        else:
            changed = torch.where(labels > 0.5, rates * (1 - present) / recorded.clamp_min(1e-9), 0.0)
            could = 1 - labels + changed
        theirs = weights * members[:, None]
        rates = (((theirs * changed).sum(0) + 0.05) / ((theirs * could).sum(0) + 0.5)).clamp(0.0, 0.999)
        moved = members[:, None] * changed
        curve = curves.step(curve, logits, labels + moved if overlooks else labels - moved, weights)
    return Carelessness(overlooks, torch.arange(k), rates, float(share), members, curve, float(total))


def membership(
    pattern: Carelessness, logits: Tensor, labels: Tensor, weights: Tensor, curve: Curve | None = None
) -> Tensor:
    """(n, concepts): the chance that a sample belongs to the careless group, seen without the label in question.

    Arrays are those of the pattern's concepts.
    """
    _, added = _evidence(logits, labels, weights, curve or pattern.curve, pattern.rates, pattern.overlooks)
    odds = math.log(pattern.share) - math.log1p(-pattern.share)
    return torch.sigmoid(odds + added.sum(1, keepdim=True) - added)


def fit_shift(logits: Tensor, labels: Tensor, weights: Tensor, members: Tensor, steps: int = 60) -> float:
    """Log-likelihood of the natural explanation: two groups whose curves differ by an offset a concept."""
    curve = Curve.identity(logits.shape[1])
    offsets = [torch.zeros_like(curve.offset), torch.zeros_like(curve.offset)]
    steepness, total = curve.steepness, 0.0
    for index in range(steps):
        parts = [torch.sigmoid(offset + steepness * logits) for offset in offsets]
        if index:
            first, second = ((weights * bernoulli(p, labels)).sum(1) for p in parts)
            share = members.mean().clamp(_SMALLEST_SHARE, _LARGEST_SHARE)
            one, other = torch.log1p(-share) + first, torch.log(share) + second
            members, total = torch.sigmoid(other - one), float(one.logaddexp(other).sum())
        tilt, bend = torch.zeros_like(steepness), torch.ones_like(steepness)
        for group, p in enumerate(parts):
            theirs = weights * (members if group else 1 - members)[:, None]
            residual, curvature = theirs * (labels - p), theirs * p * (1 - p)
            push = residual.sum(0) - 0.1 * offsets[group]
            offsets[group] = offsets[group] + (push / (curvature.sum(0) + 0.1)).clamp(-2.0, 2.0)
            tilt, bend = tilt + (residual * logits).sum(0), bend + (curvature * logits.square()).sum(0)
        steepness = (steepness + (tilt / bend).clamp(-0.5, 0.5)).clamp(0.05, 20.0)
    return total


def _leading(correlation: Tensor) -> Tensor:
    """The direction in which concepts are off together: the leading vector of the positive correlations."""
    vector = torch.ones(len(correlation), dtype=torch.float64)
    for _ in range(100):
        vector = correlation @ vector + 1e-12
        vector = vector / vector.norm()
    return vector


def _starts(logits: Tensor, labels: Tensor, weights: Tensor) -> list[Tensor]:
    """Two ways of weighing concepts (k,): by what is off together most, and by what is so among the others."""
    p = torch.sigmoid(logits)
    residual = weights * (labels - p) / (p * (1 - p) + 0.02).sqrt()
    residual = residual - residual.mean(0)
    scale = residual.square().mean(0).sqrt().clamp_min(1e-9)
    correlation = (residual.T @ residual / len(residual) / (scale[:, None] * scale)).clamp_min(0.0)
    correlation.fill_diagonal_(0.0)
    first = _leading(correlation)
    rest = (first < 0.5 * first.max()).double()
    second = _leading(correlation * rest[:, None] * rest)
    return [residual @ first, residual @ second]


def _start_members(score: Tensor) -> Tensor:
    return torch.sigmoid(_SURE * (score - score.mean()) / score.std().clamp_min(1e-9))


def find_careless(
    logits: Tensor, labels: Tensor, weights: Tensor, *, most: int = 2, least_concepts: int = 2
) -> list[Carelessness]:
    """Groups of samples in which several concepts were overlooked or invented, most convincing first.

    A pattern must move at least ``least_concepts`` concepts; those of one that was found are left out when the next
    is looked for, at most ``most`` times.
    """
    left = torch.arange(labels.shape[1])
    found: list[Carelessness] = []
    while len(found) < most and len(left) >= least_concepts:
        best = _best_of_starts(logits[:, left], labels[:, left], weights[:, left], least_concepts)
        if best is None:
            break
        best = dataclasses.replace(best, concepts=left[best.concepts])
        found.append(best)
        left = left[~torch.isin(left, best.concepts)]
    return found


def _best_of_starts(logits: Tensor, labels: Tensor, weights: Tensor, least_concepts: int) -> Carelessness | None:
    n = len(labels)
    _, plain = curves.fitted(logits, labels, weights)
    best: Carelessness | None = None
    for score in _starts(logits, labels, weights):
        for overlooks in (True, False):
            members = _start_members(-score if overlooks else score)
            wide = fit_careless(logits, labels, weights, members, overlooks, steps=_FIRST_STEPS)
            if int((wide.rates > _HOPELESS_RATE).sum()) < least_concepts:
                continue
            wide = fit_careless(
                logits, labels, weights, wide.members, overlooks, curve=wide.curve, rates=wide.rates
            )
            some = (wide.rates > _LEAST_RATE).nonzero().flatten()
            if len(some) < least_concepts:
                continue
            part = logits[:, some], labels[:, some], weights[:, some]
            narrow = fit_careless(
                *part, wide.members, overlooks, steps=_FINAL_STEPS, curve=wide.curve[some], rates=wide.rates[some]
            )
            gain = narrow.log_likelihood - float(plain[some].sum())
            if gain < _GAIN_FOR_EACH * len(some) * math.log(n) or (best is not None and gain <= best.gain):
                continue
            shift = fit_shift(*part, narrow.members) - float(plain[some].sum())
            if gain < _SHARE_OF_SHIFT * shift or int((narrow.rates > _LEAST_RATE).sum()) < least_concepts:
                continue
            best = dataclasses.replace(narrow, concepts=some, gain=gain, gain_of_shift=shift)
    return best
