"""Jobs: what takes time is done by one thread after another, tells how far it is, and can be cancelled.

There are lanes: one for what an edit, a version or an erasure needs (one writer), and others for what can wait.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ecbm.progress import listening
from ecbm.show.serve.changes import Event, Job, MovedOn
from ecbm.show.serve.schemas import Loading, Problem

if TYPE_CHECKING:
    from ecbm.show.serve.events import Events

__all__ = ["CancelledError", "Jobs", "Task"]

Lane = Literal["work", "background", "tracing"]
_MOST_FINISHED = 100
# Progress is told at most so often.
_TELL_SECONDS = 0.1


class CancelledError(Exception):
    """Somebody has cancelled the job, before it wrote anything."""


class Task:
    """A job, as the function sees that does it."""

    def __init__(
        self, kind: str, person: str, run: Callable[[Task], str | None], tell: Callable[[Task], None]
    ) -> None:
        self.id, self.kind, self.person = secrets.token_urlsafe(9), kind, person
        self.state: str = "waiting"
        self.step, self.done, self.total = "Waiting for another job", 0, 0
        self.result: str | None = None
        self.outcome: Any = None
        self.version: int | None = None
        self.problem: Problem | MovedOn | None = None
        self.error: Exception | None = None
        self.finished = threading.Event()
        self.cancelled = threading.Event()
        self._run, self._tell = run, tell
        self._started = time.monotonic()
        self._told = 0.0
        self._lock = threading.Lock()

    def at(self, step: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done; here a cancelled job ends."""
        if self.cancelled.is_set() and self.state != "writing":
            raise CancelledError
        self.step, self.done, self.total = step, done, total
        if time.monotonic() - self._told > _TELL_SECONDS or done == 0:
            self._told = time.monotonic()
            self._tell(self)

    def _between(self) -> None:
        """Between two iterations of a solver: here, too, a cancelled job ends."""
        if self.cancelled.is_set() and self.state != "writing":
            raise CancelledError

    def write(self, step: str) -> None:
        """From here on it cannot be cancelled; a cancellation that came before ends it."""
        with self._lock:
            if self.cancelled.is_set():
                raise CancelledError
            self.state = "writing"
        self.at(step)

    def cancel(self) -> bool:
        """Cancel it unless it is writing or done; false if that came too late."""
        with self._lock:
            if self.state in ("waiting", "running"):
                self.cancelled.set()
                return True
            return False

    def perform(self) -> None:
        """Do it, in the thread of its lane."""
        from ecbm.show.serve.state import problem_of

        self._started = time.monotonic()
        try:
            with self._lock:
                if self.cancelled.is_set():
                    raise CancelledError
                self.state = "running"
            with listening(self.at, self._between):
                self.result = self._run(self)
            self.state, self.step = "done", "Done"
        except CancelledError:
            self.state, self.step = "cancelled", "Cancelled; nothing was changed"
        except Exception as error:  # whatever went wrong is told to the page that asked
            self.error = error
            self.problem = self.problem or getattr(error, "problem", None) or problem_of(error)[1]
            self.state, self.step = "failed", self.problem.what
        self._told = time.monotonic()
        self.finished.set()
        self._tell(self)

    def shown(self) -> Job:
        return Job(
            id=self.id,
            kind=self.kind,  # type: ignore[arg-type]
            person=self.person,
            state=self.state,  # type: ignore[arg-type]
            progress=Loading(
                step=self.step, done=self.done, total=self.total, seconds=round(time.monotonic() - self._started, 2)
            ),
            can_cancel=self.state in ("waiting", "running"),
            problem=self.problem,
            result=self.result,
            version=self.version,
        )


class Jobs:
    """The jobs of a server; the last ones that ended are remembered."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._lock = threading.Lock()
        self._lanes: dict[str, queue.Queue[Task | None]] = {}
        self._threads: list[threading.Thread] = []

    def start(self, kind: str, person: str, run: Callable[[Task], str | None], lane: Lane = "work") -> Task:
        """Put a job at the end of a lane."""
        task = Task(kind, person, run, self._tell)
        with self._lock:
            self._tasks[task.id] = task
            for name in [name for name, old in self._tasks.items() if old.finished.is_set()][:-_MOST_FINISHED]:
                del self._tasks[name]
            if lane not in self._lanes:
                self._lanes[lane] = queue.Queue()
                thread = threading.Thread(target=self._work, args=(self._lanes[lane],), name=lane, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._lanes[lane].put(task)
        self._tell(task)
        return task

    def get(self, name: str) -> Task | None:
        with self._lock:
            return self._tasks.get(name)

    def all(self) -> list[Task]:
        with self._lock:
            return list(self._tasks.values())

    def stop(self, patience: float = 5.0) -> bool:
        """Cancel everything that can be cancelled, and end the lanes; false if something still works on."""
        for task in self.all():
            task.cancel()
        with self._lock:
            for lane in self._lanes.values():
                lane.put(None)
        for thread in self._threads:
            thread.join(patience)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, lane: queue.Queue[Task | None]) -> None:
        while (task := lane.get()) is not None:
            task.perform()

    def _tell(self, task: Task) -> None:
        self._events.send(Event(kind="job", job=task.shown(), version=task.version))
