"""Answers and staging: stored before the reply is sent, trimmed, taken back, saved as a file, read from a CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from ecbm.errors import InputError, unknown_name
from ecbm.keep.staged import NewItem
from ecbm.show.serve import changes, staged_schemas
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.schemas import Count, Value
from ecbm.show.serve.staged_view import group_key, staged_view
from ecbm.show.serve.staging import Mine, label_now, mine_of

if TYPE_CHECKING:
    from ecbm.read.dataset import Dataset
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_MOST_ROWS = 200_000
_FIRST = 20


def _store(bench: Bench, snapshot: Snapshot, person: str, items: list[NewItem]) -> tuple[list[int], Mine]:
    """Keep items durably, tell the other pages, and give what they have become."""
    numbers = bench.staged.put(person, items, snapshot.number, snapshot.erasures)
    mine = mine_of(bench, snapshot, person)
    bench.events.send(changes.Event(kind="staged", version=snapshot.number, revision=mine.revision, by=person))
    return numbers, mine


def _item(snapshot: Snapshot, mine: Mine, given: staged_schemas.Answer) -> NewItem:
    """An answer as an item: the question must exist, and the answer must be one that its concept has."""
    data = snapshot.data
    data.row(given.id)
    name, answer, value = given.concept, given.answer, given.value
    if name is None:
        return _class_item(data, given)
    if name in mine.added and name not in data.layout.by_name:
        if answer not in ("present", "absent", "unsure"):
            raise InputError(f"{name!r} is new, and a yes/no concept; answer present, absent or unsure")
        return NewItem("label", given.id, name, answer, {"present": 1.0, "absent": 0.0}.get(answer))
    if name not in data.layout.by_name and name in data.concept_names:
        # A value of a concept of several: its presence says which value it is.
        owner = data.layout.concepts[data.layout.owner[data.concept_index(name)]]
        if answer == "present" and owner.type == "categorical":
            answer, value = "value", owner.values[owner.columns.index(data.concept_index(name))]
        elif answer != "unsure":
            raise InputError(f"{name!r} is a value of {owner.name!r}; answer with the value that it should have")
        name = owner.name
    concept = data.concept(name)
    before = label_now(data, given.id, name)
    if answer == "unsure":
        return NewItem("label", given.id, name, answer, None, before)
    if answer == "missing":
        return NewItem("label", given.id, name, answer, None, before)
    if answer in ("present", "absent"):
        if concept.type != "binary":
            raise InputError(f"{name!r} is {concept.type}; answer with a value")
        value = float(answer == "present")
    elif value is None:
        raise InputError(f"the answer about {name!r} has no value; give one, or answer missing")
    else:
        labels = concept.labels_of(value, f"the answer about {name!r}")  # refuses what is no value of it
        if concept.type != "categorical":
            # Yes and no may come as words; a grade is as many steps above the lowest as its columns say.
            value = concept.lowest + sum(labels) if concept.type == "ordinal" else labels[0]
    return NewItem("label", given.id, name, answer, value, before)


def _class_item(data: Dataset, given: staged_schemas.Answer) -> NewItem:
    """An answer about the class, or about the number that is predicted."""
    before = data.label_of(data.rows_by_id[given.id])
    if given.answer == "unsure":
        return NewItem("class", given.id, answer="unsure", before=before)
    if given.answer != "value" or given.value is None:
        raise InputError(f"the class of {given.id!r} is answered with a value; give the label, or answer unsure")
    label = data.label_from(str(given.value), f"the label of {given.id!r}")
    return NewItem("class", given.id, answer="value", value=label if data.predicts_number else str(given.value),
                   before=before)  # fmt: skip


@router.post("/api/answers")
def post_answers(bench: BenchNeed, person: PersonNeed, given: staged_schemas.Answers) -> staged_schemas.Answered:
    """Store answers."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    items = [_item(snapshot, mine, answer) for answer in given.answers]
    numbers, mine = _store(bench, snapshot, person, items)
    return staged_schemas.Answered(
        version=snapshot.number,
        revision=mine.revision,
        staged=mine.counts,
        unsure=len(mine.unsure),
        items=[
            staged_schemas.AnsweredItem(
                id=one.sample,
                concept=one.concept or None,
                status=mine.status(one.sample, one.concept) if one.concept else mine.class_status(one.sample),
                item=number,
            )
            for one, number in zip(items, numbers, strict=True)
        ],
    )


