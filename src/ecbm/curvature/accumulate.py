"""Sums over the data that do not depend on how it was cut up.

Batches are added in the layer's own type, and every few batches the partial sum goes into a float64 total.
The cut points depend on the number of batches alone. So several processes, or a fit that was interrupted, add the
same partial sums and differ by float64 rounding only; that matters because eigenvectors of close eigenvalues
turn on the last digit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ecbm import parallel

__all__ = ["Accumulator", "cut"]

_MAXIMUM_BATCHES = 16
_MINIMUM_BLOCKS = 4  # so that up to four processes have work even on small data


def cut(samples: int, batch_size: int) -> list[list[range]]:
    """The data as blocks of batches."""
    batches = [range(start, min(start + batch_size, samples)) for start in range(0, samples, batch_size)]
    size = min(max(len(batches) // _MINIMUM_BLOCKS, 1), _MAXIMUM_BATCHES)
    return [batches[start : start + size] for start in range(0, len(batches), size)]


class Accumulator:
    """Named tensors with a partial sum each, and a float64 total."""

    def __init__(self) -> None:
        self.partial: dict[str, dict[str, Tensor]] = {}
        self.total: dict[str, dict[str, Tensor]] = {}

    def add_group(self, name: str, zeros: dict[str, Tensor]) -> None:
        self.partial[name] = zeros
        self.total[name] = {key: torch.zeros_like(value, dtype=torch.float64) for key, value in zeros.items()}

    def flush(self) -> str | None:
        """Move the partial sums to the totals; returns the name of a group that is not finite, if any."""
        broken = None
        for name, group in self.partial.items():
            for key, value in group.items():
                # A number that is not finite, or overflows, shows on the diagonal of a sum of squares.
                seen = value.diagonal(dim1=-2, dim2=-1) if key in ("gram", "output") else value
                if broken is None and not math.isfinite(seen.sum().item()):
                    broken = name
                self.total[name][key] += value
                value.zero_()
        return broken

    def reduce(self) -> None:
        """Sum the totals over all processes."""
        for group in self.total.values():
            parallel.all_reduce_sum(*group.values())

    def tensors(self) -> dict[str, Tensor]:
        return {f"{name}|{key}": value for name, group in self.total.items() for key, value in group.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, group in self.total.items():
            for key, value in group.items():
                value.copy_(tensors[f"{name}|{key}"])
