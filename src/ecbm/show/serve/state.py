"""The workbench of one workspace: the current version in memory, what is staged, jobs and events.

Versions are read by one thread at a time. Somebody else may make one (the command line, another server); a watcher
looks for that.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecbm.errors import InputError, UnknownNameError
from ecbm.keep.lock import BusyError
from ecbm.keep.records import Records, Version, erased, untrained
from ecbm.keep.staged import ErasedMeanwhileError, StagedItem, StagedItems, count_erasures
from ecbm.keep.transaction import MovedOnError
from ecbm.show.serve.changes import Event
from ecbm.show.serve.events import Events
from ecbm.show.serve.jobs import Jobs
from ecbm.show.serve.lineage import ancestors
from ecbm.show.serve.previews import Previews
from ecbm.show.serve.reports import Reports
from ecbm.show.serve.schemas import Loading, Problem
from ecbm.show.serve.thumbnails import Thumbnails

if TYPE_CHECKING:
    from ecbm.keep.workspace import Workspace
    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["Bench", "RefusedError", "problem_of", "refuse_unknown"]

_MOST_SNAPSHOTS = 3
_WATCH_SECONDS = 1.0
_STOP_SECONDS = 5.0
# How long a request waits for the model to be read before it says so.
_PATIENCE_SECONDS = 20.0


class RefusedError(Exception):
    """A request that cannot be answered, with its status and what to say."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.what)
        self.status, self.problem = status, problem


def _sentence(text: str) -> tuple[str, str]:
    """What is wrong and what to do, from one of our own messages: a semicolon stands between them."""
    what, _, todo = text.partition("; ")
    return what[:1].upper() + what[1:], todo[:1].upper() + todo[1:]


def problem_of(error: Exception, staged: int = 0) -> tuple[int, Problem]:
    """The status and the words of an error."""
    what, todo = _sentence(" ".join(str(error).split()))
    cause = error.__cause__
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or (isinstance(cause, sqlite3.Error) and "full" in str(cause)) or "disk is full" in str(error):
        safe = f" What was staged before ({staged}) is safe." if staged else ""
        return 507, Problem(
            kind="full_disk",
            what=f"Not stored: the disk is full.{safe}",
            todo="Make room on the disk of the workspace, then do it again.",
        )
    if isinstance(error, MovedOnError | ErasedMeanwhileError):
        return 409, Problem(kind="moved_on", what=what, todo=todo)
    if isinstance(error, BusyError):
        return 409, Problem(kind="busy", what=what, todo=todo or "Try again in a moment.")
    if isinstance(error, UnknownNameError):
        return 404, Problem(kind="unknown", what=what, todo=todo)
    if isinstance(error, InputError):
        return 422, Problem(kind="input", what=what, todo=todo)
    if isinstance(error, OSError):
        words = error.strerror or str(error)
        return 507, Problem(
            kind="full_disk", what=f"The disk refused: {words}.", todo="Look at the disk, and try again."
        )
    return 409, Problem(kind="input", what=what or type(error).__name__, todo=todo)


