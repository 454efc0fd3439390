"""Preview and commit: what the staged edit would do, and doing it, with progress and a working cancel."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from ecbm.errors import InputError
from ecbm.keep.signature import Signature
from ecbm.keep.transaction import MovedOnError
from ecbm.show.serve import changes
from ecbm.show.serve.jobs import Task
from ecbm.show.serve.moving import moved_on, waited
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.previews import Made
from ecbm.show.serve.staging import Mine, mine_of
from ecbm.show.serve.state import RefusedError, refuse_unknown

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["WaitQuery", "router"]

router = APIRouter()
WaitQuery = Annotated[float, Query(ge=0, le=30, description="Seconds to wait for the end before answering.")]


@router.post("/api/previews", status_code=202)
def post_preview(
    bench: BenchNeed, person: PersonNeed, given: changes.PreviewRequest, wait: WaitQuery = 0
) -> changes.Job:
    """What the staged edit would do, as a job."""
    _check(bench, person, given.version)

    def run(task: Task) -> str:
        made = _make(bench, person, given.version, given.method, given.budget, task)
        return f"/api/previews/{made.id}"

    return waited(bench.jobs.start("preview", person, run), wait)


@router.get("/api/previews/{preview}")
def get_preview(bench: BenchNeed, person: PersonNeed, preview: str) -> changes.Preview:
    """A preview that was made; whether it is still current is found out now."""
    made = bench.previews.get(preview)
    if made is None or made.person != person:
        raise refuse_unknown("preview", preview)
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    current = snapshot is made.snapshot and made.items == _numbers(mine)
    return _view(made, current, mine.revision)


def _numbers(mine: Mine) -> tuple[int, ...]:
    return tuple(one.item.item for one in mine.staged)


def _check(bench: Bench, person: str, version: int) -> None:
    """Refuse at once what a job would only find out later."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    if snapshot.number != version:
        raise RefusedError(409, moved_on(bench, snapshot, mine))
    if not mine.staged:
        raise InputError("nothing is staged; answer a question in the queue, or correct a label on a picture")


def _options(method: str, budget: float) -> dict[str, Any]:
    return {"budget": budget} if method == "auto" else {}


def _make(bench: Bench, person: str, version: int, method: str, budget: float, task: Task) -> Made:
    """Compose the staged edit and apply it in memory."""
    from ecbm.keep.actions import carry_out
    from ecbm.show.serve.compose import compose

    task.version = version
    task.at("Reading what is staged")
    bench.refresh()
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    if snapshot.number != version:
        task.problem = moved_on(bench, snapshot, mine)
        raise MovedOnError(task.problem.what)
    items = _numbers(mine)
    known = bench.previews.like((person, version, items, method, budget))
    if known is not None and known.snapshot is snapshot:
        return known
    edit = compose(snapshot.data, [one.item for one in mine.staged])
    if not edit:
        raise InputError("nothing is staged; answer a question in the queue, or correct a label on a picture")
    edit.check(snapshot.data)
    task.at("Preparing the model for edits")
    editor, _ = snapshot.open_editor()
    task.at({"exact": "Solving both heads", "auto": "Editing", "retrain": "Training anew"}[method])
    started = time.monotonic()
    with snapshot.editing:
        result, noise = carry_out(editor, edit, method, _options(method, budget))
    seconds = time.monotonic() - started
    task.at("Comparing predictions")
    snapshot.kept["seconds", method, budget if method == "auto" else 0] = seconds
    made = Made(task.id, person, snapshot, items, method, budget, edit, result, noise, seconds)
    bench.previews.put(made)
    return made


def _view(made: Made, current: bool, revision: int) -> changes.Preview:
    """A preview for the page; the comparison is computed once."""
    from ecbm.show.serve.certificates import certificate_of

    snapshot, report = made.snapshot, made.result.report
    key = ("preview", made.id)
    if key not in snapshot.kept:
        pair = _pair(made)
        snapshot.kept[key] = pair.flips(), pair.readings(), pair.metrics(), pair
    (flips, counts), (readings, changed, total), (metrics, unchanged), pair = snapshot.kept[key]
    notes = [str(note) for note in report.get("notes") or []]
    notes += [str(report["warning"])] if report.get("warning") else []
    notes += [f"Not covered: {name} ({why})" for name, why in (report.get("not_covered") or {}).items()]
    return changes.Preview(
        id=made.id,
        version=snapshot.number,
        revision=revision,
        current=current,
        method=made.method,  # type: ignore[arg-type]
        budget=made.budget,
        seconds=round(made.seconds, 3),
        words=pair.words(counts),
        split=pair.split,
        of=pair.of,
        becomes_right=counts["becomes_right"],
        becomes_wrong=counts["becomes_wrong"],
        stays_wrong=counts["stays_wrong"],
        flips=flips,
        flips_total=sum(counts.values()),
        readings_changed=changed,
        readings_of=total,
        readings=readings,
        metrics=metrics,
        unchanged_concepts=unchanged,
        certificate=certificate_of(report, snapshot.pictures),
        methods=_methods(snapshot),
        notes=notes,
        next_version=snapshot.workspace.versions(1)[0].version + 1,
        largest_change=pair.largest_change(),
    )


