"""Previews that were made, kept so that what was looked at is what is committed."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ecbm.edit.edit import Edit
    from ecbm.edit.editor import EditResult
    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["Made", "Previews"]

# Each holds a model.
_MOST_PREVIEWS = 4


@dataclasses.dataclass
class Made:
    """A preview that was made: for which items of whom, with which result."""

    id: str
    person: str
    snapshot: Snapshot
    items: tuple[int, ...]
    method: str
    budget: float
    edit: Edit
    result: EditResult
    noise: int | None
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.person, self.snapshot.number, self.items, self.method, self.budget


class Previews:
    """The last previews, so that what was looked at is what is committed, without computing it again."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Made] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, made: Made) -> None:
        with self._lock:
            self._made[made.id] = made
            while len(self._made) > _MOST_PREVIEWS:
                self._made.popitem(last=False)

    def get(self, name: str) -> Made | None:
        with self._lock:
            return self._made.get(name)

    def like(self, key: tuple[Any, ...]) -> Made | None:
        with self._lock:
            return next((made for made in reversed(self._made.values()) if made.key == key), None)

    def clear(self) -> None:
        with self._lock:
            self._made.clear()
