"""Many processes editing at once, and single bytes flipped."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from pathlib import Path

from workspace_kit import copy, edited_workspace, trained_workspace

import ecbm
from ecbm.errors import EcbmError
from ecbm.keep.checking import check_workspace
from ecbm.keep.transaction import MovedOnError
from ecbm.keep.workspace import Workspace


def _editor(folder: Path, worker: int, workers: int, edits: int) -> None:
    """Make ``edits`` edits, each as often as it takes."""
    workspace = Workspace(folder)
    for number in range(edits):
        sample = f"s{(worker + number * workers) % 30}"
        edit = ecbm.Edit(
            correct_concepts=[(sample, "round", (1 + worker * edits + number) / (2 + workers * edits))]
        )
        deadline = time.monotonic() + 600
        while True:
            try:
                workspace.edit(edit, "exact", author=f"worker{worker}", reason=f"edit {worker}/{number}")
                break
            except MovedOnError:
                if time.monotonic() > deadline:
                    raise


def run_editors(folder: Path, processes: int, edits: int) -> tuple[int, list[str]]:
    """Let processes make ``edits`` edits together; returns how many are in the ledger, and what is wrong."""
    workspace = trained_workspace(folder)
    children = []
    for worker in range(processes):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _editor(folder, worker, processes, edits // processes)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    failures = []
    # Meanwhile a third party looks: what it sees is always sound.
    while children:
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                failures += [f"editor {child} failed"] if status else []
        seen = check_workspace(folder)
        failures += [f"while editing: {problem}" for problem in seen["problems"]]
        time.sleep(0.5)
    wanted = {f"edit {worker}/{number}" for worker in range(processes) for number in range(edits // processes)}
    versions = workspace.versions()
    found = [item["reason"] for item in workspace.described(versions) if item["kind"] == "edit"]
    if sorted(found) != sorted(wanted):
        failures.append(f"{len(wanted - set(found))} edits lost, {len(found) - len(set(found))} made twice")
    if any(v.parent != v.version - 1 for v in versions if v.version):
        failures.append("versions do not follow one another")
    check = check_workspace(folder)
    failures += [str(problem) for problem in check["problems"]]
    return len(found), failures


def run_flips(folder: Path, count: int | None, seed: int = 0) -> tuple[int, list[str]]:
    """Flip one bit of one byte of the records, the seal or an array file; returns how many, and those not found.

    ``count`` of them at random; ``None`` takes every byte of the records and of all arrays.
    """
    made = edited_workspace(folder / "template")
    work = copy(made.folder, folder / "flipped")
    files = [work / "records.sqlite", work / "seal", *(p for p in (work / "objects").rglob("*") if p.is_file())]
    places = [(path, at) for path in files for at in range(path.stat().st_size)]
    draw = random.Random(seed)
    if count is not None:
        records = [place for place in places if place[0] == files[0]]
        others = [place for place in places if place[0] != files[0]]
        places = draw.sample(records, count // 2) + draw.sample(others, count - count // 2)
    missed = []
    for path, at in places:
        content = path.read_bytes()
        broken = bytearray(content)
        broken[at] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(broken))
        try:
            if check_workspace(work)["ok"]:
                missed.append(f"{path.relative_to(work)}, byte {at}")
        except EcbmError:
            pass  # refused altogether: found, too
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            missed.append(f"{path.relative_to(work)}, byte {at}: {type(error).__name__}: {error}")
        path.write_bytes(content)
        for name in ("records.sqlite-wal", "records.sqlite-shm"):
            (work / name).unlink(missing_ok=True)
    if not check_workspace(work)["ok"]:
        missed.append("the restored workspace is not sound")
    return len(places), missed
