"""A workbench to test: the application in this process, and browsers that have been let in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from ecbm.show.serve.app import make_app
from ecbm.show.serve.security import Doorkeeper
from ecbm.show.serve.state import Bench

PORT = 8765
ADDRESS = f"http://127.0.0.1:{PORT}"


class Workbench:
    """A running application and the ways into it."""

    def __init__(self, bench: Bench, door: Doorkeeper, client: TestClient) -> None:
        self.bench, self.door, self.client = bench, door, client

    def stranger(self) -> httpx.Client:
        """A browser that has not been let in."""
        app = self.client.app
        return TestClient(app, base_url=ADDRESS, headers={"origin": ADDRESS}, raise_server_exceptions=False)

    def browser(self, person: str) -> httpx.Client:
        """A browser of somebody."""
        client = self.stranger()
        assert client.get("/enter", params={"token": self.door.new_token()}).status_code == 200
        assert client.put("/api/person", json={"name": person}).status_code == 200
        return client

    @property
    def version(self) -> int:
        return self.bench.current().number


@contextmanager
def workbench(folder: Path) -> Iterator[Workbench]:
    """The workbench of a workspace, ready to be asked."""
    bench, door = Bench(str(folder), person="anna"), Doorkeeper(PORT, person="anna")
    app = make_app(bench, door)
    with TestClient(app, base_url=ADDRESS) as client:
        bench.current()
        yield Workbench(bench, door, client)


def answer(client: httpx.Client, sample: str, concept: str | None, said: str, value: Any = None) -> dict[str, Any]:
    """Answer one question."""
    given = {"id": sample, "concept": concept, "answer": said, "value": value}
    reply = client.post("/api/answers", json={"answers": [given]})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def done(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Start a job and wait for its end."""
    reply = client.post(path, params={"wait": 30}, json=body)
    assert reply.status_code == 202, reply.text
    job: dict[str, Any] = reply.json()
    for _ in range(600):
        if job["state"] not in ("waiting", "running", "writing"):
            return job
        time.sleep(0.05)
        job = client.get(f"/api/jobs/{job['id']}").json()
    raise AssertionError(job)


def committed(client: httpx.Client, version: int, reason: str = "second reading", **given: Any) -> dict[str, Any]:
    """Commit what is staged."""
    job = done(client, "/api/commits", {"version": version, "reason": reason, **given})
    assert job["state"] == "done", job
    return job


def opposite(client: httpx.Client, sample: str, concept: str) -> str:
    """The answer that differs from the label."""
    detail = client.get("/api/question", params={"id": sample, "concept": concept}).json()
    return "absent" if detail["label"]["label"] == 1 else "present"
