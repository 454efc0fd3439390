"""Targets drawn from the model: one stream of uniform numbers a sample, wherever and whenever it is seen.

A draw must not depend on the batch a sample is in, on the process that sees it, nor on its place in the data,
or the same data would give another matrix. So the numbers are a hash of (seed, key of the sample, output),
and the key is a hash of the input itself. Equal inputs are told apart by counting them, which leaves the sum the
same under every order. Callers who have stable sample ids can give keys of their own.

The mixing function is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm import parallel

__all__ = ["input_keys", "uniforms"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HASH_ROWS = 64

Words = NDArray[np.uint64]


def _mix(words: Words) -> Words:
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _hash_rows(rows: Tensor) -> Words:
    """A 64-bit hash of each row's bytes. A collision only makes two samples count as equal inputs."""
    content = np.ascontiguousarray(rows.cpu().numpy()).reshape(len(rows), -1).view(np.uint8)
    spare = -content.shape[1] % 8
    if spare:
        content = np.pad(content, ((0, 0), (0, spare)))
    words = content.view(np.uint64)
    multipliers = _mix(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    keys = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _HASH_ROWS):
        part = words[start : start + _HASH_ROWS]
        # the high bits hold sign and exponent; fold them down, for a product only carries upwards
        part = part ^ (part >> np.uint64(31))
        keys[start : start + _HASH_ROWS] = part @ multipliers
    return _mix(keys)


def input_keys(read: Callable[[range], Tensor], count: int, chunk: int = 512) -> Tensor:
    """Keys of ``count`` samples whose inputs ``read`` returns; every process hashes its share.

    Returns
    -------
    Tensor
        int64, one a sample; equal inputs get different keys.
    """
    share = parallel.shard(count)
    parts = [np.empty(0, np.uint64)]
    for start in range(share.start, share.stop, chunk):
        parts.append(_hash_rows(read(range(start, min(start + chunk, share.stop)))))
    mine = torch.from_numpy(np.concatenate(parts).view(np.int64))
    keys = parallel.gather_rows(mine, count).numpy().view(np.uint64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if count else np.empty(0, bool)
    places = np.arange(count)
    repeats = places - np.maximum.accumulate(np.where(starts, places, 0))
    distinct = np.empty(count, np.uint64)
    distinct[order] = _mix(ordered + repeats.astype(np.uint64) * _GOLDEN)
    return torch.from_numpy(distinct.view(np.int64))


def uniforms(seed: int, keys: Tensor, count: int) -> Tensor:
    """``count`` numbers in [0, 1) for each key: multiples of 2⁻³², two from each hashed word."""
    start = _mix(np.array([seed % 2**64], np.uint64) + _GOLDEN)
    rows = _mix(keys.cpu().numpy().view(np.uint64) ^ start)
    steps = np.arange(1, count // 2 + count % 2 + 1, dtype=np.uint64) * _GOLDEN
    words = _mix(rows[:, None] + steps[None, :]).astype("<u8", copy=False)
    halves = words.view("<u4")[:, :count]
    return torch.from_numpy(halves * 2.0**-32)
