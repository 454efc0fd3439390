"""History: versions as a line, any two compared, the report and the export of one."""

from __future__ import annotations

import io
import shutil
import uuid
import zipfile
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from ecbm.errors import InputError
from ecbm.show.serve import changes
from ecbm.show.serve.certificates import certificate_of_summary
from ecbm.show.serve.filters import query_of
from ecbm.show.serve.lineage import ancestors, state_of, undone
from ecbm.show.serve.moving import waited
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.previewing import WaitQuery
from ecbm.show.serve.reports import report_page
from ecbm.show.serve.staging import mine_of
from ecbm.show.serve.state import refuse_unknown
from ecbm.show.serve.tiles import ref_of
from ecbm.show.serve.words import for_people, label_words

if TYPE_CHECKING:
    from ecbm.show.serve.comparing import Side
    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_MOST_EXPORTS = 4
_MOST_EXAMPLES = 8


@router.get("/api/history")
def history(
    bench: BenchNeed,
    person: PersonNeed,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    before: Annotated[int | None, Query(ge=0, le=10**9)] = None,
) -> changes.History:
    """Versions, newest first."""
    snapshot = bench.current()
    everything = bench.records.versions()
    shown = [one for one in everything if before is None or one.version < before][:limit]
    line = {one.version for one in ancestors(everything, snapshot.number)}
    back = undone(bench)
    mine = mine_of(bench, snapshot, person)
    rows = []
    for version, item in zip(shown, bench.records.described(shown, 10), strict=True):
        state = state_of(version, snapshot.number, line)
        summary = version.summary
        judged = summary.get("shape", {}).get("splits", {}).get(summary.get("split") or "val")
        gone = back.get(version.version) if state == "undone" else None
        rows.append(
            changes.VersionRow(
                version=version.version,
                parent=version.parent,
                kind=version.kind,
                words=for_people(str(summary.get("words", "")), snapshot.pictures),
                author=item["author"],
                reason=item["reason"],
                time=version.time,
                state=state,
                undone_by=None if gone is None else gone.get("author"),
                undone_at=None if gone is None else gone["time"],
                certified=certificate_of_summary(summary, judged),
                classes_changed=summary.get("class_predictions_changed"),
                classes_of=judged,
                method=summary.get("method"),
                query=query_of(changed=version.version),
                can_report=version.kept,
                can_export=version.kept and version.model is not None,
            )
        )
    return changes.History(
        version=snapshot.number,
        revision=mine.revision,
        total=len(everything),
        rows=rows,
        staged=mine.counts,
        can_undo=bench.can_undo(),
        can_redo=bench.can_redo(),
        ledger_hash=bench.records.ledger_hash(),
    )


def _side(bench: Bench, snapshot: Snapshot, number: int, split: str) -> Side:
    """A version's readings on the samples of a split."""
    from ecbm.show.serve.comparing import Side

    if number == snapshot.number:
        return Side(snapshot.data, snapshot.readings, snapshot.rows(split))
    other = bench.snapshot_of(number)
    return Side(other.data, other.readings, other.rows(split))


@router.get("/api/compare")
def compare(
    bench: BenchNeed,
    first: Annotated[int, Query(ge=0, le=10**9)],
    second: Annotated[int, Query(ge=0, le=10**9)],
) -> changes.Comparison:
    """Two versions on the validation pictures that both have."""
    from ecbm.show.serve.comparing import Pair, Side

    snapshot = bench.trained()
    split = snapshot.judged_split
    before, after = (_side(bench, snapshot, number, split) for number in (first, second))
    names = [[side.data.ids[row] for row in side.rows.tolist()] for side in (before, after)]
    place = dict(zip(names[1], after.rows.tolist(), strict=True))
    shared = [(row, place[name]) for name, row in zip(names[0], before.rows.tolist(), strict=True) if name in place]
    if not shared:
        raise InputError(f"versions {first} and {second} share no {split} picture; compare others")
    rows = np.array(shared, np.int64)
    pair = Pair(
        snapshot,
        Side(before.data, before.readings, rows[:, 0]),
        Side(after.data, after.readings, rows[:, 1]),
        split,
    )
    flips, counts = pair.flips()
    metrics, unchanged = pair.metrics()
    between = _between(bench, first, second)
    return changes.Comparison(
        first=first,
        second=second,
        words=for_people(f"{_said(before.data, after.data)} {pair.words(counts, 'changed')}.", snapshot.pictures),
        split=split,
        of=pair.of,
        metrics=metrics,
        unchanged_concepts=unchanged,
        flips=flips,
        flips_total=sum(counts.values()),
        becomes_right=counts["becomes_right"],
        becomes_wrong=counts["becomes_wrong"],
        stays_wrong=counts["stays_wrong"],
        labels=_labels(snapshot, before.data, after.data),
        people=sorted({one["author"] for one in between if one["author"]}),
        edits=len(between),
    )


