"""Server-sent events: what happens is told to every open page."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

from ecbm.show.serve.changes import Event

__all__ = ["Events"]

# A page that does not read is cut off, and finds out what it missed when it comes back.
_MOST_WAITING = 1000
_HEARTBEAT_SECONDS = 15.0


class Events:
    """From any thread to every open stream."""

    def __init__(self) -> None:
        self._streams: dict[asyncio.Queue[Event | None], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self.closed = False

    def send(self, event: Event) -> None:
        """Tell every page; never waits."""
        with self._lock:
            streams = list(self._streams.items())
        for queue, loop in streams:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_offer, queue, event)

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self.closed = True
        with self._lock:
            streams = list(self._streams.items())
        for queue, loop in streams:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_offer, queue, None)

    async def stream(self, hello: Event) -> AsyncIterator[str]:
        """The events of one page, beginning with ``hello``."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(_MOST_WAITING)
        with self._lock:
            self._streams[queue] = asyncio.get_running_loop()
        try:
            yield _text(hello)
            while not self.closed:
                try:
                    event = await asyncio.wait_for(queue.get(), _HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event is None:
                    return
                yield _text(event)
        finally:
            with self._lock:
                self._streams.pop(queue, None)


def _offer(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


def _text(event: Event) -> str:
    return f"event: {event.kind}\ndata: {event.model_dump_json()}\n\n"
