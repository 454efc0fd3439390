"""Training labels behind a prediction: which ones hold the score of a class up, and which pull it down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.previewing import WaitQuery
from ecbm.show.serve.schemas import Behind, BehindView
from ecbm.show.serve.tiles import thumb_address
from ecbm.show.serve.words import label_words

if TYPE_CHECKING:
    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_MOST = 6
_MOST_KEPT = 2000


@router.get("/api/behind")
def behind(
    bench: BenchNeed,
    person: PersonNeed,
    id: Annotated[str, Query(max_length=500)],
    class_name: Annotated[str | None, Query(max_length=500)] = None,
    wait: WaitQuery = 0,
) -> BehindView:
    """The training labels that hold a class of a picture up most; computed in the background on first need."""
    snapshot = bench.trained()
    row = snapshot.data.row(id)
    number = snapshot.data.predicts_number
    if class_name is not None and not number:
        snapshot.data.class_index(class_name)
    name = snapshot.data.class_names[0] if number else class_name or str(snapshot.predicted_text(row))
    found: dict[tuple[str, str], list[Behind]] = snapshot.kept.setdefault("behind", {})
    if (id, name) not in found:
        task = _started(bench, snapshot, person, id, name)
        if wait:
            task.finished.wait(wait)
        if (id, name) not in found:
            words = task.problem.what if task.problem is not None else "Tracing the labels …"
            job = None if task.problem is not None else task.id
            return BehindView(available=False, words=words, job=job, class_name=name, labels=[])
    what = "the error would rise" if number else f"less sure of {name} the model would be"
    words = f"By how much {what} if the label were turned round (difference of the loss of this one picture)."
    return BehindView(available=True, words=words, class_name=name, labels=found[id, name])


def _started(bench: Bench, snapshot: Snapshot, person: str, sample: str, name: str) -> Task:
    """The job that traces one prediction; asked again while it runs, it is the same one."""
    jobs: dict[tuple[str, str], Task] = snapshot.kept.setdefault("behind jobs", {})
    known = jobs.get((sample, name))
    if known is None or known.state in ("failed", "cancelled"):
        while len(jobs) >= _MOST_KEPT:
            jobs.pop(next(iter(jobs)))
        known = bench.jobs.start("behind", person, lambda task: _trace(snapshot, sample, name, task), "tracing")
        jobs[sample, name] = known
    return known


def _trace(snapshot: Snapshot, sample: str, name: str, task: Task) -> str:
    from ecbm.verify.influence.asking import Influence

    task.version = snapshot.number
    task.at("Tracing the labels")
    editor, _ = snapshot.open_editor()
    with snapshot.editing:
        if "influence" not in snapshot.kept:
            snapshot.kept["influence"] = Influence(editor)
        label = None if snapshot.data.predicts_number else name
        frame = snapshot.kept["influence"].table("labels", sample, loss="class", label=label, top=_MOST)
    rows = [row for row in frame.to_dict("records") if row["change"] == row["change"]]
    rows.sort(key=lambda row: -float(row["change"]))
    labels = [_shown(snapshot, row) for row in rows[:_MOST]]
    found: dict[tuple[str, str], list[Behind]] = snapshot.kept.setdefault("behind", {})
    while len(found) >= _MOST_KEPT:
        found.pop(next(iter(found)))
    found[sample, name] = labels
    return "/api/behind"


def _shown(snapshot: Snapshot, row: dict[str, Any]) -> Behind:
    sample, concept = str(row["id"]), str(row["concept"])
    place = snapshot.data.rows_by_id[sample]
    found = snapshot.data.layout.by_name[concept]
    value = found.value_of([float(snapshot.data.concepts[place, column]) for column in found.columns])
    return Behind(
        id=sample,
        thumb=thumb_address(snapshot, place),
        concept=concept,
        title=snapshot.info_by_name[concept].title,
        label_words=label_words(found, value),
        adds=float(row["change"]),
    )
