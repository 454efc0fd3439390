"""A real server in a process of its own and a real browser in front of it."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
SMALL = {"width": 390, "height": 844}
LAPTOP = {"width": 1440, "height": 900}
_NAMES = ("chromium", "chromium-browser", "google-chrome")


class Served:
    """``ecbm serve`` as people start it."""

    def __init__(self, folder: Path, person: str = "anna", port: int = 0) -> None:
        self.folder, self.person, self.port = folder, person, port
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start it, at the same port as before; returns when its address is known."""
        command = [sys.executable, "-m", "ecbm.show.cli", "serve", str(self.folder), "--no-browser"]
        command += ["--port", str(self.port), "--author", self.person]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"(http://[^/\s]+:(\d+))/\S*", line):
                self.entrance, self.base, self.port = found.group(0), found.group(1), int(found.group(2))
                return
        raise AssertionError("ecbm serve printed no address")

    def kill(self) -> None:
        """End it without a goodbye."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def served(made: Path, folder: Path, **given: Any) -> Iterator[Served]:
    """A copy of a workspace, served."""
    running = Served(Path(shutil.copytree(made, folder / made.name)), **given)
    try:
        yield running
    finally:
        running.stop()


def launch(playwright: Any, *arguments: str) -> Any:
    """The browser of the machine; without one the test is skipped, and says so."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium on this machine: the page's tests need a real browser (apt-get install chromium)")
    return playwright.chromium.launch(executable_path=found, args=[*ARGUMENTS, *arguments])


class Visitor:
    """Somebody at a browser of their own: records what the page asks for and what it complains about."""

    def __init__(
        self, browser: Any, running: Served, entrance: str | None = None, person: str | None = None
    ) -> None:
        self.served = running
        self.context = browser.new_context(viewport=LAPTOP)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(entrance or running.entrance)
        self.page.wait_for_selector(".overview")
        if person is not None:
            assert self.put("/api/person", {"name": person}).ok
            self.page.reload()
            self.page.wait_for_selector(".overview")

    def _hear(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def go(self, path: str, wait: str) -> Any:
        """Open a page and wait until a part of it is there."""
        self.page.goto(self.served.base + path)
        self.page.wait_for_selector(wait)
        self.drawn()
        return self.page

    def drawn(self) -> None:
        """Wait until what was asked for is on the screen: the page draws before the next frame."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def post(self, path: str, body: Any) -> Any:
        return self.context.request.post(self.served.base + path, data=body, headers={"Origin": self.served.base})

    def put(self, path: str, body: Any) -> Any:
        return self.context.request.put(self.served.base + path, data=body, headers={"Origin": self.served.base})

    def get(self, path: str) -> Any:
        return self.context.request.get(self.served.base + path).json()

    def invite(self) -> str:
        """An address that opens another browser."""
        address: str = self.post("/api/invitations", {}).json()["address"]
        return address

    def nothing_staged(self) -> None:
        self.post("/api/staged/take-back", {"everything": True})
        self.page.evaluate("localStorage.clear()")

    def staged(self) -> int:
        """How many things are staged; -1 while the server is still opening the workspace."""
        total: int = self.get("/api/state").get("staged", {}).get("total", -1)
        return total

    def leave_when_suspicious_labels_are_known(self) -> None:
        self.eventually(lambda: self.get("/api/state")["suspicious"] is not None, 60)
        self.context.close()

    def eventually(self, question: Any, seconds: float = 10.0) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not question():
            assert time.monotonic() < end, "did not come true"
            self.page.wait_for_timeout(50)
