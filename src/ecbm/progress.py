"""Progress for anything that may take longer than two seconds.

On a terminal it is a Rich bar; elsewhere (a log file, CI, a plain terminal) one line every few seconds. Everything
goes to standard error, so that ``--json`` output stays a single object on standard output.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ecbm.terminal import is_plain, new_console

__all__ = ["Bar", "Listener", "breathe", "listening", "progress", "silence"]

_PLAIN_EVERY_SECONDS = 10.0
_PLAIN_AFTER_SECONDS = 2.0
_silenced = False
# Rich draws one display at a time.
_display: Progress | None = None

Listener = Callable[[str, int, int], None]
"""Called with a title, the steps done and all steps; an exception that it raises ends the work."""
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_between: ContextVar[Callable[[], None] | None] = ContextVar("between", default=None)


@contextmanager
def listening(listener: Listener, between: Callable[[], None] | None = None) -> Iterator[None]:
    """Tell ``listener`` about progress in this thread instead of printing it.

    ``between`` is called at every :func:`breathe`; what it raises ends the work, too.
    """
    told, asked = _listener.set(listener), _between.set(between)
    try:
        yield
    finally:
        _listener.reset(told)
        _between.reset(asked)


def breathe() -> None:
    """Where a long computation without a bar can be ended: between two iterations, with nothing half done."""
    between = _between.get()
    if between is not None:
        between()


def silence(quiet: bool = True) -> None:
    """Switch all progress output of this process off (or on again)."""
    global _silenced
    _silenced = quiet


class Bar:
    """A running count; :meth:`advance` also takes figures to show beside it."""

    def __init__(self, title: str, total: int, live: Progress | None, quiet: bool, done: int = 0) -> None:
        self._title, self._total, self._live, self._quiet = title, total, live, quiet
        self._done = self._before = done
        self._start = self._last = time.monotonic()
        self._listener = _listener.get()
        if self._listener is not None:
            self._listener(title, done, total)
        self._task = live.add_task(title, total=total, completed=done, figures="") if live is not None else None

    def advance(self, steps: int = 1, /, **figures: float) -> None:
        """Count ``steps`` more as done and show ``figures`` (for example ``loss=0.31``)."""
        self._done += steps
        if self._listener is not None:
            self._listener(self._title, self._done, self._total)
        if self._quiet:
            return
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        if self._live is not None and self._task is not None:
            self._live.update(self._task, advance=steps, figures=text)
            return
        now = time.monotonic()
        elapsed = now - self._start
        if elapsed > _PLAIN_AFTER_SECONDS and now - self._last > _PLAIN_EVERY_SECONDS:
            self._last = now
            left = elapsed / max(self._done - self._before, 1) * (self._total - self._done)
            print(
                f"{self._title}: {self._done}/{self._total}  {text}  about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def remove(self) -> None:
        """Take the bar off a display that goes on."""
        if self._live is not None and self._task is not None:
            self._live.remove_task(self._task)


@contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Bar]:
    """Show progress of ``total`` steps while the block runs, ``done`` of which were taken before it.

    Only the first process of a group prints. Inside another one's block, its bar stands below that one's.
    """
    global _display
    quiet = _silenced or int(os.environ.get("RANK", "0")) != 0 or _listener.get() is not None
    # A bar is drawn over and over with escape codes, which a plain terminal may show as they are.
    if quiet or not sys.stderr.isatty() or is_plain():
        yield Bar(title, total, None, quiet, done)
        return
    if _display is not None:
        bar = Bar(title, total, _display, quiet, done)
        try:
            yield bar
        finally:
            bar.remove()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=new_console(stderr=True), transient=True) as live:
        _display = live
        try:
            yield Bar(title, total, live, quiet, done)
        finally:
            _display = None
