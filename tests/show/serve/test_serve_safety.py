"""Nothing staged is lost by a kill or a full disk; an erasure leaves nothing of it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import ecbm
from ecbm.keep import durable
from ecbm.keep.staged import ErasedMeanwhileError, NewItem, StagedItems
from ecbm.show.serve import queue
from ecbm.show.serve.snapshot import Snapshot
from serve_kit import Workbench, answer, committed, done, opposite, workbench

CONCEPT = "round"


def _serving(folder: Path) -> tuple[subprocess.Popen[str], httpx.Client]:
    """A server in a process of its own, and a browser that it has let in."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ecbm.show.cli",
            "serve",
            str(folder),
            "--port",
            "0",
            "--no-browser",
            "--author",
            "anna",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+)(/enter\?token=\S+)\n", line)
    assert found is not None, line
    client = httpx.Client(base_url=found[1], headers={"origin": found[1]}, timeout=60, follow_redirects=True)
    assert client.get(found[2]).status_code == 200
    return process, client


def test_a_killed_server_has_lost_no_answer(table_folder: Path) -> None:
    process, client = _serving(table_folder)
    try:
        ids = ecbm.Workspace(table_folder).data().split("train").ids[:5]
        for sample in ids:
            answer(client, sample, CONCEPT, opposite(client, sample, CONCEPT))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process, client = _serving(table_folder)
    try:
        state = client.get("/api/state").json()
        while not state["ready"]:
            state = client.get("/api/state").json()
        assert (state["person"], state["staged"]["total"]) == ("anna", 5)
        assert ecbm.Workspace(table_folder).check()["ok"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def _full(operation: str, what: str) -> None:
    if operation in ("write", "sqlite insert", "sqlite commit", "create"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_and_what_was_staged_is_safe(table: Workbench) -> None:
    client = table.browser("anna")
    first, second = table.bench.current().data.split("train").ids[:2]
    answer(client, first, CONCEPT, opposite(client, first, CONCEPT))
    said = {"id": second, "concept": CONCEPT, "answer": opposite(client, second, CONCEPT)}
    durable.watch(_full)
    try:
        reply = client.post("/api/answers", json={"answers": [said]})
        assert reply.status_code == 507
        assert reply.json()["kind"] == "full_disk"
        assert "disk is full" in reply.json()["what"]
        job = done(client, "/api/commits", {"version": 1, "reason": "x"})
        assert (job["state"], job["problem"]["kind"]) == ("failed", "full_disk")
    finally:
        durable.watch(None)
    state = client.get("/api/state").json()
    assert (state["version"], state["staged"]["total"]) == (1, 1)
    assert ecbm.Workspace(table.bench.folder).check()["ok"]
    committed(client, 1)


@pytest.mark.parametrize("by_command_line", [False, True])
def test_an_erasure_leaves_nothing_of_what_was_staged_about_them(table: Workbench, by_command_line: bool) -> None:
    anna, jonas = table.browser("anna"), table.browser("jonas")
    folder = table.bench.folder
    gone, stays = table.bench.current().data.split("train").ids[10:12]
    for client in (anna, jonas):
        answer(client, gone, CONCEPT, opposite(client, gone, CONCEPT))
        answer(client, stays, CONCEPT, opposite(client, stays, CONCEPT))
        client.post("/api/staged", json={"item": {"kind": "add_concept", "concept": "calm"}})
        answer(client, gone, "calm", "present")
    assert gone.encode() in _bytes_of(folder, "staged.sqlite")
    if by_command_line:
        ecbm.Workspace(folder).erase([gone], reason="withdrew consent", author="otto")
        table.bench.refresh()
    else:
        plan = anna.post("/api/forget/plan", json={"ids": [gone]}).json()
        assert plan["staged_lost"] == 4
        body = {
            "version": 1,
            "ids": [gone],
            "method": "exact",
            "reason": "withdrew consent",
            "confirm": plan["confirm"],
        }
        job = done(anna, "/api/forget", body)
        assert job["state"] == "done", job
        reply = anna.get(job["result"])
        assert reply.headers["clear-site-data"] == '"cache"'
        certificate = reply.json()
        assert certificate["ok"], certificate["audit"]
        assert gone not in reply.text
        assert certificate["erased"] == 1
    assert gone.encode() not in _bytes_of(folder, "staged.sqlite")
    assert {item.sample for item in StagedItems(folder).items()} == {stays, ""}
    for client in (anna, jonas):
        assert client.get("/api/state").json()["staged"]["labels"] == 1
        assert client.get("/api/sample", params={"id": gone}).status_code == 404
    assert ecbm.Workspace(folder).check()["ok"]


def _bytes_of(folder: Path, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}*")))


def test_an_erasure_needs_the_words_and_a_reason_without_an_id(table: Workbench) -> None:
    client = table.browser("anna")
    sample = table.bench.current().data.split("train").ids[10]
    plan = client.post("/api/forget/plan", json={"ids": [sample, "nobody"]}).json()
    assert (plan["unknown"], plan["confirm"]) == (["nobody"], "erase 1 record")
    assert any("backups" in words for words in plan["not_reached"])
    body = {"version": 1, "ids": [sample], "method": "exact", "reason": "withdrew consent"}
    body["confirm"] = "erase 1 recor"
    assert client.post("/api/forget", json=body).status_code == 422
    assert client.post("/api/forget", json=body | {"confirm": "erase 1 record", "version": 0}).status_code == 409
    job = done(client, "/api/forget", body | {"confirm": "erase 1 record", "reason": f"{sample} withdrew"})
    assert (job["state"], job["problem"]["kind"]) == ("failed", "input")
    assert table.version == 1


def test_an_answer_that_comes_after_an_erasure_is_not_kept(table_folder: Path) -> None:
    workspace = ecbm.Workspace(table_folder)
    sample = workspace.data().split("train").ids[10]
    staged = StagedItems(table_folder)
    staged.put("anna", [NewItem("label", sample, CONCEPT, "present", 1.0, 0.0)], 1, erasures=0)
    workspace.erase([sample], reason="withdrew consent")
    with pytest.raises(ErasedMeanwhileError):
        staged.put("anna", [NewItem("label", sample, CONCEPT, "present", 1.0, 0.0)], 1, erasures=0)
    assert staged.items() == []


def test_a_list_that_was_being_made_during_an_erasure_is_not_kept(
    table: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = table.bench.current().data.split("train").ids[10]
    goes_on = threading.Event()

    def slowly(snapshot: Snapshot, *_: object) -> list[queue.Suspicion]:
        goes_on.wait(60)
        return [queue.Suspicion(gone, CONCEPT, 1.0, 0.9)]

    monkeypatch.setattr(queue, "find", slowly)
    before = table.bench.current()
    for path in (table.bench.folder / "cache").glob("suspicious-*"):
        path.unlink()
    for name in ("suspicious", "suspicious job"):
        before.kept.pop(name, None)
    assert queue.suspicious(table.bench, before) is None
    ecbm.Workspace(table.bench.folder).erase([gone], reason="withdrew consent")
    goes_on.set()
    job = before.kept["suspicious job"]
    while "suspicious" not in before.kept and job.state in ("waiting", "running"):
        time.sleep(0.01)
    files = [path for path in table.bench.folder.rglob("*") if path.is_file()]
    assert not [path.name for path in files if gone.encode() in path.read_bytes()]
    assert not list((table.bench.folder / "cache").glob("suspicious-*"))


def test_an_erasure_that_was_stopped_is_finished_with_what_is_staged(table_folder: Path) -> None:
    workspace = ecbm.Workspace(table_folder)
    sample = workspace.data().split("train").ids[10]
    staged = StagedItems(table_folder)
    staged.put("anna", [NewItem("label", sample, CONCEPT, "present", 1.0, 0.0)], 1, erasures=0)

    def stop(operation: str, what: str) -> None:
        if operation == "sqlite delete" and what == "staged.sqlite":
            raise OSError(errno.EIO, "stopped")

    durable.watch(stop)
    try:
        with pytest.raises(OSError, match="stopped"):
            workspace.erase([sample], reason="withdrew consent")
    finally:
        durable.watch(None)
    assert ecbm.Workspace(table_folder).check()["ok"]
    assert staged.items() == []
    assert sample.encode() not in _bytes_of(table_folder, "staged.sqlite")


def test_a_workspace_without_a_model_says_so_and_can_train(tmp_path: Path) -> None:
    from kit import tabular

    ecbm.Workspace.create(tmp_path / "new", tabular(60), ecbm.Recipe(backbone="linear"))
    with workbench(tmp_path / "new") as found:
        client = found.browser("anna")
        assert not client.get("/api/state").json()["trained"]
        reply = client.get("/api/overview")
        assert (reply.status_code, reply.json()["kind"]) == (409, "no_model")
        assert client.get("/api/pictures").status_code == 200
        job = done(client, "/api/train", {})
        assert (job["state"], job["version"]) == ("done", 1)
        assert client.get("/api/overview").status_code == 200
