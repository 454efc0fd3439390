"""Work that is done once: each part of an audit has a name and is looked up before it is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.progress import progress

__all__ = ["Arrays", "Crew", "Memory", "Shard", "Store", "collect", "parse_shard"]

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


class Crew(Protocol):
    """Several processes that compute the parts of one audit into one store.

    Attributes
    ----------
    shard
        The share that this process begins with; ``None`` while it is alone. When it is done with it, it goes on
        with what the others have not computed yet.
    """

    shard: Shard | None

    def worked(self, seconds: float, left: int) -> None:
        """Told after every part: how long it took, and how many are left."""
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
    parts: Sequence[tuple[str, Callable[[], Arrays]]],
    store: Store,
    shard: Shard | None,
    title: str,
    crew: Crew | None = None,
) -> tuple[dict[str, Arrays], list[str]]:
    """Compute the parts that are not kept yet, or this shard's share of them; with a crew all, together.

    Each part depends on nothing but the audit's plan, so who computes it does not matter.

    Returns
    -------
    tuple
        The parts by name, and the names of those that other shards have not computed yet.
    """
    work = dict(parts)
    found: dict[str, Arrays] = {}

    def look() -> int:
        """Take in what is kept by now, whoever computed it."""
        before = len(found)
        for name in work:
            value = None if name in found else store.get(name)
            if value is not None:
                found[name] = value
        return len(found) - before

    look()
    with progress(title, len(work), len(found)) as bar:
        while True:
            order = _order(list(work), shard) if crew is None else _helping_order(list(work), crew.shard)
            name = next((one for one in order if one not in found), None)
            if name is None:
                break
            started = time.monotonic()
            found[name] = work[name]()
            store.put(name, found[name])
            bar.advance(1 + look())
            if crew is not None:
                crew.worked(time.monotonic() - started, len(work) - len(found))
    return {name: found[name] for name in work if name in found}, [name for name in work if name not in found]


def _order(names: list[str], shard: Shard | None) -> Iterator[str]:
    place, count = shard or (1, 1)
    yield from names[place - 1 :: count]


def _helping_order(names: list[str], shard: Shard | None) -> Iterator[str]:
    """One's own share; then those of the others, each from its end, where its owner is not yet."""
    place, count = shard or (1, 1)
    yield from _order(names, shard)
    for further in range(1, count):
        yield from reversed(names[(place - 1 + further) % count :: count])
