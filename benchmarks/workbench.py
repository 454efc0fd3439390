"""How fast the workbench answers: several people clicking at once on a workspace of 10,000 pictures.

    python benchmarks/workbench.py --pictures 10000 --users 8 --seconds 120

The server runs in a process of its own; its memory is read from the system. Pictures are random drawings behind a
frozen pretrained network (``--backbone convnet``: a small one that was trained for an epoch): what is measured is
the server, not the model.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import torch

import ecbm

CONCEPTS = [f"wing={name}" for name in ("blue", "green", "red", "brown", "grey")] + [f"mark{i}" for i in range(16)]

# What people do, and how often one thing beside another.
OFTEN = {
    "overview": 1, "grid": 3, "similar": 1, "sample": 3, "try": 5, "question": 3, "answer": 4, "queue": 2,
    "concepts": 1, "history": 1,
}  # fmt: skip


def workspace(folder: Path, count: int, backbone: str, size: int = 32, seed: int = 0) -> None:
    """Pictures whose concepts follow from their colours, and a model of them."""
    draw = torch.Generator().manual_seed(seed)
    base = torch.rand(count, 3, 4, 4, generator=draw)
    pictures = torch.nn.functional.interpolate(base, (size, size), mode="bilinear")
    pictures = (pictures * 255).byte()
    flat = base.flatten(1) - 0.5
    scores = flat @ torch.randn(flat.shape[1], len(CONCEPTS), generator=draw)
    concepts = (scores > 0).float()
    labels = (scores @ torch.randn(len(CONCEPTS), 8, generator=draw)).argmax(1)
    wrong = torch.rand(concepts.shape, generator=draw) < 0.02
    concepts = torch.where(wrong, 1 - concepts, concepts)
    splits = (["train"] * 7 + ["val"] + ["test"] * 2) * (count // 10 + 1)
    data = ecbm.Dataset(
        [f"bird-{row:05d}" for row in range(count)], pictures, concepts, labels, CONCEPTS,
        [f"class {number}" for number in range(8)], splits[:count],
    )  # fmt: skip
    frozen = {"preprocessing": {"size": 2 * size}} if backbone == "pretrained" else {"epochs": 1, "batch_size": 256}
    recipe = ecbm.Recipe(backbone=backbone, **frozen)
    ecbm.Workspace.create(folder, data, recipe).train()


class Clicks:
    """What was asked, and how long each answer took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.errors: list[str] = []
        self.lock = threading.Lock()

    def ask(
        self, client: httpx.Client, kind: str, method: str, path: str, **given: object
    ) -> httpx.Response | None:
        started = time.perf_counter()
        try:
            reply = client.request(method, path, **given)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            with self.lock:
                self.errors.append(f"{kind}: {error!r}")
            return None
        with self.lock:
            self.seconds.setdefault(kind, []).append(time.perf_counter() - started)
            if reply.status_code >= 400:
                self.errors.append(f"{kind}: {reply.status_code} {reply.text[:200]}")
        return reply


def one_person(
    address: str, token: str, number: int, count: int, until: float, clicks: Clicks, pause: float
) -> None:
    """Looks around, answers, tries values and previews, as a person does, with pauses."""
    choose = random.Random(number)
    with httpx.Client(base_url=address, headers={"origin": address}, timeout=60, follow_redirects=True) as client:
        client.get(token)
        client.put("/api/person", json={"name": f"person {number}"})
        while time.monotonic() < until:
            sample = f"bird-{choose.randrange(count):05d}"
            concept = choose.choice(CONCEPTS)
            kind = choose.choices(list(OFTEN), list(OFTEN.values()))[0]
            if kind == "overview":
                clicks.ask(client, kind, "GET", "/api/overview")
            elif kind == "grid":
                params = {"split": "train", "concept": concept, "offset": choose.randrange(3000), "limit": 100}
                reply = clicks.ask(client, kind, "GET", "/api/pictures", params=params)
                for tile in (reply.json().get("items", []) if reply is not None else [])[:12]:
                    clicks.ask(client, "thumbnail", "GET", tile["thumb"])
            elif kind == "similar":
                clicks.ask(client, kind, "GET", "/api/pictures", params={"near": sample, "limit": 60})
            elif kind == "sample":
                clicks.ask(client, kind, "GET", "/api/sample", params={"id": sample})
            elif kind == "try":
                body = {"id": sample, "values": {concept: float(choose.random() > 0.5)}}
                clicks.ask(client, kind, "POST", "/api/try", json=body)
            elif kind == "question":
                clicks.ask(client, kind, "GET", "/api/question", params={"id": sample, "concept": concept})
            elif kind == "answer":
                said = {"id": sample, "concept": concept, "answer": choose.choice(("present", "absent", "unsure"))}
                clicks.ask(client, kind, "POST", "/api/answers", json={"answers": [said]})
            elif kind == "queue":
                clicks.ask(client, kind, "GET", "/api/queue", params={"limit": 60, "offset": choose.randrange(50)})
            else:
                clicks.ask(client, kind, "GET", f"/api/{kind}")
            time.sleep(choose.expovariate(1 / pause))


