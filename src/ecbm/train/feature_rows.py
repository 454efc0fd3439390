"""Feature rows that were computed once, found again by the digest of the input they belong to."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.read.digests import RowDigests

__all__ = ["FeatureRows", "MemoryRows"]


class FeatureRows(Protocol):
    """Rows (of any shape, all the same) by digest.

    ``shared`` says whether what one process adds can be found by the others, after :meth:`refresh`.
    """

    shared: bool

    def has(self, digests: RowDigests) -> NDArray[np.bool_]:
        """Which of these are there."""
        ...

    def fetch(self, digests: RowDigests) -> tuple[Tensor, NDArray[np.bool_]]:
        """Rows in float32 and which of them were found; the others are 0."""
        ...

    def add(self, digests: RowDigests, rows: Tensor) -> None:
        """Keep rows; those that are there already are left as they are."""
        ...

    def refresh(self) -> None:
        """Learn of rows that other processes have added."""
        ...


class MemoryRows:
    """Rows held in memory.

    Parameters
    ----------
    shape
        Of one row.
    precision
        In which they are held.

    Examples
    --------
    >>> rows, digests = MemoryRows((2,)), RowDigests.of([bytes(16), bytes(range(16))])
    >>> rows.add(digests[:1], torch.tensor([[1.0, 2.0]]))
    >>> rows.has(digests).tolist(), rows.fetch(digests)[0].tolist()
    ([True, False], [[1.0, 2.0], [0.0, 0.0]])
    """

    shared = False

    def __init__(self, shape: tuple[int, ...], precision: torch.dtype = torch.float32) -> None:
        self._values = torch.empty(0, *shape, dtype=precision)
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def has(self, digests: RowDigests) -> NDArray[np.bool_]:
        return np.fromiter((digest in self._places for digest in digests), bool, len(digests))

    def fetch(self, digests: RowDigests) -> tuple[Tensor, NDArray[np.bool_]]:
        places = torch.tensor([self._places.get(digest, -1) for digest in digests], dtype=torch.long)
        found = places >= 0
        if bool(found.all()):
            return self._values[places].float(), found.numpy()
        rows = torch.zeros(len(digests), *self._values.shape[1:])
        rows[found] = self._values[places[found]].float()
        return rows, found.numpy()

    def add(self, digests: RowDigests, rows: Tensor) -> None:
        needed = len(self._places) + len(digests)
        if needed > len(self._values):
            # Doubled, so that many small additions copy each row a few times at most.
            grown = self._values.new_empty(max(needed, 2 * len(self._values)), *self._values.shape[1:])
            grown[: len(self._places)] = self._values[: len(self._places)]
            self._values = grown
        for digest, row in zip(digests, rows, strict=True):
            if digest not in self._places:
                self._values[len(self._places)] = row
                self._places[digest] = len(self._places)

    def refresh(self) -> None:
        """Nothing: no other process knows of these."""
