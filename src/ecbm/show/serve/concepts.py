"""Concepts: a table of all with quality, rarity, importance, examples; one of them; one that is being added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter, Query

from ecbm.errors import InputError
from ecbm.show.serve.figures import concept_share, importance
from ecbm.show.serve.filters import query_of
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.questions import looks_like
from ecbm.show.serve.queue import by_concept, suspicious
from ecbm.show.serve.staged_schemas import ConceptDetail, ConceptRow, Concepts, Push, Suggested
from ecbm.show.serve.staging import Mine, mine_of
from ecbm.show.serve.tiles import tile_of
from ecbm.show.serve.words import spoken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ecbm.show.serve.queue import Suspicion
    from ecbm.show.serve.schemas import Ref, Tile
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_IN_A_ROW, _IN_DETAIL, _IN_A_LIST = 3, 8, 24
_LEAST = 2


@router.get("/api/concepts")
def concepts(bench: BenchNeed, person: PersonNeed) -> Concepts:
    """The table of concepts."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    return Concepts(
        version=snapshot.number,
        revision=mine.revision,
        rows=[_row(bench, snapshot, mine, place) for place in range(len(snapshot.infos))],
        added=mine.added,
    )


def _row(bench: Bench, snapshot: Snapshot, mine: Mine, place: int) -> ConceptRow:
    info, concept = snapshot.infos[place], snapshot.data.layout.concepts[place]
    split = snapshot.judged_split
    train = snapshot.rows("train")
    codes = snapshot.label_codes[train, place]
    found = suspicious(bench, snapshot)
    examples = _examples(snapshot, info.name)
    error = None
    if concept.type == "continuous":
        rows, column = snapshot.rows(split), concept.columns[0]
        gap = (snapshot.readings.concepts[rows, column] - snapshot.data.concepts[rows, column]).numpy()
        known = gap[~np.isnan(gap)]
        error = float(np.sqrt(np.square(known).mean())) if len(known) else None
    return ConceptRow(
        concept=info,
        figure=concept_share(snapshot, split, place),
        error=error,
        present=int((codes > 0).sum()) if concept.type != "continuous" else int((codes >= 0).sum()),
        labelled=int((codes >= 0).sum()),
        present_query=query_of(
            split="train", concept=info.name, value="present" if concept.type == "binary" else None
        ),
        importance=int(importance(snapshot, split)[place]),
        importance_of=len(snapshot.rows(split)),
        suspicious=None if found is None else by_concept_kept(snapshot, found).get(info.name, 0),
        suspicious_query=query_of(concept=info.name),
        staged=sum(one.item.kind == "label" and one.item.concept == info.name for one in mine.staged),
        staged_change=_change(mine, info.name),
        examples_present=examples[0][:_IN_A_ROW],
        examples_absent=examples[1][:_IN_A_ROW],
    )


def by_concept_kept(snapshot: Snapshot, found: list[Suspicion]) -> dict[str, int]:
    """How many suspicious labels each concept has; counted once a version."""
    if "suspicious by concept" not in snapshot.kept:
        snapshot.kept["suspicious by concept"] = by_concept(found)
    counts: dict[str, int] = snapshot.kept["suspicious by concept"]
    return counts


def _examples(snapshot: Snapshot, name: str) -> tuple[list[Ref], list[Ref]]:
    key = ("examples", name)
    if key not in snapshot.kept:
        found = looks_like(snapshot, name, _IN_DETAIL)
        snapshot.kept[key] = ([], []) if found is None else (found.present, found.absent)
    examples: tuple[list[Ref], list[Ref]] = snapshot.kept[key]
    return examples


def _change(mine: Mine, name: str) -> str | None:
    for one in mine.staged:
        item = one.item
        if item.kind == "remove_concept" and item.concept == name:
            return "removed"
        if item.kind == "rename_concept" and item.concept == name:
            return f"renamed to {spoken(str(item.value))}"
        if item.kind == "merge_concepts" and name in (item.concept, item.value["other"]):
            return f"merged into {spoken(item.value['name'])}"
    return None


@router.get("/api/concept")
def concept(bench: BenchNeed, person: PersonNeed, name: Annotated[str, Query(max_length=500)]) -> ConceptDetail:
    """One concept: how it pushes each class, and what it looks like."""
    snapshot = bench.trained()
    found = snapshot.data.concept(name)
    place = snapshot.places[name]
    mine = mine_of(bench, snapshot, person)
    row = _row(bench, snapshot, mine, place)
    examples = _examples(snapshot, name)
    codes = snapshot.label_codes[snapshot.rows("train"), place]
    return ConceptDetail(
        row=row,
        pushes=_pushes(snapshot, found.columns),
        present=examples[0],
        absent=examples[1],
        present_query=row.present_query,
        absent_query=query_of(split="train", concept=name, value="absent" if found.type == "binary" else "missing"),
        absent_count=int((codes == 0).sum()),
        notes=_notes(snapshot, row),
    )