def memory(process: int) -> float:
    """Resident megabytes of a process."""
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--backbone", default="pretrained")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between two clicks of a person")
    parser.add_argument("--workspace", type=Path, help="kept between runs; made if it does not exist")
    given = parser.parse_args()
    folder = given.workspace or Path(tempfile.mkdtemp()) / "ward"
    if not folder.exists():
        workspace(folder, given.pictures, given.backbone)
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ecbm.show.cli", "serve", folder, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.match(r"open (http://[^/]+)(/enter\S+)", process.stdout.readline())
        assert found is not None
        address, token = found[1], found[2]
        print(f"accepts requests after {time.perf_counter() - started:.2f} s")
        client = httpx.Client(base_url=address, headers={"origin": address}, timeout=600, follow_redirects=True)
        first = time.perf_counter()
        client.get(token)
        print(f"first page after another {time.perf_counter() - first:.2f} s")
        while not client.get("/api/state").json()["ready"]:
            time.sleep(0.05)
        print(f"model read after {time.perf_counter() - started:.2f} s")
        while not client.get("/api/queue").json()["ready"]:
            time.sleep(0.5)
        print(f"suspicious labels after {time.perf_counter() - started:.2f} s")
        tokens = [
            client.post("/api/invitations").json()["address"].removeprefix(address) for _ in range(given.users)
        ]
        before, clicks = memory(process.pid), Clicks()
        until = time.monotonic() + given.seconds
        people = [
            threading.Thread(
                target=one_person, args=(address, way, number, given.pictures, until, clicks, given.pause)
            )
            for number, way in enumerate(tokens)
        ]
        for person in people:
            person.start()
        for person in people:
            person.join()
        for kind, seconds in sorted(clicks.seconds.items()):
            low, high, top = np.percentile(seconds, [50, 95, 99]) * 1000
            print(f"{kind:10s} {len(seconds):6d}  median {low:6.1f} ms  95 % {high:6.1f} ms  99 % {top:6.1f} ms")
        every = [value for seconds in clicks.seconds.values() for value in seconds]
        print(f"all        {len(every):6d}  95 % {np.percentile(every, 95) * 1000:6.1f} ms")
        preview(client, clicks)
        print(f"errors {len(clicks.errors)} {clicks.errors[:3]}")
        print(f"memory {before:.0f} MB before, {memory(process.pid):.0f} MB after")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def preview(client: httpx.Client, clicks: Clicks) -> None:
    """How long a preview of a small edit takes."""
    client.put("/api/person", json={"name": "previewer"})
    version = client.get("/api/state").json()["version"]
    for place in range(5):
        said = {"id": f"bird-{10 * place:05d}", "concept": CONCEPTS[0]}
        label = client.get("/api/question", params=said).json()["label"]["label"]
        answered = said | {"answer": "absent" if label == 1 else "present"}
        client.post("/api/answers", json={"answers": [answered]})
        started = time.perf_counter()
        job = clicks.ask(client, "preview", "POST", "/api/previews", params={"wait": 30}, json={"version": version})
        assert job is not None
        client.get(job.json()["result"])
        print(f"preview of {place + 1} labels: {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
