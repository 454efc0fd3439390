"""Known annotators, sites or batches: who overlooks or invents which concept.

The model is that of :mod:`ecbm.verify.suggest.mixture` with the groups given. Then every concept can be judged on
its own, and weaker habits are seen: an annotator who leaves out a tenth. Annotators are compared with all the
others at once, the one whose habit explains most is taken first, and the next is judged beside it.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli
from ecbm.verify.suggest.rates import chance_wrong, fit_slips

__all__ = ["Habit", "find_habits", "flips_of"]

# A habit has a rate and was looked for among so many; a chance find of 1.3 ln n is rarer than one in a thousand.
_GAIN = 1.3
_SHARE_OF_SHIFT = 0.8
_LEAST_RATE = 0.05
_STEPS = 30
_FEWEST = 20


@dataclasses.dataclass(frozen=True)
class Habit:
    """One annotator records one concept as absent where it is present (``overlooks``), or the reverse."""

    annotator: int
    concept: int
    overlooks: bool
    rate: float
    gain: float


def flips_of(habits: list[Habit], annotators: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Chances (n, k) that a habit turned present into absent, and absent into present."""
    down, up = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for habit in habits:
        flips = down if habit.overlooks else up
        flips[annotators == habit.annotator, habit.concept] = habit.rate
    return down, up


def _fit(
    logits: Tensor, labels: Tensor, weights: Tensor, theirs: Tensor, overlooks: bool, down: Tensor, up: Tensor
) -> tuple[Tensor, Tensor]:
    """Rates (k,) of one annotator's habit in every concept, beside chances of a change that are known, and the
    log-likelihoods (k,).
    """
    rates = torch.full((labels.shape[1],), 0.5, dtype=torch.float64)
    curve = Curve.identity(labels.shape[1])
    mine = theirs[:, None].double()
    likelihood = torch.zeros_like(rates)
    for index in range(_STEPS + 1):
        lost = down + (1 - down) * mine * rates if overlooks else down
        gained = up if overlooks else up + (1 - up) * mine * rates
        present = curve(logits)
        likelihood = (weights * bernoulli((1 - lost) * present + gained * (1 - present), labels)).sum(0)
        if index == _STEPS:
            break
        wrong = chance_wrong(present, labels, lost, gained)
        truth = (labels - wrong).abs()
        # Of what could have been changed by the habit, what was: by it, and not by what is known.
        habit = mine * rates / (lost if overlooks else gained).clamp_min(1e-12)
        did = weights * mine * torch.where(labels > 0.5, 0.0 if overlooks else wrong, wrong if overlooks else 0.0)
        could = weights * mine * (truth if overlooks else 1 - truth)
        rates = (((did * habit).sum(0) + 0.05) / (could.sum(0) + 0.5)).clamp(0.0, 0.999)
        curve = curves.step(curve, logits, truth, weights)
    return rates, likelihood


def _shifted(
    logits: Tensor, labels: Tensor, weights: Tensor, theirs: Tensor, down: Tensor, up: Tensor, steps: int = 20
) -> Tensor:
    """Log-likelihood (k,) of the natural explanation: this annotator's samples differ by an offset of the curve."""
    offset, curve = torch.zeros(labels.shape[1], dtype=torch.float64), Curve.identity(labels.shape[1])
    mine = theirs[:, None].double()
    likelihood = torch.zeros_like(offset)
    for _ in range(steps):
        shifted = logits + mine * offset / curve.steepness
        p = curve(shifted)
        likelihood = (weights * bernoulli((1 - down) * p + up * (1 - p), labels)).sum(0)
        truth = (labels - chance_wrong(p, labels, down, up)).abs()
        push = (weights * mine * (truth - p)).sum(0) - 0.1 * offset
        offset = offset + (push / ((weights * mine * p * (1 - p)).sum(0) + 0.1)).clamp(-2.0, 2.0)
        curve = curves.step(curve, logits + mine * offset / curve.steepness, truth, weights)
    return likelihood


def find_habits(logits: Tensor, labels: Tensor, weights: Tensor, annotators: Tensor) -> list[Habit]:
    """Habits of known annotators, by what they explain.

    Parameters
    ----------
    logits, labels, weights
        (n, k): opinions that know neither the label nor the annotator, recorded labels, 0 where missing.
    annotators
        (n,) number of each sample's annotator; negative where unknown.
    """
    n, k = labels.shape
    counts = torch.bincount(annotators[annotators >= 0])
    names = (counts >= _FEWEST).nonzero().flatten().tolist()
    # Everybody slips; a habit has to explain more than that.
    slips = torch.full_like(labels, fit_slips(logits, labels, weights).rate)
    nobody = torch.zeros(n, dtype=torch.bool)
    down, up = slips, slips
    _, base = _fit(logits, labels, weights, nobody, True, down, up)
    natural = {name: _shifted(logits, labels, weights, annotators == name, slips, slips) - base for name in names}
    habits: list[Habit] = []
    for _ in range(len(names)):
        best: dict[int, Habit] = {}
        reached = base.clone()
        taken = {(habit.annotator, habit.concept) for habit in habits}
        explained = {habit.concept for habit in habits}
        for name in names:
            for overlooks in (True, False):
                rates, likelihood = _fit(logits, labels, weights, annotators == name, overlooks, down, up)
                gains = likelihood - base
                for concept in range(k):
                    gain, rate = float(gains[concept]), float(rates[concept])
                    believed = concept in explained or gain >= _SHARE_OF_SHIFT * float(natural[name][concept])
                    enough = gain >= _GAIN * math.log(n) and rate >= _LEAST_RATE and (name, concept) not in taken
                    if believed and enough and float(likelihood[concept]) > float(reached[concept]):
                        reached[concept] = likelihood[concept]
                        best[concept] = Habit(name, concept, overlooks, rate, gain)
        if not best:
            break
        habits += [best[concept] for concept in sorted(best)]
        base = reached
        down, up = (flips + (1 - flips) * slips for flips in flips_of(habits, annotators, (n, k)))
    return sorted(habits, key=lambda habit: -habit.gain)
