"""Browsers that a workbench has let in: kept with the workspace, so that a server that is started again knows them.

The file holds no cookie, only keyed digests of them: who reads it cannot get in. The key is made of the password
and of the folder's place on this machine: another password ends all sessions, and a copy of the folder lets nobody
in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from ecbm.keep import durable

__all__ = [
    "FILES", "LIFE_SECONDS", "KeptSession", "keep_sessions", "read_sessions", "session_digest", "session_key",
]  # fmt: skip

SESSIONS = "sessions.json"
FILES = (SESSIONS, f"{SESSIONS}.draft")
# From the opening on, whether or not somebody comes back meanwhile.
LIFE_SECONDS = 30 * 24 * 3600.0


@dataclasses.dataclass(frozen=True)
class KeptSession:
    """One browser: the digest of its cookie, the server's port, who was at it, and when it was let in."""

    digest: str
    port: int
    person: str
    opened: float

    @property
    def valid(self) -> bool:
        return 0 <= time.time() - self.opened < LIFE_SECONDS


def session_key(folder: Path, password: str | None) -> bytes:
    """What cookies are digested with."""
    place = folder.resolve()
    return json.dumps([password or "", str(place), place.stat().st_ino]).encode()


def session_digest(key: bytes, cookie: str) -> str:
    """What is kept of a cookie."""
    return hmac.new(key, cookie.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def read_sessions(folder: Path) -> list[KeptSession]:
    """The sessions that are still valid; none from a file that others than its owner may read or write."""
    path = folder / SESSIONS
    try:
        stat = path.stat()
        if os.name == "posix" and (stat.st_mode & 0o077 or stat.st_uid != os.geteuid()):
            return []
        found = [KeptSession(**one) for one in json.loads(path.read_bytes())]
        return [one for one in found if one.valid]
    except (OSError, ValueError, TypeError):
        return []


def keep_sessions(folder: Path, port: int, sessions: Iterable[KeptSession]) -> None:
    """Put the sessions of the server at ``port`` in place of those it had; those of other ports stay.

    A disk that refuses is no reason to turn a browser away: it must be let in again after the next start, no more.
    """
    with contextlib.suppress(OSError):
        others = [one for one in read_sessions(folder) if one.port != port]
        content = json.dumps([dataclasses.asdict(one) for one in (*others, *sessions) if one.valid]).encode()
        draft = folder / FILES[1]
        durable.step("create", draft)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
        durable.step("rename", folder / SESSIONS)
        os.replace(draft, folder / SESSIONS)