def _pair(made: Made) -> Any:
    """Before and after on the validation samples that both have."""
    from ecbm.show.serve.comparing import Pair, Side
    from ecbm.show.serve.snapshot import Readings

    snapshot, result = made.snapshot, made.result
    split = snapshot.judged_split
    part = result.data.split(split) if split in result.data.split_sizes else result.data.split("train")
    design = result.facts.validation
    features = design[:, :-1] if design is not None and len(design) == len(part) else result.model.features(part)
    place = {name: row for row, name in enumerate(part.ids)}
    rows = snapshot.rows(split)
    shared = [row for row in rows.tolist() if snapshot.data.ids[row] in place]
    after = np.array([place[snapshot.data.ids[row]] for row in shared], np.int64)
    return Pair(
        snapshot,
        Side(snapshot.data, snapshot.readings, np.array(shared, np.int64)),
        Side(part, Readings.of(result.model, features), after),
        split,
    )


def _methods(snapshot: Snapshot) -> list[changes.MethodChoice]:
    """The ways to carry an edit out, with the time they took or are expected to take."""
    took = snapshot.model.provenance.training.get("seconds")
    retrain = float(took) if isinstance(took, int | float) else None
    deep = not snapshot.model.recipe.is_linear and not snapshot.model.recipe.is_frozen
    exact = snapshot.kept.get(("seconds", "exact", 0))
    budget = 0.05
    auto = snapshot.kept.get(("seconds", "auto", budget))
    if auto is None and retrain is not None:
        auto = budget * retrain + (exact or 0.0) if deep else exact
    reader = "the picture reader stays as it is" if snapshot.pictures else "what comes before the concepts stays"
    return [
        changes.MethodChoice(
            method="exact", budget=None, title="Exact", seconds=exact,
            words=f"Both heads are solved to the end, certified; {reader}.",
        ),
        changes.MethodChoice(
            method="auto", budget=budget, title="Longer", seconds=auto,
            words=f"The best that {budget:.0%} of retraining's work can do, also inside the picture reader."
            if deep else "Here the same as exact: there is nothing else to learn.",
        ),
        changes.MethodChoice(
            method="retrain", budget=None, title="Retrain",
            seconds=snapshot.kept.get(("seconds", "retrain", 0), retrain),
            words="Training anew, from the beginning.",
        ),
    ]  # fmt: skip


@router.post("/api/commits", status_code=202)
def post_commit(
    bench: BenchNeed, person: PersonNeed, given: changes.CommitRequest, wait: WaitQuery = 0
) -> changes.Job:
    """Apply the staged edit and keep the result as a new version, as a job."""
    _check(bench, person, given.version)

    def run(task: Task) -> str:
        return _commit(bench, person, given, task)

    return waited(bench.jobs.start("commit", person, run), wait)


def _commit(bench: Bench, person: str, given: changes.CommitRequest, task: Task) -> str:
    from ecbm.keep.actions import keep_edit

    made = _make(bench, person, given.version, given.method, given.budget, task)
    snapshot = made.snapshot
    editor, recalled = snapshot.open_editor()
    task.write("Writing the new version")
    try:
        number = keep_edit(
            snapshot.workspace,
            (editor, snapshot.version, recalled),
            made.edit,
            made.result,
            given.method,
            _options(given.method, given.budget),
            noise=made.noise,
            signature=Signature(person, given.reason),
        )
    except MovedOnError:
        bench.refresh()
        now = bench.trained()
        task.problem = moved_on(bench, now, mine_of(bench, now, person))
        raise
    bench.staged.finish(person, made.items, number)
    task.version = number
    bench.refresh()
    return f"/api/compare?first={given.version}&second={number}"
