"""Certified removal: what is promised, and how much noise it takes (docs/certified.md).

A head θ̂ that was solved to a gradient of at most r lies within r / μ of the optimum θ*, μ being its L2. What is
released is θ̂ + N(0, τ²), the noise being drawn after θ̂ is known and independent of everything. Retraining without
the removed samples releases the same kind of noise around a point within r / μ of the same θ*. The two are normal
distributions 2r / μ apart at most, and τ is chosen so that no test can tell them apart better than (ε, δ) allows.
Both heads together are one such shift: squares add up, the label head's given the released concept head.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from scipy.special import log_ndtr, ndtr

from ecbm.errors import InputError, unknown_name

__all__ = ["BudgetExceeded", "Certified", "checked_certified", "gaussian_delta", "largest_shift"]

_TOLERANCE = 1e-9
_FIELDS = ("epsilon", "delta", "tolerance")


class BudgetExceeded(InputError):
    """A head is farther from its optimum than the noise can hide."""

    def __init__(self, head: str, left: float, tolerance: float) -> None:
        super().__init__(
            f"certified: the {head} head has a gradient of {left:.1e} left, more than the promised tolerance of "
            f"{tolerance:.1e}; give a larger tolerance in certified="
        )


def gaussian_delta(shift: float, epsilon: float) -> float:
    """The smallest δ for which N(0, 1) and N(shift, 1) are (ε, δ)-indistinguishable (Balle and Wang 2018).

    Examples
    --------
    >>> gaussian_delta(0.0, 1.0), round(gaussian_delta(1.0, 1.0), 4)
    (0.0, 0.1269)
    """
    if shift <= 0:
        return 0.0
    there = epsilon / shift
    return float(ndtr(shift / 2 - there) - math.exp(min(epsilon + float(log_ndtr(-shift / 2 - there)), 0.0)))


def largest_shift(epsilon: float, delta: float) -> float:
    """How far apart two normal distributions of variance 1 may lie for being (ε, δ)-indistinguishable.

    Examples
    --------
    >>> round(largest_shift(1.0, 1e-5), 3)
    0.268
    """
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


@dataclasses.dataclass(frozen=True)
class Certified:
    """What is promised, and the gradient norm that either head may have left when it is released.

    Examples
    --------
    >>> promise = Certified(epsilon=1.0, delta=1e-5)
    >>> promise.noise(0.1) < 1e-6
    True
    """

    epsilon: float
    delta: float
    tolerance: float = _TOLERANCE

    @property
    def shift(self) -> float:
        """How far apart in units of the noise, both heads together, two releases may lie."""
        return largest_shift(self.epsilon, self.delta)

    def noise(self, l2: float) -> float:
        """The standard deviation of a head's noise. Removal and retraining may each have ``tolerance`` left."""
        return 2 * self.tolerance / l2 * math.sqrt(2) / self.shift

    def spent(self, gradients: tuple[float, float]) -> float:
        """ε that is really spent, at the promised δ, by heads with these gradients left."""
        share = sum(((self.tolerance + one) / (2 * self.tolerance)) ** 2 for one in gradients) / 2
        shift = self.shift * math.sqrt(share)
        low, high = 0.0, max(self.epsilon, 1e-9)
        while gaussian_delta(shift, high) > self.delta:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if gaussian_delta(shift, middle) <= self.delta else (middle, high)
        return high


def checked_certified(given: Any) -> dict[str, float] | None:
    """The field of a recipe, complete and checked, as plain values."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InputError(f'Recipe: certified must be such as {{"epsilon": 1.0, "delta": 1e-5}}, got {given!r}')
    for name in given:
        if name not in _FIELDS:
            raise unknown_name("field of certified", name, _FIELDS, "Recipe")
    values = {"tolerance": _TOLERANCE, **given}
    for name in _FIELDS:
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
            raise InputError(f"Recipe: certified needs a positive number {name!r}, got {value!r}")
    if values["delta"] >= 1:
        raise InputError(f"Recipe: delta of certified is a probability far below 1, got {values['delta']!r}")
    return {name: float(values[name]) for name in _FIELDS}
