"""Work that is done once: each part of an audit has a name and is looked up before it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.progress import progress

__all__ = ["Arrays", "Memory", "Shard", "Store", "collect", "parse_shard"]

Arrays = Mapping[str, NDArray[np.float64]]
Shard = tuple[int, int]
"""(i, n): the i-th, from 1, of n processes."""


class Store(Protocol):
    """Where parts are kept."""

    def get(self, name: str) -> Arrays | None:
        """A part that was kept, or ``None``."""
        ...

    def put(self, name: str, arrays: Arrays) -> None:
        """Keep a part."""
        ...


class Memory:
    """Parts of one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Arrays] = {}

    def get(self, name: str) -> Arrays | None:
        return self._kept.get(name)

    def put(self, name: str, arrays: Arrays) -> None:
        self._kept[name] = arrays


def parse_shard(text: str | None) -> Shard | None:
    """``"2/4"`` as (2, 4).

    Examples
    --------
    >>> parse_shard("2/4")
    (2, 4)
    """
    if text is None:
        return None
    first, slash, last = text.partition("/")
    if not (slash and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise InputError(f"a shard is i/n, such as 1/4 for the first of four processes, got {text!r}")
    return int(first), int(last)


def collect(
    parts: Sequence[tuple[str, Callable[[], Arrays]]], store: Store, shard: Shard | None, title: str
) -> tuple[dict[str, Arrays], list[str]]:
    """Compute the parts that are not kept yet, or this shard's share of them.

    Each part depends on nothing but the audit's plan, so who computes it does not matter.

    Returns
    -------
    tuple
        The parts by name, and the names of those that other shards have not computed yet.
    """
    found: dict[str, Arrays] = {}
    missing: list[str] = []
    kept = {name: store.get(name) for name, _ in parts}
    ready = sum(value is not None for value in kept.values())
    with progress(title, len(parts), ready) as bar:
        for place, (name, compute) in enumerate(parts):
            value = kept[name]
            if value is None and shard is not None and place % shard[1] != shard[0] - 1:
                value = store.get(name)
                if value is None:
                    missing.append(name)
                    continue
            if value is None:
                value = compute()
                store.put(name, value)
                bar.advance(1)
            found[name] = value
    return found, missing