def _between(bench: Bench, first: int, second: int) -> list[dict[str, Any]]:
    """Author and reason of the versions on the way from one to the other."""
    everything = bench.records.versions()
    lines = [{one.version: one for one in ancestors(everything, number)} for number in (first, second)]
    apart = [
        one for number, one in {**lines[0], **lines[1]}.items() if (number in lines[0]) != (number in lines[1])
    ]
    return [bench.describe(one) for one in apart]


def _said(before: Any, after: Any) -> str:
    from ecbm.edit.edit import Edit
    from ecbm.words import done

    if before.fingerprint == after.fingerprint:
        return "Between them no label was changed."
    if before.class_names != after.class_names:
        return "Between them the classes were changed."
    words = done(Edit.between(before, after).said_of(before))
    return f"Between them: {words}."


def _labels(snapshot: Snapshot, before: Any, after: Any) -> list[changes.LabelsCorrected]:
    """Labels that differ, by concept and direction, with examples."""
    found: dict[tuple[str, str, str], list[int]] = {}
    shared = [name for name in after.ids if name in before.rows_by_id]
    old_rows = [before.rows_by_id[name] for name in shared]
    new_rows = [after.rows_by_id[name] for name in shared]
    for name, concept in after.layout.by_name.items():
        own = before.layout.by_name.get(name)
        if own is None or own.values != concept.values:
            continue
        old = before.concepts[old_rows][:, list(own.columns)]
        new = after.concepts[new_rows][:, list(concept.columns)]
        differ = ~((old == new) | (old.isnan() & new.isnan())).all(1)
        for place in differ.nonzero().flatten().tolist():
            words = [label_words(c, c.value_of(v[place].tolist())) for c, v in ((own, old), (concept, new))]
            row = snapshot.data.rows_by_id.get(shared[place])
            found.setdefault((name, *words), []).append(-1 if row is None else row)
    titles = {name: info.title for name, info in snapshot.info_by_name.items()}
    return [
        changes.LabelsCorrected(
            title=titles.get(name, name),
            concept=name,
            before=old_words,
            after=new_words,
            count=len(rows),
            examples=[ref_of(snapshot, row) for row in rows if row >= 0][:_MOST_EXAMPLES],
        )
        for (name, old_words, new_words), rows in sorted(found.items(), key=lambda pair: -len(pair[1]))
    ]


@router.get(
    "/api/report",
    response_class=HTMLResponse,
    responses={200: {"content": {"text/html": {}}, "description": "The report, to read and print."}},
)
def report(bench: BenchNeed, version: Annotated[int, Query(ge=0, le=10**9)]) -> HTMLResponse:
    """The report of a version."""
    return report_page(bench, version)


# -- export ----------------------------------------------------------------------------------------------


@router.post("/api/exports", status_code=202)
def export(bench: BenchNeed, person: PersonNeed, given: changes.ExportRequest, wait: WaitQuery = 0) -> changes.Job:
    """Export a version as a zip, as a job. That it was exported is recorded."""
    bench.records.version(given.version)

    def run(task: Task) -> str:
        task.at("Writing the model and its card")
        task.version = given.version
        folder = bench.folder / "exports" / f"workbench-{uuid.uuid4().hex[:8]}"
        folder.parent.mkdir(exist_ok=True)
        reason = "downloaded from the workbench"
        try:
            bench.another_workspace().export(folder, given.version, onnx=given.onnx, reason=reason, author=person)
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.iterdir()):
                    archive.write(path, f"{bench.name}-version-{given.version}/{path.name}")
            task.outcome = out.getvalue()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for old in [one for one in bench.jobs.all() if one.kind == "export" and one.outcome][:-_MOST_EXPORTS]:
            old.outcome = None
        return f"/api/exports/{task.id}"

    return waited(bench.jobs.start("export", person, run), wait)


@router.get(
    "/api/exports/{job}",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}, "description": "The zip."}},
)
def download(bench: BenchNeed, job: str) -> Response:
    """The zip of an export."""
    task = bench.jobs.get(job)
    if task is None or task.kind != "export" or not task.outcome:
        raise refuse_unknown("export", job)
    safe = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in bench.name)
    name = f"{safe}-version-{task.version}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(task.outcome, media_type="application/zip", headers=headers)
