"""Who changes something and why, and which version they have looked at."""

from __future__ import annotations

import dataclasses
import getpass
import os

from ecbm.errors import InputError
from ecbm.keep.ledger import Detail
from ecbm.keep.transaction import MovedOnError

__all__ = ["Signature", "start_from"]


@dataclasses.dataclass(frozen=True)
class Signature:
    """Who changes something, and why. The author is by default ``ECBM_AUTHOR`` or the name of the user."""

    author: str = ""
    reason: str = ""

    def details(self) -> list[Detail]:
        """The ledger details of a signature."""
        author = self.author or os.environ.get("ECBM_AUTHOR") or _user()
        for name, text in (("author", author), ("reason", self.reason)):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(f"the {name} is not valid text; give it in UTF-8") from None
        return [Detail("author", author), *([Detail("reason", self.reason)] if self.reason else [])]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container whose user has no name
        return "unknown"


def start_from(head: int, expected: int | None) -> None:
    """Refuse early if the caller has looked at another version than the current one."""
    if expected is not None and expected != head:
        raise MovedOnError(
            f"the model moved on since you looked: you expect version {expected}, now it is version {head}; "
            "nothing was changed: look at it with 'ecbm show' and run your edit again"
        )
