"""Which samples train, which validate, which test: by a hash of the id, or by a seeded draw."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ecbm.errors import InputError
from ecbm.options import option

__all__ = ["SPLITS", "hold_out", "split_by_id"]

SPLITS = ("train", "val", "test")


def split_by_id(ids: Sequence[str], fractions: Sequence[float] = (0.7, 0.1, 0.2)) -> list[str]:
    """Split samples by a hash of their id.

    A sample keeps its split whatever other samples come or go and in whatever order they stand. The sizes
    follow ``fractions`` (train, val, test) only roughly, as in a draw by lot.

    Examples
    --------
    >>> split_by_id(["a", "b", "c"]) == [split_by_id([name])[0] for name in "abc"]
    True
    """
    shares = [float(part) for part in fractions]
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        shown = ", ".join(map(str, fractions))
        raise InputError(f"{option('splits')}: {shown}: give three fractions (train, val, test) that sum to 1")
    first, second = shares[0] * 2**64, (shares[0] + shares[1]) * 2**64
    result = []
    for name in ids:
        draw = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
        result.append("train" if draw < first else "val" if draw < second else "test")
    return result


def hold_out(count: int, fraction: float, seed: int) -> np.ndarray:
    """A seeded draw of ``int(fraction * count)`` of ``count`` positions, as a mask.

    Examples
    --------
    >>> int(hold_out(10, 0.2, seed=0).sum())
    2
    """
    if not 0 <= fraction < 1:
        raise InputError(f"validation fraction {fraction!r} is not in [0, 1); 0.2 is usual")
    mask = np.zeros(count, bool)
    mask[np.random.default_rng(seed).permutation(count)[: int(fraction * count)]] = True
    return mask
