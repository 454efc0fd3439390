"""One writer at a time. The operating system holds the lock, so that it ends with the process that took it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecbm.errors import EcbmError

__all__ = ["BusyError", "exclusive"]


class BusyError(EcbmError):
    """Another process has been writing for too long."""


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive(path: Path, patience: float = 120.0) -> Iterator[None]:
    """Hold the lock of ``path`` while the block runs; wait up to ``patience`` seconds for it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        started, pause = time.monotonic(), 0.002
        while not _try_lock(descriptor):
            if time.monotonic() - started > patience:
                raise BusyError(
                    f"{path.parent}: another process is writing to it since {patience:.0f} s; try again"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        yield
    finally:
        os.close(descriptor)