@router.get("/api/staged")
def get_staged(
    bench: BenchNeed, person: PersonNeed, group: Annotated[str | None, Query(max_length=1200)] = None
) -> staged_schemas.Staged:
    """The staged edit of the person at this browser."""
    snapshot = bench.current()
    return staged_view(snapshot, mine_of(bench, snapshot, person), group)


@router.post("/api/staged")
def stage(bench: BenchNeed, person: PersonNeed, given: staged_schemas.StageRequest) -> staged_schemas.Staged:
    """Stage something other than a concept's label."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    _, mine = _store(bench, snapshot, person, [_staged_item(snapshot, mine, given.item)])
    return staged_view(snapshot, mine)


def _staged_item(snapshot: Snapshot, mine: Mine, item: staged_schemas.Stage) -> NewItem:
    data = snapshot.data
    if isinstance(item, staged_schemas.StageClass):
        row = data.row(item.id)
        label: Value = data.label_from(item.label, f"the label of {item.id!r}")
        return NewItem("class", item.id, answer="value", value=item.label if not data.predicts_number else label,
                       before=data.label_of(row))  # fmt: skip
    if isinstance(item, staged_schemas.StageRemoval):
        data.row(item.id)
        return NewItem("remove_sample", item.id)
    taken = {*data.concept_names, *data.layout.by_name, *data.groups}
    if isinstance(item, staged_schemas.StageConcept):
        _refuse_taken(item.concept, taken)
        return NewItem("add_concept", concept=item.concept)
    data.concept(item.concept)
    if isinstance(item, staged_schemas.StageConceptRemoval):
        return NewItem("remove_concept", concept=item.concept)
    if isinstance(item, staged_schemas.StageRename):
        _refuse_taken(item.name, taken | set(mine.added))
        return NewItem("rename_concept", concept=item.concept, value=item.name)
    data.concept(item.other)
    if item.other == item.concept:
        raise InputError("a concept cannot be merged with itself; choose another one")
    for name in (item.concept, item.other):
        if data.concept(name).type != "binary":
            raise InputError(f"only yes/no concepts can be merged; {name!r} is none")
    if item.name not in (item.concept, item.other):
        _refuse_taken(item.name, taken | set(mine.added))
    return NewItem("merge_concepts", concept=item.concept, value={"other": item.other, "name": item.name})


def _refuse_taken(name: str, taken: set[str]) -> None:
    if name in taken:
        raise InputError(f"a concept {name!r} exists already; choose another name")


@router.post("/api/staged/take-back")
def take_back(bench: BenchNeed, person: PersonNeed, given: staged_schemas.TakeBack) -> staged_schemas.Staged:
    """Take items back: answers become open questions again."""
    snapshot = bench.current()
    mine = mine_of(bench, snapshot, person)
    numbers = set(given.items)
    questions = {(one.id, one.concept or "") for one in given.questions}
    for one in mine.judged:
        item = one.item
        named = item.kind in ("label", "class") and (item.sample, item.concept) in questions
        if named or given.everything or (given.group is not None and group_key(one) == given.group):
            numbers.add(item.item)
    dropped = {
        one.item.concept for one in mine.judged if one.item.kind == "add_concept" and one.item.item in numbers
    }
    numbers |= {one.item.item for one in mine.judged if one.item.kind == "label" and one.item.concept in dropped}
    bench.staged.remove(person, sorted(numbers))
    mine = mine_of(bench, snapshot, person)
    bench.events.send(changes.Event(kind="staged", version=snapshot.number, revision=mine.revision, by=person))
    return staged_view(snapshot, mine)


@router.get(
    "/api/staged/file",
    response_class=Response,
    responses={200: {"content": {"application/json": {}}, "description": "An edit file for 'ecbm edit'."}},
)
def staged_file(bench: BenchNeed, person: PersonNeed) -> Response:
    """The staged edit as an edit file, which ``ecbm edit`` reads."""
    from ecbm.edit.files import edit_content
    from ecbm.show.serve.compose import compose

    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    content = edit_content(compose(snapshot.data, [one.item for one in mine.staged]))
    text = json.dumps(content, ensure_ascii=False, indent=1)
    return Response(
        text,
        media_type="application/json",
        headers={"Content-Disposition": 'attachment; filename="edit.json"'},
    )


@router.post(
    "/api/staged/upload",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/csv": {"schema": {"type": "string", "maxLength": 2000}}},
        }
    },
)
async def upload(request: Request, bench: BenchNeed, person: PersonNeed) -> staged_schemas.Uploaded:
    """Labels of new concepts from a CSV: an ``id`` column and one column for each concept, 1, 0 or empty."""
    content = await request.body()
    return await run_in_threadpool(_uploaded, bench, person, content)


def _uploaded(bench: Bench, person: str, content: bytes) -> staged_schemas.Uploaded:
    snapshot = bench.trained()
    data = snapshot.data
    table, names = _read_csv(content)
    taken = {*data.concept_names, *data.layout.by_name, *data.groups}
    for name in names:
        _refuse_taken(name, taken)
    items = [NewItem("add_concept", concept=name) for name in names]
    unknown = [sample for sample, _ in table if sample not in data.rows_by_id]
    counts = dict.fromkeys(names, 0)
    for sample, values in table:
        if sample not in data.rows_by_id:
            continue
        for name, value in zip(names, values, strict=True):
            if value is not None:
                counts[name] += 1
                items.append(NewItem("label", sample, name, "present" if value >= 0.5 else "absent", value))
    if not sum(counts.values()):
        hint = unknown_name("id", unknown[0], data.ids) if unknown else InputError("it has no labels; fill them in")
        raise InputError(f"the file has no label of a known picture: {hint}")
    _, mine = _store(bench, snapshot, person, items)
    return staged_schemas.Uploaded(
        revision=mine.revision,
        concepts=[Count(name=name, count=count, query="status=staged") for name, count in counts.items()],
        unknown_ids=unknown[:_FIRST],
        unknown_count=len(unknown),
        staged=mine.counts,
    )


def _read_csv(content: bytes) -> tuple[list[tuple[str, list[float | None]]], list[str]]:
    """Ids and values of a CSV, and the names of its concepts."""
    try:
        text = content.decode("utf-8-sig")
        rows: list[list[str]] = []
        for row in csv.reader(io.StringIO(text, newline="")):
            if any(cell.strip() for cell in row):
                rows.append([cell.strip() for cell in row])
            if len(rows) > _MOST_ROWS:
                raise InputError(f"the file has more than {_MOST_ROWS:,} rows; send it in parts")
    except UnicodeDecodeError:
        raise InputError("the file is not UTF-8 text; save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"the file is not a CSV ({error}); save it as CSV with commas") from None
    head = rows[0] if rows else []
    names = head[1:]
    if not head or head[0].casefold() != "id" or not names or not all(names):
        raise InputError(
            "the first line of the file must be 'id' and the names of the new concepts, with commas between"
        )
    if len(set(names)) < len(names) or len(names) > 50 or any(len(name) > 500 for name in names):
        raise InputError("the first line must name each new concept once, at most 50 of them")
    table: dict[str, list[float | None]] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(head):
            raise InputError(
                f"line {number} has {len(row)} cells, the first line {len(head)}; fill it up with commas"
            )
        if row[0] in table:
            raise InputError(f"line {number}: {row[0]!r} is there twice; give one line a picture")
        table[row[0]] = [_cell(cell, number) for cell in row[1:]]
    return list(table.items()), names


_WORDS: dict[str, Any] = {"": None, "yes": 1.0, "no": 0.0, "present": 1.0, "absent": 0.0, "true": 1.0, "false": 0.0}


def _cell(cell: str, number: int) -> float | None:
    known = cell.casefold()
    if known in _WORDS:
        value: float | None = _WORDS[known]
        return value
    try:
        found = float(cell)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InputError(f"line {number}: {cell[:40]!r} is no label; write 1, 0 or nothing")
    return found
