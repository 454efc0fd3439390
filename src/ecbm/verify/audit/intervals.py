"""The area under a receiver's curve with its uncertainty, and lower bounds of ε.

    AUC = P(score of a member > score of a non-member) + ½ P(equal)

One AUC has Newcombe's score interval (2006, method 5): the θ with (AUC − θ)² ≤ z² V(θ), where

    V(θ) = θ(1 − θ) [1 + ((m + n)/2 − 1) ((1 − θ)/(2 − θ) + θ/(1 + θ))] / (mn)

It does not shrink to a point where members and non-members are separated, as DeLong's does. The difference of two
AUCs over the same samples has DeLong's interval (1988), which knows that they go together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError

__all__ = [
    "Difference",
    "Interval",
    "auc",
    "auc_difference",
    "auc_interval",
    "clopper_pearson",
    "epsilon_bound",
]

Array = NDArray[np.float64]
_LEVEL = 0.95
# Thresholds at which a bound of ε is looked for: shares of all scores that lie above them.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)


@dataclasses.dataclass(frozen=True)
class Interval:
    """An AUC and its confidence interval."""

    auc: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference of two AUCs over the same samples, and its confidence interval."""

    difference: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return dataclasses.asdict(self)


def _scores(members: Array, others: Array) -> tuple[Array, Array]:
    a, b = np.asarray(members, np.float64), np.asarray(others, np.float64)
    if a.ndim != 1 or b.ndim != 1 or not len(a) or not len(b):
        raise InputError("an AUC needs scores of at least one member and one non-member")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError("scores must be finite numbers")
    return a, b


def _components(members: Array, others: Array) -> tuple[Array, Array]:
    """For every member the share of non-members below it, and for every non-member that of members above it."""
    a, b = _scores(members, others)
    sorted_b, sorted_a = np.sort(b), np.sort(a)
    below = (np.searchsorted(sorted_b, a, "left") + np.searchsorted(sorted_b, a, "right")) / (2 * len(b))
    above = 1 - (np.searchsorted(sorted_a, b, "left") + np.searchsorted(sorted_a, b, "right")) / (2 * len(a))
    return below, above


def auc(members: Array, others: Array) -> float:
    """The share of pairs in which the member has the larger score; equal ones count half.

    Examples
    --------
    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 3.0]))
    0.625
    """
    return float(_components(members, others)[0].mean())


def auc_interval(members: Array, others: Array, level: float = _LEVEL) -> Interval:
    """An AUC with Newcombe's interval.

    Examples
    --------
    >>> found = auc_interval(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0]))
    >>> found.auc, found.low < 0.9 < found.high
    (1.0, True)
    """
    value = auc(members, others)
    z, count = _normal_quantile(level), (len(members) + len(others)) / 2 - 1
    pairs = len(members) * len(others)

    def outside(theta: float) -> float:
        spread = theta * (1 - theta) * (1 + count * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / pairs
        return (value - theta) ** 2 - z * z * spread

    return Interval(value, _root(outside, 0.0, value), _root(outside, 1.0, value))


def _root(outside: Callable[[float], float], end: float, value: float) -> float:
    """Where ``outside`` changes its sign between an end of 0..1, where it is positive, and the AUC itself."""
    from scipy.optimize import brentq

    if value == end:
        return end
    # At 0 and 1 the spread is 0 and so is the sign there: a little inside it is that of the neighbourhood.
    inner, start = abs(end - 1e-12), min(max(value, 1e-9), 1 - 1e-9)
    return float(brentq(outside, *sorted((inner, start)), xtol=1e-12))


def _normal_quantile(level: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + level / 2))


def auc_difference(first: tuple[Array, Array], second: tuple[Array, Array], level: float = _LEVEL) -> Difference:
    """The first AUC minus the second, both (members, others) over the same samples, with DeLong's interval."""
    if len(first[0]) != len(second[0]) or len(first[1]) != len(second[1]):
        raise InputError("two AUCs are compared over the same samples; their numbers differ")
    difference, variance = 0.0, 0.0
    for place, (a, b) in enumerate(zip(_components(*first), _components(*second), strict=True)):
        gap = a - b
        difference = float(gap.mean()) if place == 0 else difference
        variance += float(gap.var(ddof=1)) / len(gap) if len(gap) > 1 else math.inf
    half = 0.0 if not np.any(variance) else _normal_quantile(level) * math.sqrt(variance)
    half = half if math.isfinite(half) else 2.0
    return Difference(difference, max(-1.0, difference - half), min(1.0, difference + half))


def clopper_pearson(hits: int, trials: int, level: float = _LEVEL) -> tuple[float, float]:
    """The exact interval of a share.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 10)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    from scipy.stats import beta

    if not 0 <= hits <= trials or trials < 1:
        raise InputError(f"a share needs 0 ≤ hits ≤ trials, got {hits} of {trials}")
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def epsilon_bound(members: Array, others: Array, level: float = _LEVEL, delta: float = 0.0) -> float:
    """The ε that an attacker with these scores proves at least, were all samples judged independently.

    Who guesses "member" above a threshold has TPR ≤ e^ε FPR + δ against an (ε, δ)-indistinguishable pair, and the
    same for the guess "not a member". Shares come from Clopper–Pearson, and the level is shared out over all
    thresholds that are tried and both guesses.
    """
    a, b = _scores(members, others)
    everything = np.sort(np.concatenate([a, b]))[::-1]
    places = sorted({min(len(everything) - 1, max(0, round(share * len(everything)))) for share in _SHARES})
    own = 1 - (1 - level) / (2 * len(places))
    found = 0.0
    for threshold in {float(everything[place]) for place in places}:
        hits, alarms = int((a >= threshold).sum()), int((b >= threshold).sum())
        for (hit, hit_of), (alarm, alarm_of) in (
            ((hits, len(a)), (alarms, len(b))),
            ((len(b) - alarms, len(b)), (len(a) - hits, len(a))),
        ):
            low, high = clopper_pearson(hit, hit_of, own)[0], clopper_pearson(alarm, alarm_of, own)[1]
            if low - delta > high:
                found = max(found, math.log((low - delta) / high))
    return found
