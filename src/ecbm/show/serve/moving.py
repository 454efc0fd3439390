"""Jobs for the page, undo and redo, and what the second of two people is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from ecbm.keep.transaction import MovedOnError
from ecbm.show.serve import changes
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.schemas import Problem
from ecbm.show.serve.staged_view import item_view
from ecbm.show.serve.staging import Mine, mine_of
from ecbm.show.serve.state import RefusedError, refuse_unknown
from ecbm.words import counted, local_time, summary_words

if TYPE_CHECKING:
    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["moved_on", "router", "waited"]

router = APIRouter()
_MOST_DROPPED = 50


def moved_on(bench: Bench, snapshot: Snapshot, mine: Mine) -> changes.MovedOn:
    """Who moved the model on, and what that does to the staged edit."""
    # Who moved the model on is in the ledger's last entry: somebody may have gone back to a version of another one.
    last = next((one for one in bench.records.entries(20) if one["kind"] != "export"), {})
    author = last.get("author")
    verbs = {"undo": "went back to", "redo": "went forward to", "erase": "erased somebody; now it is"}
    did = f"{author or 'Somebody'} {verbs.get(str(last.get('kind')), 'committed')} version {snapshot.number}"
    when = local_time(str(last.get("time", snapshot.version.time)))[11:16]
    of = len(mine.staged) + len(mine.conflicts)
    fits = len(mine.staged)
    kept = f" {fits} of your {counted(of, 'staged item')} still fit and were carried over." if of else ""
    return changes.MovedOn(
        kind="moved_on",
        what=f"{did} at {when}.{kept}",
        todo="Look at the preview again, then commit.",
        version=snapshot.number,
        author=author,
        time=str(last.get("time", snapshot.version.time)),
        reason=last.get("reason"),
        words=summary_words(snapshot.version.summary),
        fits=fits,
        of=of,
        dropped=[item_view(snapshot, one) for one in mine.conflicts[:_MOST_DROPPED]],
    )


def waited(task: Task, seconds: float) -> changes.Job:
    """The job, after waiting for its end for a while."""
    if seconds:
        task.finished.wait(seconds)
    return task.shown()


@router.get("/api/jobs")
def jobs(bench: BenchNeed) -> list[changes.Job]:
    """Jobs that wait, run, or have just ended."""
    return [task.shown() for task in bench.jobs.all()]


@router.get("/api/jobs/{job}")
def job(bench: BenchNeed, job: str) -> changes.Job:
    """One job."""
    return _task(bench, job).shown()


@router.post("/api/jobs/{job}/cancel")
def cancel(bench: BenchNeed, job: str) -> changes.Job:
    """Cancel a job. One that writes or has ended goes on; its state says so."""
    task = _task(bench, job)
    task.cancel()
    return task.shown()


def _task(bench: Bench, name: str) -> Task:
    task = bench.jobs.get(name)
    if task is None:
        raise refuse_unknown("job", name)
    return task


@router.post("/api/undo")
def undo(bench: BenchNeed, person: PersonNeed, given: changes.Move) -> changes.Moved:
    """Go back to the parent of the current version, bit for bit."""
    return _move(bench, person, given, "undo")


@router.post("/api/redo")
def redo(bench: BenchNeed, person: PersonNeed, given: changes.Move) -> changes.Moved:
    """Take the last undo back, bit for bit."""
    return _move(bench, person, given, "redo")


def _move(bench: Bench, person: str, given: changes.Move, verb: str) -> changes.Moved:
    snapshot = bench.trained()
    if snapshot.number != given.version:
        raise RefusedError(409, moved_on(bench, snapshot, mine_of(bench, snapshot, person)))
    workspace = bench.workspace
    try:
        move = workspace.undo if verb == "undo" else workspace.redo
        number = move(reason=given.reason, author=person, expect=given.version)
    except MovedOnError:
        bench.refresh()
        now = bench.trained()
        raise RefusedError(409, moved_on(bench, now, mine_of(bench, now, person))) from None
    bench.refresh()
    words = summary_words(bench.head.summary)
    return changes.Moved(version=number, from_version=given.version, words=words)


@router.post("/api/train", status_code=202)
def train(bench: BenchNeed, person: PersonNeed) -> changes.Job:
    """Train the first model, as a job."""
    snapshot = bench.current()
    if snapshot.trained:
        raise RefusedError(409, _trained(snapshot.number))

    def run(task: Task) -> str:
        task.at("Training")
        task.version = bench.another_workspace().train(author=person, expect=snapshot.number)
        bench.refresh()
        return "/api/overview"

    return bench.jobs.start("train", person, run).shown()


def _trained(number: int) -> Problem:
    return Problem(
        kind="busy", what=f"There is a model already: version {number}.", todo="Correct it, or look at it."
    )
