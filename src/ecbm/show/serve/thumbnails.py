"""Small pictures, made once and kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Thumbnails"]


class Thumbnails:
    """Small pictures, made once; those that were not asked for longest are dropped beyond ``most_bytes``.

    In memory alone: a file of an erased picture that is written a moment too late would outlive the erasure.
    """

    def __init__(self, most_bytes: int = 96 << 20) -> None:
        self._most, self._size = most_bytes, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The thumbnail of a key, made if it is not there."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        content = make()
        with self._lock:
            self._size += len(content) - len(self._kept.get(key, b""))
            self._kept[key] = content
            while self._size > self._most:
                self._size -= len(self._kept.popitem(last=False)[1])
        return content

    def forget(self) -> None:
        """Drop all of them, after an erasure."""
        with self._lock:
            self._kept.clear()
            self._size = 0
