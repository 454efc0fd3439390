"""95 % intervals by drawing whole samples with replacement.

Labels of one picture are not independent: a picture that is read wrongly is often wrong in several concepts. So
pictures are drawn, not labels, and versions are compared on the same draws, which takes out what they share.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

__all__ = ["DRAWS", "Bootstrap", "exact_share"]

Array = NDArray[np.float64]

DRAWS = 1000
_LEVEL = (2.5, 97.5)
_READY = 20_000_000


class Bootstrap:
    """Draws of ``count`` samples, the same for everything that is asked of them.

    Examples
    --------
    >>> right = np.array([1.0, 1.0, 1.0, 0.0] * 25)
    >>> found = Bootstrap(100).mean(right)
    >>> found["value"], found["low"] < 0.7, found["high"] > 0.8
    (0.75, True, True)
    """

    def __init__(self, count: int, draws: int = DRAWS, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        # How often each sample is drawn fits in a byte; only small tables are kept ready for multiplying.
        self._times = np.empty((draws, count), np.float32 if draws * count <= _READY else np.uint8)
        for row in self._times:
            row[:] = np.bincount(generator.integers(0, count, count), minlength=count)

    def mean(self, outcomes: Array, share: bool = True) -> dict[str, Any]:
        """The mean of ``outcomes`` (n,) or (n, m) over what is known (not NaN), with its interval."""
        value, draws = self._means(outcomes)
        known = ~np.isnan(outcomes)
        samples = int(known.any(1).sum()) if outcomes.ndim == 2 else int(known.sum())
        found = _interval(value, draws) | {"samples": samples, "labels": int(known.sum())}
        if share and samples and value in (0.0, 1.0):
            # Where nothing, or everything, is wrong, every draw agrees; that is no certainty.
            found["low"], found["high"] = exact_share(round(value * samples), samples)
        return found

    def change(self, before: Array, after: Array) -> dict[str, Any]:
        """The mean of ``after`` minus that of ``before``, on the same draws."""
        (a, first), (b, second) = self._means(before), self._means(after)
        return _interval(b - a, second - first)

    def root_change(self, before: Array, after: Array) -> dict[str, Any]:
        """:meth:`change` of the root of the mean square."""
        (a, first), (b, second) = self._means(before**2), self._means(after**2)
        return _interval(math.sqrt(b) - math.sqrt(a), np.sqrt(second) - np.sqrt(first))

    def root(self, distances: Array) -> dict[str, Any]:
        """The root of the mean square of distances."""
        value, draws = self._means(distances**2)
        return _interval(math.sqrt(value), np.sqrt(draws)) | {"samples": len(distances), "labels": len(distances)}

    def _means(self, outcomes: Array) -> tuple[float, Array]:
        table = outcomes.reshape(len(outcomes), -1)
        known = ~np.isnan(table)
        total, count = np.where(known, table, 0.0).sum(1), known.sum(1).astype(np.float64)
        if not count.sum():
            return math.nan, np.full(len(self._times), math.nan)
        # A draw may miss every label that is known.
        drawn = np.stack([_product(self._times, total), _product(self._times, count)])
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(total.sum() / count.sum()), drawn[0] / drawn[1]


def exact_share(right: int, count: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a share.

    Examples
    --------
    >>> low, high = exact_share(20, 20)
    >>> round(low, 3), high
    (0.832, 1.0)
    """
    low = float(beta.ppf(0.025, right, count - right + 1)) if right else 0.0
    high = float(beta.ppf(0.975, right + 1, count - right)) if right < count else 1.0
    return low, high


def _product(times: NDArray[Any], values: Array) -> Array:
    # In pieces: as numbers to multiply, all draws of a large split together would fill the memory.
    pieces = [times] if times.dtype == np.float32 else np.array_split(times, 20)
    narrow = values.astype(np.float32)
    return np.concatenate([piece.astype(np.float32, copy=False) @ narrow for piece in pieces]).astype(np.float64)


def _interval(value: float, draws: Array) -> dict[str, Any]:
    if not np.isfinite(draws).any():
        return {"value": value, "low": math.nan, "high": math.nan}
    low, high = np.nanpercentile(draws, _LEVEL)
    return {"value": value, "low": float(low), "high": float(high)}