def _pushes(snapshot: Snapshot, columns: tuple[int, ...]) -> list[Push]:
    """What presence adds to each class's score against absence; of several columns, the strongest one."""
    model = snapshot.model
    weight = model.label_head.weight.detach()
    # On a logit bottleneck presence is the step from the usual absent to the usual present logit.
    step = (model.high - model.low) if model.bottleneck == "logits" else model.high * 0 + 1
    best = [max((float(weight[c, k] * step[k]) for k in columns), key=abs) for c in range(len(weight))]
    pairs = sorted(zip(model.class_names, best, strict=True), key=lambda pair: -pair[1])
    return [Push(name=name, weight=value) for name, value in pairs]


def _notes(snapshot: Snapshot, row: ConceptRow) -> list[str]:
    notes = []
    things = "training pictures" if snapshot.pictures else "training records"
    if row.concept.type == "binary" and row.labelled and row.present < max(10, row.labelled // 50):
        notes.append(f"Rare: labelled present in {row.present} of {row.labelled} {things}.")
    train = len(snapshot.rows("train"))
    if row.labelled < train:
        notes.append(f"Not labelled in {train - row.labelled} of {train} {things}.")
    return notes


# -- a concept that is being added -----------------------------------------------------------------------


@router.get("/api/concept/suggested")
def suggested(bench: BenchNeed, person: PersonNeed, name: Annotated[str, Query(max_length=500)]) -> Suggested:
    """What the rest of a new concept's labels would be, from the answers so far."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    if name not in mine.added:
        raise InputError(f"{name!r} is not being added; stage it as a new concept first")
    said = {
        snapshot.data.rows_by_id[one.item.sample]: one.item
        for one in mine.judged
        if one.item.kind == "label" and one.item.concept == name and not one.why
    }
    known = {row: float(item.value) for row, item in said.items() if item.answer != "unsure"}
    present = sum(value >= 0.5 for value in known.values())
    absent = len(known) - present
    ready = present >= _LEAST and absent >= _LEAST
    train = snapshot.rows("train")
    rest = np.array([row for row in train.tolist() if row not in said], np.int64)
    things = "pictures" if snapshot.pictures else "records"
    if not ready:
        # Pictures far from each other teach most before anything is known.
        return Suggested(
            concept=name, labelled_present=present, labelled_absent=absent, ready=False,
            words=f"Label at least {_LEAST} {things} that have it and {_LEAST} that do not.",
            question=_tiles(snapshot, mine, name, _far_apart(snapshot, list(said), rest, _IN_A_LIST)),
            likely_present=[], likely_absent=[], agreement=None,
        )  # fmt: skip
    scores, agreement = _fit(snapshot, known, rest)
    order = np.argsort(-scores, kind="stable")
    unsure = rest[np.argsort(np.abs(scores), kind="stable")[:_IN_A_LIST]].tolist()
    yes, no = rest[order].tolist()[:_IN_A_LIST], rest[order[::-1]].tolist()[:_IN_A_LIST]
    chance = dict(zip(rest.tolist(), (1 / (1 + np.exp(-scores))).tolist(), strict=True))
    return Suggested(
        concept=name,
        labelled_present=present,
        labelled_absent=absent,
        ready=True,
        words="Adopt what is right; what the fit is least sure of is worth a label.",
        question=_tiles(snapshot, mine, name, unsure, chance),
        likely_present=_tiles(snapshot, mine, name, [row for row in yes if chance[row] >= 0.5], chance),
        likely_absent=_tiles(snapshot, mine, name, [row for row in no if chance[row] < 0.5], chance),
        agreement=agreement,
    )


def _tiles(
    snapshot: Snapshot, mine: Mine, name: str, rows: list[int], chance: dict[int, float] | None = None
) -> list[Tile]:
    return [
        tile_of(snapshot, row, mine, concept=name, score=None if chance is None else round(chance[row], 4))
        for row in rows
    ]


def _far_apart(snapshot: Snapshot, start: list[int], rest: NDArray[np.int64], most: int) -> list[int]:
    """Rows as far from each other as possible, one after another."""
    directions = snapshot.directions.numpy()
    if not len(rest):
        return []
    chosen: list[int] = []
    if start:
        nearest = (directions[rest] @ directions[start].T).max(1)
    else:
        nearest = np.full(len(rest), -2.0, np.float32)
        nearest[0] = -3.0
    for _ in range(min(most, len(rest))):
        place = int(np.argmin(nearest))
        chosen.append(int(rest[place]))
        nearest = np.maximum(nearest, directions[rest] @ directions[rest[place]])
        nearest[place] = np.inf
    return chosen


def _fit(
    snapshot: Snapshot, known: dict[int, float], rest: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float | None]:
    """Log-odds of the rest by a ridge classifier on features, and its agreement with answers that are left out.

    Leaving one answer out has a closed form, so the agreement costs nothing.
    """
    rows = np.array(list(known), np.int64)
    signs = np.where(np.array(list(known.values())) >= 0.5, 1.0, -1.0)
    features = snapshot.directions.numpy().astype(np.float64)
    kernel = features[rows] @ features[rows].T + 1.0
    inverse = np.linalg.inv(kernel + 0.1 * np.eye(len(rows)))
    weights = inverse @ signs
    left_out = signs - weights / np.diag(inverse)
    scores = (features[rest] @ features[rows].T + 1.0) @ weights if len(rest) else np.zeros(0)
    found: NDArray[np.float64] = 4.0 * scores
    return found, float((np.sign(left_out) == signs).mean())
