"""Fault injection: at a durable step it fails, the disk is full from there on, or the process dies."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from workspace_kit import OPERATIONS, PATIENT, copy, state_of

from ecbm.keep import durable
from ecbm.keep.checking import check_workspace

MODES = ("fail", "full", "kill", "twice")


class Plan:
    """Counts durable steps; at the k-th, and in mode ``full`` at all later ones too, it does what the mode says."""

    def __init__(self, at: int | None = None, mode: str = "kill") -> None:
        self.at, self.mode, self.count = at, mode, 0

    def __call__(self, operation: str, what: str) -> None:
        self.count += 1
        if self.at is None or self.count < self.at or (self.count > self.at and self.mode != "full"):
            return
        if self.mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        # A full disk lets files be removed; everything else fails.
        if self.mode == "full" and operation in ("unlink", "remove folder", "rmdir"):
            return
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


class Case:
    """One operation with the workspace it starts from, and its states before and after."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name.replace(": ", "-").replace(" ", "-")
        self.folder.mkdir(parents=True)
        prepare, self.run = OPERATIONS[name]
        self.template = self.folder / "template"
        if prepare is not None:
            prepare(self.template)
        self.before = state_of(self.template)
        self.work = self.folder / "work"
        self.renew()
        plan = Plan()
        durable.watch(plan)
        try:
            self.run(self.work)
        finally:
            durable.watch(None)
        self.steps, self.after = plan.count, state_of(self.work)

    def renew(self) -> None:
        """The workspace as it was before the operation."""
        if self.template.exists():
            copy(self.template, self.work)
        else:
            shutil.rmtree(self.work, ignore_errors=True)

    def attack(self, at: int, mode: str) -> str | None:
        """Run the operation with a fault; returns what went wrong, or ``None``."""
        self.renew()
        code = self._in_child(lambda: self.run(self.work), at, "kill" if mode == "twice" else mode)
        if mode == "twice" and self.work.exists():
            # Killed again while tidying up after the first time.
            self._in_child(lambda: check_workspace(self.work), 1 + at % 11, "kill")
        if mode in ("kill", "twice") and code != -signal.SIGKILL:
            return f"the process was not killed (status {code})"
        if code not in (0, 1, -signal.SIGKILL):
            return f"an unexpected error (status {code})"
        return self.verdict()

    def _in_child(self, action: Callable[[], object], at: int, mode: str) -> int:
        """Run something in a process of its own; returns how that ended."""
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        durable.watch(Plan(at, mode))
        status = 3
        try:
            action()
            status = 0
        except Exception as error:
            expected = isinstance(error, OSError) or type(error).__module__.startswith("ecbm")
            status = 1 if expected else 2
            if not expected:
                traceback.print_exc()
        finally:
            os._exit(status)

    def verdict(self) -> str | None:
        """Old or new, and sound; and the operation can be done afterwards."""
        if self.work.exists():
            found = check_workspace(self.work)
            if not found["ok"]:
                return f"check: {found['problems']}"
            again = check_workspace(self.work)
            if not again["ok"] or any("unused" in note for note in again["notes"]):
                return f"not tidied up: {again}"
        state = state_of(self.work) if self.work.exists() else None
        if state == self.before:
            if state == self.after:
                return None
            self.run(self.work)
            return None if state_of(self.work) == self.after else "the operation cannot be done again"
        if state != self.after:
            return f"neither old nor new: {state}"
        return self._traces() if self.name == "erase" else None

    def _traces(self) -> str | None:
        """Files in which the erased sample is still named."""
        files = [path for path in self.work.rglob("*") if path.is_file()]
        found = [path.name for path in files if PATIENT.encode() in path.read_bytes()]
        return f"the erased sample is named in {found}" if found else None


def points(cases: Iterable[Case], modes: Iterable[str], every: int = 1) -> Iterator[tuple[Case, int, str]]:
    """Every ``every``-th step of every case, in every mode."""
    for case in cases:
        for mode in modes:
            yield from ((case, at, mode) for at in range(1, case.steps + 1, every))


def run_faults(
    folder: Path, names: Iterable[str], modes: Iterable[str], every: int = 1
) -> tuple[Counter, list[str]]:
    """Attack operations; returns how many points were tried of each, and what failed."""
    tried: Counter[str] = Counter()
    failures = []
    for case, at, mode in points([Case(name, folder) for name in names], modes, every):
        try:
            wrong = case.attack(at, mode)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        tried[f"{case.name} ({mode})"] += 1
        if wrong is not None:
            failures.append(f"{case.name}, step {at}, {mode}: {wrong}")
    return tried, failures
