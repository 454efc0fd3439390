"""LiRA: is what a model says of a sample more like models that were trained with it, or without it?

For every sample the references give values of a signal with it (IN) and without it (OUT). Carlini et al. (2022)
fit a normal distribution to each and score a model by

    log N(s; μ_in, σ_in²) − log N(s; μ_out, σ_out²)

With few references these variances are guesses. The Student form shares one variance between both and counts
what is not known of mean and variance: with ν = n_in + n_out − 2 degrees of freedom a further value of either
kind has

    s ~ μ + √(v (1 + 1/n)) t_ν
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError

__all__ = ["Fits", "fit", "lira", "lira_student"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# A variance below this share of the squared signal is rounding.
_ROUNDING = 1e-24


@dataclasses.dataclass(frozen=True)
class Fits:
    """Means, variances (ddof 1) and counts of a signal of every sample with it and without it, (n,) each."""

    mean_in: Array
    mean_out: Array
    variance_in: Array
    variance_out: Array
    count_in: Array
    count_out: Array

    @property
    def pooled(self) -> Array:
        """One variance for both."""
        inside, outside = self.count_in - 1, self.count_out - 1
        total: Array = (inside * self.variance_in + outside * self.variance_out) / (inside + outside)
        return total


def fit(values: Array, inside: Mask) -> Fits:
    """Fit what references say of samples.

    Parameters
    ----------
    values
        (references, samples) a signal.
    inside
        (references, samples) whether the reference was trained with the sample.
    """
    values, inside = np.asarray(values, np.float64), np.asarray(inside, bool)
    if values.shape != inside.shape or values.ndim != 2:
        raise InputError(f"signals have shape {values.shape} and memberships {inside.shape}; both are needed alike")
    with_it, without = inside.sum(0), (~inside).sum(0)
    if min(int(with_it.min()), int(without.min())) < 2:
        raise InputError("every sample needs two references with it and two without it; train more references")
    found = []
    for mask, count in ((inside, with_it), (~inside, without)):
        mean = np.where(mask, values, 0.0).sum(0) / count
        variance = np.where(mask, (values - mean) ** 2, 0.0).sum(0) / (count - 1)
        found.append((mean, np.maximum(variance, _ROUNDING * (1 + mean**2)), count.astype(np.float64)))
    (mean_in, var_in, n_in), (mean_out, var_out, n_out) = found
    return Fits(mean_in, mean_out, var_in, var_out, n_in, n_out)


def _normal(signal: Array, mean: Array, variance: Array) -> Array:
    log: Array = -0.5 * (np.log(2 * np.pi * variance) + (signal - mean) ** 2 / variance)
    return log


def lira(signal: Array, fits: Fits) -> Array:
    """The score of every sample; larger is more like a member."""
    return _normal(signal, fits.mean_in, fits.variance_in) - _normal(signal, fits.mean_out, fits.variance_out)


def lira_student(signal: Array, fits: Fits) -> Array:
    """The same with the Student form, for few references."""
    from scipy.stats import t

    freedom, variance = fits.count_in + fits.count_out - 2, fits.pooled
    logs = []
    for mean, count in ((fits.mean_in, fits.count_in), (fits.mean_out, fits.count_out)):
        scale = np.sqrt(variance * (1 + 1 / count))
        logs.append(t.logpdf((signal - mean) / scale, freedom) - np.log(scale))
    score: Array = logs[0] - logs[1]
    return score
