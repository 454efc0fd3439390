"""Forget somebody: what will be destroyed, typed confirmation, the erasure, and the audit afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from ecbm.errors import InputError, UnknownNameError
from ecbm.keep.ledger import now
from ecbm.show.serve import changes
from ecbm.show.serve.certificates import certificate_of
from ecbm.show.serve.moving import moved_on, waited
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.previewing import WaitQuery
from ecbm.show.serve.staging import mine_of
from ecbm.show.serve.state import RefusedError, refuse_unknown
from ecbm.show.serve.tiles import thumb_address
from ecbm.show.serve.words import for_people
from ecbm.words import counted, listed, readable_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
# A shorter id is found by chance in any file.
_SHORTEST_SEARCHED = 5
_BROWSERS = (
    "the caches of browsers that showed the pictures; this one is told to empty its own, others forget within a day"
)


def _words_to_type(snapshot: Snapshot, count: int) -> str:
    return f"erase {counted(count, 'picture' if snapshot.pictures else 'record')}".replace(",", "")


@router.post("/api/forget/plan")
def plan(bench: BenchNeed, given: changes.ForgetPlanRequest) -> changes.ForgetPlan:
    """What an erasure would destroy, what stays, what it cannot reach. Nothing is changed."""
    from ecbm.keep.erasure_plan import plan_erasure

    snapshot = bench.current()
    known, unknown = _known(bench, given.ids)
    if not known:
        return changes.ForgetPlan(
            version=snapshot.number, samples=[], unknown=unknown, concept_labels=0, of=len(snapshot.data),
            destroyed=[], stays=[], not_reached=[], methods=[], staged_lost=0, confirm="",
        )  # fmt: skip
    found = plan_erasure(bench.another_workspace(), known)
    rows = [snapshot.data.rows_by_id[name] for name in known if name in snapshot.data.rows_by_id]
    labels = int((snapshot.label_codes[rows] >= 0).sum()) if rows else 0
    lost = sum(item.sample in set(known) for item in bench.staged.items())
    kept = bench.staged.items()
    return changes.ForgetPlan(
        version=found["version"],
        samples=[_sample(snapshot, name, split) for name, split in found["samples"].items()],
        unknown=unknown,
        concept_labels=labels,
        of=len(snapshot.data),
        destroyed=_destroyed(snapshot, found, labels, lost),
        stays=[
            "A new version, made without them, as the only one",
            "That an erasure happened: when, by whom, why, how many. Not whose.",
            f"Answers and staged items about others: {len(kept) - lost}",
            "The chain of the history, which can still be verified",
        ],
        not_reached=[*_in_words(found["not_reached"], snapshot.pictures), *_downloads(bench), _BROWSERS],
        methods=_methods(snapshot),
        staged_lost=lost,
        confirm=_words_to_type(snapshot, len(found["samples"])),
    )


def _known(bench: Bench, ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ids that the workspace knows, also from versions before the current one; and the others."""
    from ecbm.keep.erasure import _check_known

    workspace, data = bench.another_workspace(), bench.current().data
    known: list[str] = []
    unknown: list[str] = []
    for name in dict.fromkeys(ids):
        if name in data.rows_by_id:
            known.append(name)
            continue
        try:
            _check_known(workspace, data, [name])
            known.append(name)
        except UnknownNameError:
            unknown.append(name)
    return known, unknown


def _sample(snapshot: Snapshot, name: str, split: str | None) -> changes.ForgetSample:
    row = snapshot.data.rows_by_id.get(name)
    return changes.ForgetSample(
        id=name,
        thumb=None if row is None else thumb_address(snapshot, row),
        split=split,
        label=None if row is None else snapshot.label_text(row),
    )


def _destroyed(snapshot: Snapshot, found: dict[str, Any], labels: int, lost: int) -> list[changes.Destroyed]:
    count = len(found["samples"])
    thing = "picture" if snapshot.pictures else "row"
    lines = [
        (
            f"The {counted(count, thing)} and their {counted(labels, 'concept label')}",
            f"{count} of {len(snapshot.data)}",
        ),
        (
            "All versions of the model so far, and all undo and redo",
            f"{counted(found['versions'], 'version')}, {readable_size(found['bytes'])}",
        ),
        ("Earlier reports, and what the history says about them", counted(found["details"], "detail")),
    ]
    if found["with_them"]:
        lines.append(("Classes and concepts that nothing else has", listed(found["with_them"], 8)))
    if found["folders"]:
        lines.append(("Exports in this folder, cached computations", ", ".join(found["folders"])))
    if lost:
        lines.append(("Answers and staged items about them, of everybody", counted(lost, "item")))
    return [changes.Destroyed(words=words, amount=amount) for words, amount in lines]


def _in_words(sentences: Sequence[str], pictures: bool) -> list[str]:
    return [for_people(words, pictures) for words in sentences]


def _downloads(bench: Bench) -> list[str]:
    count = sum(entry["kind"] == "export" for entry in bench.records.entries())
    return (
        [f"{counted(count, 'copy')} that were exported or downloaded".replace("copys", "copies")] if count else []
    )


