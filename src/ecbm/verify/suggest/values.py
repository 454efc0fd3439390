"""Labels of several values that are probably wrong: categories, grades, classes.

P(value) of every sample comes from a model that did not see it. A temperature makes it fit the recorded values, and
one rate ε of slips for all concepts of a kind explains what is left: with m values and q = P(value),

    P(wrong | recorded v) = ε (1 − q_v) / (m − 1)  /  (ε (1 − q_v) / (m − 1) + (1 − ε) q_v)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.read.concept_types import Concept

__all__ = ["ValueFindings", "Valued", "judge", "value_logits"]

_TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)
_STEPS = 60


@dataclasses.dataclass(frozen=True)
class Valued:
    """One label of several values: logits (n, values) by models that did not see it, what was recorded (n,) as a
    number of the value, and whether it is known (n,).
    """

    logits: Tensor
    recorded: Tensor
    known: Tensor


@dataclasses.dataclass(frozen=True)
class ValueFindings:
    """For every sample the chance that its value is wrong, the likeliest other value, and P(value) (n, values)."""

    wrong: Tensor
    proposed: Tensor
    probabilities: Tensor
    slip_rate: float


def value_logits(concept: Concept, logits: Tensor) -> Tensor:
    """Logits (n, values) of a categorical or ordinal concept from those of its columns (n, columns).

    Of a list, one value is true and the others are not. Grades are differences of P(threshold reached), made to
    fall from one threshold to the next.
    """
    if concept.type == "categorical":
        return logits
    reached = torch.sigmoid(logits).cummin(1).values
    edges = torch.cat([torch.ones_like(reached[:, :1]), reached, torch.zeros_like(reached[:, :1])], 1)
    return (edges[:, :-1] - edges[:, 1:]).clamp_min(1e-6).log()


def _own(item: Valued, temperature: float, rows: Tensor) -> tuple[Tensor, int]:
    """P(recorded value) of some samples, and the number of values."""
    log_p = torch.log_softmax(item.logits[rows] / temperature, 1)
    own = log_p[torch.arange(len(rows)), item.recorded[rows]].exp().clamp(1e-12, 1.0)
    return own, item.logits.shape[1]


def _slips(own: Tensor, others: Tensor, rate: float = 0.03) -> tuple[float, float]:
    """Rate of slips and log-likelihood, by expectation maximisation; ``others`` (n,) is m − 1."""
    for _ in range(_STEPS):
        slip = rate * (1 - own) / others
        rate = min(max(float((slip / ((1 - rate) * own + slip)).mean()), 1e-6), 0.45)
    return rate, float(((1 - rate) * own + rate * (1 - own) / others).log().sum())


def judge(items: Sequence[Valued], honest: Tensor) -> list[ValueFindings]:
    """The chance that each value is wrong; the items share one rate of slips.

    Parameters
    ----------
    items
        Labels of several values of the same samples.
    honest
        (n,) samples that the features were not learnt from: temperatures and the rate are fitted on them.
    """
    fitted: list[tuple[Tensor, int, float]] = []
    for item in items:
        rows = (honest & item.known).nonzero().flatten()
        tried = []
        for temperature in _TEMPERATURES:
            own, count = _own(item, temperature, rows)
            _, likelihood = _slips(own, torch.full_like(own, max(count - 1, 1)))
            tried.append((likelihood, temperature))
        temperature = max(tried)[1]
        fitted.append((*_own(item, temperature, rows), temperature))
    rate = 0.0
    if fitted and any(len(own) for own, _, _ in fitted):
        others = torch.cat([torch.full_like(own, max(count - 1, 1)) for own, count, _ in fitted])
        rate, _ = _slips(torch.cat([own for own, _, _ in fitted]), others)
    return [_findings(item, temperature, rate) for item, (_, _, temperature) in zip(items, fitted, strict=True)]


def _findings(item: Valued, temperature: float, rate: float) -> ValueFindings:
    p = torch.softmax(item.logits / temperature, 1)
    n, count = p.shape
    own = p[torch.arange(n), item.recorded]
    slip = rate * (1 - own) / max(count - 1, 1)
    wrong = slip / (slip + (1 - rate) * own).clamp_min(1e-300)
    others = p.clone()
    others[torch.arange(n), item.recorded] = -math.inf
    return ValueFindings(torch.where(item.known, wrong, 0.0), others.argmax(1), p, rate)
