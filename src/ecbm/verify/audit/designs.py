"""Who is in which model: drawn so that every sample is in exactly half of the references, by seed and place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError

__all__ = ["FORGOTTEN", "LEFT_OUT", "STAYS", "halves", "thirds"]

FORGOTTEN, STAYS, LEFT_OUT = 0, 1, 2


def halves(samples: int, references: int, seed: int) -> NDArray[np.bool_]:
    """(references, samples) whether a reference is trained with a sample.

    References come in pairs, each without what the other has: every sample is in half of them.
    """
    if references < 4 or references % 2:
        raise InputError(f"references come in pairs, two at least: give an even number from 4 on, got {references}")
    rows = []
    for pair in range(references // 2):
        order = np.random.default_rng([seed, 1, pair]).permutation(samples)
        inside = np.zeros(samples, bool)
        inside[order[: samples // 2]] = True
        rows += [inside, ~inside]
    return np.stack(rows)


def thirds(samples: int, pair: int, seed: int) -> NDArray[np.int64]:
    """(samples,) what becomes of each in a pair of models: forgotten, stays, or left out from the beginning.

    Three pairs in a row take turns: over them every sample is each of these once.
    """
    order = np.random.default_rng([seed, 2, pair // 3]).permutation(samples)
    roles = np.empty(samples, np.int64)
    roles[order] = (np.arange(samples) + pair) % 3
    return roles