def _methods(snapshot: Snapshot) -> list[changes.ForgetMethod]:
    if not snapshot.trained:
        return [changes.ForgetMethod(method="exact", words="There is no model yet.", seconds=None, complete=True)]
    took = snapshot.model.provenance.training.get("seconds")
    seconds = float(took) if isinstance(took, int | float) else None
    exact = snapshot.kept.get(("seconds", "exact", 0))
    retrain = changes.ForgetMethod(
        method="retrain",
        words="Train anew without them. Nothing learnt from them is left.",
        seconds=seconds,
        complete=True,
    )
    frozen = snapshot.model.recipe.is_linear or snapshot.model.recipe.is_frozen
    left = "Nothing learnt from them is left." if frozen else "The picture reader has still seen them."
    solved = changes.ForgetMethod(
        method="exact", words=f"Solve both heads without them, certified. {left}", seconds=exact, complete=frozen
    )
    return [solved, retrain] if frozen else [retrain, solved]


@router.post("/api/forget", status_code=202)
def forget(bench: BenchNeed, person: PersonNeed, given: changes.ForgetRequest, wait: WaitQuery = 0) -> changes.Job:
    """Erase, as a job. It cannot be undone."""
    snapshot = bench.current()
    if snapshot.number != given.version:
        raise RefusedError(409, moved_on(bench, snapshot, mine_of(bench, snapshot, person)))
    known, unknown = _known(bench, given.ids)
    if unknown:
        raise InputError(f"{listed(map(repr, unknown))}: not known here; take it out of the list")
    words = _words_to_type(snapshot, len(known))
    if given.confirm.strip() != words:
        raise InputError(f"the words do not fit; type {words!r}")

    def run(task: Task) -> str:
        return _erase(bench, person, given, known, task)

    return waited(bench.jobs.start("forget", person, run), wait)


def _erase(bench: Bench, person: str, given: changes.ForgetRequest, ids: Sequence[str], task: Task) -> str:
    pictures = bench.current().pictures
    task.at("Training anew without them" if given.method == "retrain" else "Solving both heads without them")
    downloads = _downloads(bench)
    result = bench.another_workspace().erase(
        ids,
        given.method,
        reason=given.reason,
        author=person,
        expect=given.version,
        before_writing=lambda: task.write("Destroying what is kept"),
    )
    task.version = result["version"]
    bench.refresh()
    task.at("Searching every file for them")
    searched = _search(bench, ids)
    version = bench.records.version(result["version"])
    report = result["report"]
    task.outcome = changes.ForgetCertificate(
        version=result["version"],
        time=version.time or now(),
        author=person,
        reason=given.reason,
        erased=result["erased"],
        method=str(report.get("method", given.method)),
        words=f"{counted(result['erased'], 'record')} erased; version {result['version']} is the only one kept.",
        audit=searched,
        ok=all(line.ok for line in searched),
        not_reached=[*_in_words(result["not_reached"], pictures), *downloads, _BROWSERS],
        ledger_hash=bench.records.ledger_hash(),
        certificate=certificate_of(report, pictures) if report.get("certificate") else None,
    )
    return f"/api/forget/{task.id}"


def _search(bench: Bench, ids: Sequence[str]) -> list[changes.Searched]:
    """Look for what was erased in the data, in what is staged, and in the bytes of every file."""
    from ecbm.keep.checking import check_workspace

    data = bench.current().data
    left = [name for name in ids if name in data.rows_by_id]
    staged = [item for item in bench.staged.items() if item.sample in set(ids)]
    lines = [
        changes.Searched(words="The data of the new version does not have them", ok=not left, checked=len(data)),
        changes.Searched(words="No answer and nothing staged is about them", ok=not staged, checked=len(ids)),
    ]
    wanted = [name.encode() for name in ids if len(name) >= _SHORTEST_SEARCHED]
    files = [path for path in sorted(bench.folder.rglob("*")) if path.is_file()]
    hits = sum(_holds(path, wanted) for path in files) if wanted else 0
    words = f"No file of the workspace has their ids in its bytes ({counted(len(files), 'file')} searched)"
    if len(wanted) < len(ids):
        words += f"; {counted(len(ids) - len(wanted), 'id')} too short to search for"
    lines.append(changes.Searched(words=words, ok=hits == 0, checked=len(files)))
    sound = check_workspace(bench.folder)
    checked = _verified(bench)
    lines += [] if checked is None else [checked]
    lines.append(
        changes.Searched(
            words="The workspace is sound: every file is what the ledger says", ok=bool(sound["ok"]),
            checked=int(sound["checked"].get("files", 0)),
        )
    )  # fmt: skip
    return lines


def _verified(bench: Bench) -> changes.Searched | None:
    """Certificate, gradients and objectives of the new version, computed again and compared with its record."""
    if not bench.current().trained:
        return None
    found = bench.another_workspace().verify("quick")
    words = f"The new version computed again agrees with its record: {found['verdict']}"
    return changes.Searched(words=words, ok=found["verdict"] != "failed", checked=len(found.get("checks", ())))


def _holds(path: Path, wanted: Sequence[bytes]) -> bool:
    longest = max(map(len, wanted))
    try:
        with path.open("rb") as file:
            tail = b""
            while block := file.read(1 << 20):
                text = tail + block
                if any(name in text for name in wanted):
                    return True
                tail = text[-longest:]
    except OSError:
        return False
    return False


@router.get("/api/forget/{job}", response_model=changes.ForgetCertificate)
def certificate(bench: BenchNeed, job: str) -> JSONResponse:
    """The audit and the certificate. The browser is told to empty its cache of pictures."""
    task = bench.jobs.get(job)
    if task is None or task.kind != "forget" or task.outcome is None:
        raise refuse_unknown("erasure", job)
    return JSONResponse(task.outcome.model_dump(), headers={"Clear-Site-Data": '"cache"'})
