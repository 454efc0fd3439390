"""RMIA (Zarifzadeh et al. 2024): is a sample more likely under a model than other samples of the population are?

    ratio(x) = p(x | θ) / p̄(x)        score(x) = share of population samples z with ratio(x) > γ ratio(z)

p̄ is the mean likelihood over references. Where references with the sample and without it are at hand (online) it is
the mean of both means; offline, with references that never saw it, p̄(x) = ½[(1 + a) p̄_out(x) + (1 − a)].

*Editable Concept Bottleneck Models* writes the pairwise ratio with normal distributions of a signal f:

    LR(x, z) = N(f(x); in_x) / N(f(x); out_x) · N(f(z); out_z) / N(f(z); in_z)

which needs both kinds of references for x and for z.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.verify.audit.lira import Fits, lira

__all__ = ["mean_likelihood", "offline_likelihood", "rmia", "rmia_gaussian"]

Array = NDArray[np.float64]
# The authors' own: a for their small picture sets, γ of their tool (their experiments take 2).
A, GAMMA = 0.3, 1.0


def offline_likelihood(likelihoods: Array, a: float = A) -> Array:
    """p̄ from likelihoods (references, samples) of references that never saw the samples."""
    mean: Array = 0.5 * ((1 + a) * np.asarray(likelihoods, np.float64).mean(0) + (1 - a))
    return mean


def mean_likelihood(likelihoods: Array, inside: NDArray[np.bool_]) -> Array:
    """p̄ from references with each sample and without it: ½ (mean with it + mean without it)."""
    with_it = np.where(inside, likelihoods, 0.0).sum(0) / inside.sum(0)
    without = np.where(inside, 0.0, likelihoods).sum(0) / (~inside).sum(0)
    mean: Array = 0.5 * (with_it + without)
    return mean


def rmia(
    likelihood: Array, mean: Array, of_population: Array, population_mean: Array, gamma: float = GAMMA
) -> Array:
    """The score of every sample.

    Parameters
    ----------
    likelihood, mean
        (n,) p(x | θ) and p̄(x).
    of_population, population_mean
        (z,) the same of samples that nobody trained on.
    gamma
        How much more likely.
    """
    if not len(of_population):
        raise InputError("RMIA compares with samples of the population, and there are none")
    tiny = np.finfo(np.float64).tiny
    ratios = np.log(np.maximum(likelihood, tiny)) - np.log(np.maximum(mean, tiny))
    others = np.log(np.maximum(of_population, tiny)) - np.log(np.maximum(population_mean, tiny))
    return _shares_below(ratios - math.log(gamma), others)


def rmia_gaussian(signal: Array, fits: Fits, population: NDArray[np.int64], gamma: float = GAMMA) -> Array:
    """The paper's form: the share of ``population`` (places among the samples) with LR(x, z) > γ.

    A sample is not compared with itself.
    """
    scores = lira(signal, fits)
    others = scores[population]
    if len(others) < 2:
        raise InputError("RMIA compares with samples of the population; it needs two at least")
    counts = _shares_below(scores - math.log(gamma), others) * len(others)
    own = np.zeros(len(scores), bool)
    own[population] = True
    itself = own & (gamma < 1)
    return np.where(own, (counts - itself) / (len(others) - 1), counts / len(others))


def _shares_below(values: Array, others: Array) -> Array:
    shares: Array = np.searchsorted(np.sort(others), values, "left") / len(others)
    return shares
