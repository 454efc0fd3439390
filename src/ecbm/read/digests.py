"""Digests of inputs, one a sample, as one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGEST_SIZE", "RowDigests"]

DIGEST_SIZE = 16


class RowDigests(Sequence[bytes]):
    """A sequence of digests of 16 bytes. Twenty thousand of them are one array, not twenty thousand objects.

    Examples
    --------
    >>> digests = RowDigests.of([bytes(16), bytes(range(16))])
    >>> len(digests), digests[1] == bytes(range(16)), digests.take([1, 1]).joined() == 2 * bytes(range(16))
    (2, True, True)
    """

    def __init__(self, table: NDArray[np.uint8]) -> None:
        self.table = np.ascontiguousarray(table, np.uint8).reshape(-1, DIGEST_SIZE)

    @classmethod
    def of(cls, digests: Sequence[bytes]) -> RowDigests:
        """Any sequence of digests as one of these."""
        if isinstance(digests, RowDigests):
            return digests
        return cls(np.frombuffer(b"".join(digests), np.uint8))

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> RowDigests: ...

    def __getitem__(self, at: int | slice) -> bytes | RowDigests:
        return RowDigests(self.table[at]) if isinstance(at, slice) else self.table[at].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        whole = self.joined()
        return (whole[at : at + DIGEST_SIZE] for at in range(0, len(whole), DIGEST_SIZE))

    def take(self, rows: Any) -> RowDigests:
        """The digests of some rows, in that order."""
        return RowDigests(self.table[np.asarray(rows, np.int64)])

    def joined(self) -> bytes:
        """All digests, one after another."""
        return self.table.tobytes()