class Bench:
    """Everything the routes share.

    Parameters
    ----------
    workspace
        The folder of a workspace.
    person
        Who is at a browser that has not said so.
    device
        Where networks run.
    by
        Who labelled what: a file and a column of it (``samples.csv:annotator``).
    """

    def __init__(self, folder: str, *, person: str = "", device: str | None = None, by: str | None = None) -> None:
        self.records = Records(folder)
        self.folder, self.device, self.person = self.records.folder, device, person
        self.name = self.folder.resolve().name
        self.staged = StagedItems(self.folder)
        self.events = Events()
        self.jobs = Jobs(self.events)
        self.thumbnails = Thumbnails()
        self.previews = Previews()
        self.reports = Reports()
        self.head: Version = self.records.version()
        self.failed: Exception | None = None
        self.loading: Loading | None = Loading(step="Reading the model", done=0, total=0, seconds=0.0)
        self._workspace: Workspace | None = None
        self._snapshots: OrderedDict[int, Snapshot] = OrderedDict()
        self._latest: Snapshot | None = None
        self._by = by
        self._everybody: tuple[int, list[StagedItem]] = (-1, [])
        self.annotators: dict[str, str] = {}
        self._described: dict[int, dict[str, Any]] = {}
        self._ready = threading.Event()
        self._load_lock = threading.Lock()
        self._stopped = threading.Event()
        self._signature: tuple[int, int] | None = None
        self.ended = True
        """Whether every thread had ended when it was stopped."""
        self._threads: list[threading.Thread] = []

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the current version in the background, and watch for others."""
        self._spawn(self._watch, "watch")

    def stop(self) -> None:
        """End streams, jobs and the watcher; what computes is given a moment to end."""
        self._stopped.set()
        self.events.close()
        ended = self.jobs.stop(_STOP_SECONDS)
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        self.ended = ended and not any(thread.is_alive() for thread in self._threads)

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    @property
    def workspace(self) -> Workspace:
        """The workspace, opened; imports torch."""
        from ecbm.keep.workspace import Workspace

        if self._workspace is None:
            self._workspace = Workspace(self.folder, device=self.device)
        return self._workspace

    def another_workspace(self) -> Workspace:
        """The workspace for work of its own, beside the thread that reads versions."""
        from ecbm.keep.workspace import Workspace

        return Workspace(self.folder, device=self.device)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                self.refresh()
            except Exception as error:  # a damaged file must be told to whoever asks, and may be mended meanwhile
                self.failed, self.loading = error, None
                self._ready.set()
            self._stopped.wait(_WATCH_SECONDS)

    def _changed(self) -> bool:
        """Whether the records may have changed since the last look; costs two calls to the system."""
        stamps = []
        for name in ("records.sqlite", "records.sqlite-wal"):
            try:
                stat = (self.folder / name).stat()
                stamps.append((stat.st_mtime_ns, stat.st_size))
            except FileNotFoundError:
                stamps.append((0, 0))
        signature = hash(tuple(stamps)), len(stamps)
        if signature == self._signature and self._latest is not None:
            return False
        self._signature = signature
        return True

    def refresh(self) -> None:
        """Read the current version if it is another one, and tell the pages."""
        if not self._changed():
            return
        with self._load_lock:
            head = self.records.version()
            before = self._latest
            if before is not None and before.version == head:
                return
            erasures = count_erasures(self.folder)
            if before is not None and before.erasures != erasures:
                # What was erased must not stay in memory either.
                self._snapshots.clear()
                self.workspace._forget()
                self.thumbnails.forget()
                self.previews.clear()
                self.reports.forget()
                self._everybody = (-1, [])
                self._described.clear()
                before = None
            snapshot = self._snapshots.get(head.version)
            if snapshot is None or snapshot.version != head:
                from ecbm.show.serve.snapshot import read_snapshot

                snapshot = read_snapshot(self.workspace, head, before, erasures)
                self.annotators = self._read_annotators(snapshot)
            self._snapshots[head.version] = snapshot
            self._snapshots.move_to_end(head.version)
            while len(self._snapshots) > _MOST_SNAPSHOTS:
                self._snapshots.popitem(last=False)
            first = self._latest is None
            self._latest, self.head, self.failed, self.loading = snapshot, head, None, None
            self._ready.set()
        author = self.records.described([head])[0]["author"]
        self.events.send(Event(kind="ready" if first else "version", version=head.version, by=author,
                               words=str(head.summary.get("words", ""))))  # fmt: skip
        if snapshot.trained:
            # Made here, not while somebody waits.
            _ = snapshot.directions
            self._spawn(lambda: self._warm(snapshot), "warm")

    def _read_annotators(self, snapshot: Snapshot) -> dict[str, str]:
        """Who labelled what, as the table says that the data came from, or another one."""
        if self._by is None:
            return {}
        from ecbm.verify.suggest.read_answers import read_annotators

        source = Path(self.records.source().split(", ")[0])
        table = source / "samples.csv" if source.is_dir() else source
        return read_annotators(self._by, snapshot.data.ids, table)

    # -- what routes ask for -------------------------------------------------------------------------------

    def current(self) -> Snapshot:
        """The current version; waits while it is being read for the first time."""
        if not self._ready.wait(_PATIENCE_SECONDS):
            raise RefusedError(
                503,
                Problem(kind="loading", what="The model is still being read.", todo="Wait a moment; it goes on."),
            )
        if self._latest is None:
            assert self.failed is not None
            raise self.failed
        return self._latest

    def trained(self) -> Snapshot:
        """The current version, which must have a model."""
        snapshot = self.current()
        if not snapshot.trained:
            raise RefusedError(
                409,
                Problem(kind="no_model", what="There is data, but no model.", todo="Train one first."),
            )
        return snapshot

    @property
    def ready(self) -> bool:
        """Whether the current version has been read."""
        return self._latest is not None

    def describe(self, version: Version) -> dict[str, Any]:
        """Author and reason of a version; read once, for they do not change unless they are erased."""
        found = self._described.get(version.version)
        if found is None:
            item = self.records.described([version], 10)[0]
            found = {"author": item["author"], "reason": item["reason"]}
            self._described[version.version] = found
        return found

    def everybody(self) -> list[StagedItem]:
        """The items of all people, read again only when something was staged."""
        revision = self.staged.revision()
        if self._everybody[0] != revision:
            self._everybody = revision, self.staged.items()
        return self._everybody[1]

    def snapshot_of(self, number: int) -> Snapshot:
        """Any version that has a model; the last few are kept."""
        from ecbm.show.serve.snapshot import read_snapshot

        version = self.records.version(number)
        with self._load_lock:
            found = self._snapshots.get(number)
            if found is None or found.version != version:
                if version.model is None or version.data is None:
                    raise untrained(self.folder, version) if version.kept else erased(version)
                found = read_snapshot(self.workspace, version, self._latest, count_erasures(self.folder))
                self._snapshots[number] = found
                self._snapshots.move_to_end(number)
                while len(self._snapshots) > _MOST_SNAPSHOTS:
                    self._snapshots.popitem(last=False)
        if not found.trained:
            raise untrained(self.folder, version)
        return found

    def lineage(self, number: int) -> list[Version]:
        """A version and those it came from, newest first."""
        return ancestors(self.records.versions(), number)

    def _warm(self, snapshot: Snapshot) -> None:
        """Compute what the first edit and the first page would wait for."""
        from ecbm.show.serve.figures import remember_first

        snapshot.warm()
        if not self._stopped.is_set():
            remember_first(self, snapshot)

    def can_undo(self) -> bool:
        """Whether there is a model before the current version to go back to."""
        head = self.head
        if head.kind == "erase" or head.parent is None:
            return False
        return self.records.version(head.parent).model is not None

    def can_redo(self) -> bool:
        return self.records.counts()["redo"] > 0

    def check_version(self, version: int) -> Snapshot:
        """The current version, if it is the one that the page shows."""
        snapshot = self.trained()
        if snapshot.number != version:
            raise MovedOnError(f"the model moved on since you looked: now it is version {snapshot.number}")
        return snapshot


def refuse_unknown(kind: str, name: str) -> RefusedError:
    """404 for something that does not exist."""
    return RefusedError(
        404, Problem(kind="unknown", what=f"There is no {kind} {name!r}.", todo="Look it up again.")
    )
