"""An audit's work shared out among processes of this machine.

Every part of an audit is decided by its plan and computed by one thread, so the result is the same to the byte
however many processes there are. Other processes are started when the first part has shown that they are worth
their start; they open the workspace themselves and leave what they compute in its folder of references. One that
dies is not missed: the first process goes on with whatever the others have not done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from ecbm.trust import allowed
from ecbm.verify.audit.asked import Asked
from ecbm.verify.audit.collecting import Shard

if TYPE_CHECKING:
    from ecbm.keep.workspace import Workspace

__all__ = ["AuditCrew", "Helper", "one_thread"]

# Seconds of work that are left from which on other processes are started: each takes some five to be ready.
_WORTH = 30.0
# Each process holds the data and the kept factors for itself.
_MOST = 8


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: how many there are decides the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class AuditCrew:
    """The first process of an audit (:class:`~ecbm.verify.audit.collecting.Crew`), and the others it starts.

    Parameters
    ----------
    workspace, version, named
        What is audited, and whether it was asked for by its number.
    asked
        As it was asked for; ``processes`` is by default the number of cores, at most eight, and only where there
        is half a minute of work. On another device than the CPU it is one.
    """

    def __init__(self, workspace: Workspace, version: int, asked: Asked, *, named: bool) -> None:
        self._workspace, self._version, self._asked, self._named = workspace, version, asked, named
        self._others: list[subprocess.Popen[bytes]] = []
        self.shard: Shard | None = None

    def worked(self, seconds: float, left: int) -> None:
        """Start the others where that is worth it."""
        if self.shard is not None:
            return
        on_processor = str(self._workspace.device or "cpu") == "cpu"
        wanted = self._asked.processes or (min(_cores(), _MOST) if on_processor else 1)
        count = min(wanted, left)
        if count > 1 and (self._asked.processes is not None or seconds * left > _WORTH):
            self.shard = (1, count)
            for place in range(2, count + 1):
                self._start((place, count))

    def _start(self, shard: Shard) -> None:
        told = {
            "folder": str(self._workspace.folder.resolve()),
            "trust": [*self._workspace.trust, *allowed()],
            "device": None if self._workspace.device is None else str(self._workspace.device),
            "version": self._version,
            "named": self._named,
            "asked": dataclasses.asdict(dataclasses.replace(self._asked, processes=None, shard=shard)),
            "parent": os.getpid(),
        }
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # What this process can import, the other one can.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        # Without an interpreter to start, or memory for it, this process does all the work.
        with contextlib.suppress(OSError):
            other = subprocess.Popen(
                [sys.executable, "-P", "-m", "ecbm.keep.audit_crew"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **threads, "PYTHONPATH": paths},
            )
            self._others.append(other)
            assert other.stdin is not None
            with contextlib.closing(other.stdin) as given:
                given.write(json.dumps(told).encode())

    def __enter__(self) -> AuditCrew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = 0
        for other in self._others:
            lost += other.poll() not in (None, 0)
            other.terminate()
            other.wait()
        if lost and error is None:
            warnings.warn(
                f"{lost} of {len(self._others)} helping processes ended early; the others did their share",
                stacklevel=2,
            )


class Helper:
    """One of the other processes. It ends with the first one.

    Parameters
    ----------
    shard
        Where it begins.
    parent
        The first process.
    """

    def __init__(self, shard: Shard, parent: int) -> None:
        self.shard: Shard | None = shard
        self._parent = parent

    def worked(self, seconds: float, left: int) -> None:
        """Look whether anybody still waits for the work."""
        if os.getppid() != self._parent:
            raise SystemExit(1)


def _help(told: dict[str, Any]) -> None:
    from ecbm.keep.auditing import audit_version
    from ecbm.keep.workspace import Workspace
    from ecbm.progress import silence

    silence()
    asked = told["asked"]
    for name in ("ids", "shard"):
        asked[name] = None if asked[name] is None else tuple(asked[name])
    workspace = Workspace(told["folder"], trust=told["trust"], device=told["device"])
    question = Asked(**asked)
    assert question.shard is not None
    with one_thread():
        crew = Helper(question.shard, told["parent"])
        audit_version(workspace, told["version"], question, crew, named=told["named"])


if __name__ == "__main__":
    _help(json.load(sys.stdin))
