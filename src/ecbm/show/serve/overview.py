"""The first page: what the model is, how good it is, what was edited last, what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter

from ecbm.show.serve.figures import class_share, classes_share, concept_share, concepts_share, first_figures
from ecbm.show.serve.filters import query_of
from ecbm.show.serve.lineage import edited_lines
from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.queue import by_concept, job_of, suspicious
from ecbm.show.serve.schemas import (
    Before,
    ClassFigure,
    Count,
    Headline,
    Overview,
    SinceFirst,
    Waiting,
    WorstClass,
    WorstConcept,
)
from ecbm.show.serve.staging import Mine, mine_of
from ecbm.show.serve.tiles import ref_of
from ecbm.words import counted

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_WORST = 5
_EXAMPLES = 3


@router.get("/api/overview")
def overview(bench: BenchNeed, person: PersonNeed) -> Overview:
    """Everything the first page shows."""
    snapshot = bench.trained()
    split = snapshot.judged_split
    mine = mine_of(bench, snapshot, person)
    first = first_figures(bench, snapshot)
    return Overview(
        version=snapshot.number,
        revision=mine.revision,
        split=split,  # type: ignore[arg-type]
        split_size=len(snapshot.rows(split)),
        learnt_from=len(snapshot.rows("train")),
        about=_about(snapshot),
        classes_right=_headline(snapshot, split, first, "class_accuracy"),
        concepts_right=_headline(snapshot, split, first, "concept_accuracy"),
        since_first=_since_first(bench, snapshot),
        classes=_classes(snapshot, split),
        worst_concepts=_worst_concepts(snapshot, split),
        worst_classes=_worst_classes(snapshot, split),
        waiting=_waiting(bench, snapshot, mine),
        last_edits=edited_lines(bench, 5),
    )


def _about(snapshot: Snapshot) -> str:
    data = snapshot.data
    what = "a picture" if snapshot.pictures else "a record"
    if data.predicts_number:
        decides = f"computes {data.class_names[0]} from them alone"
    else:
        decides = "decides the class from them alone"
    thing = "picture" if snapshot.pictures else "record"
    learnt = counted(len(snapshot.rows("train")), thing)
    concepts = len(data.layout.concepts)
    sees = f"says which of {concepts} concepts it sees"
    return f"The model looks at {what}, {sees}, and {decides}. It has learnt from {learnt}."


def _headline(snapshot: Snapshot, split: str, first: dict[str, Any] | None, name: str) -> Headline:
    classes = name == "class_accuracy"
    figure = classes_share(snapshot, split) if classes else concepts_share(snapshot, split)
    before = Before(version=first["version"], share=first.get(name)) if first is not None else None
    error = None
    if classes and snapshot.data.predicts_number:
        rows = snapshot.rows(split)
        error = float(np.abs(snapshot.readings.outputs[rows, 0].numpy() - snapshot.labels[rows]).mean())
        before = None
    return Headline(figure=figure, before=before, error=error, unit=snapshot.data.target_unit)


def _since_first(bench: Bench, snapshot: Snapshot) -> SinceFirst | None:
    line = [version for version in bench.lineage(snapshot.number) if version.kind in ("edit", "erase")]
    described = bench.records.described(line, 1_000_000) if line else []
    labels = classes = removed = added = 0
    for item in described:
        edit = item["edit"] or {}
        labels += len({(one["id"], one["concept"].partition("::")[0]) for one in edit.get("correct_concepts", [])})
        classes += len(edit.get("correct_labels", []))
        removed += len(edit.get("remove_samples", []))
        added += len(edit.get("add_samples", []))
    thing = "picture" if snapshot.pictures else "record"
    words = [f"{counted(labels + classes, 'label')} corrected"] if labels + classes else []
    words += [f"{counted(removed, thing)} removed"] if removed else []
    words += [f"{counted(added, thing)} added"] if added else []
    return SinceFirst(
        concept_labels=labels,
        class_labels=classes,
        samples_removed=removed,
        samples_added=added,
        versions=len(line),
        words=", ".join(words) or "nothing was changed yet",
    )


def _classes(snapshot: Snapshot, split: str) -> list[ClassFigure]:
    """Every class with an example that is read right with confidence."""
    if snapshot.data.predicts_number:
        return []
    found = []
    confidence = snapshot.readings.outputs.max(1).values.numpy()
    for number, name in enumerate(snapshot.data.class_names):
        rows = snapshot.rows(split)
        rows = rows[snapshot.labels[rows] == number]
        if not len(rows):
            rows = np.flatnonzero(snapshot.labels == number)
        right = rows[~snapshot.class_wrong[rows]]
        best = right if len(right) else rows
        example = int(best[np.argmax(confidence[best])]) if len(best) else None
        found.append(
            ClassFigure(
                name=name,
                example=None if example is None else ref_of(snapshot, example),
                figure=class_share(snapshot, split, number),
            )
        )
    return found


def _worst_concepts(snapshot: Snapshot, split: str) -> list[WorstConcept]:
    rows = snapshot.rows(split)
    counts = snapshot.concept_wrong[rows].sum(0)
    found = []
    for place in np.argsort(-counts, kind="stable")[:_WORST].tolist():
        figure = concept_share(snapshot, split, place)
        if figure is None or not counts[place]:
            continue
        wrong = rows[snapshot.concept_wrong[rows, place]]
        codes = snapshot.label_codes[wrong, place], snapshot.readings.codes[wrong, place]
        found.append(
            WorstConcept(
                concept=snapshot.infos[place],
                figure=figure,
                missed=int((codes[0] > codes[1]).sum()),
                examples=[ref_of(snapshot, row) for row in wrong[:_EXAMPLES].tolist()],
            )
        )
    return found


def _worst_classes(snapshot: Snapshot, split: str) -> list[WorstClass]:
    if snapshot.data.predicts_number:
        return []
    shares = [(class_share(snapshot, split, number), number) for number in range(len(snapshot.data.class_names))]
    worst = sorted(
        (one for one in shares if one[0].of > one[0].right), key=lambda one: (one[0].share or 0.0, one[1])
    )
    rows = snapshot.rows(split)
    found = []
    for figure, number in worst[:_WORST]:
        wrong = rows[(snapshot.labels[rows] == number) & snapshot.class_wrong[rows]]
        said, counts = np.unique(snapshot.readings.predicted[wrong], return_counts=True)
        most = int(counts.max())
        single = len(counts) == 1 or (most > 1 and int((counts == most).sum()) == 1)
        found.append(
            WorstClass(
                name=snapshot.data.class_names[number],
                figure=figure,
                mostly_as=snapshot.data.class_names[int(said[counts.argmax()])] if single else None,
                mostly_count=most if single else 0,
                examples=[ref_of(snapshot, row) for row in wrong[:_EXAMPLES].tolist()],
            )
        )
    return found


def _waiting(bench: Bench, snapshot: Snapshot, mine: Mine) -> Waiting:
    found = suspicious(bench, snapshot)
    by_person: dict[str, int] = {}
    for item in bench.everybody():
        if item.done is None and item.answer == "unsure" and item.sample in snapshot.data.rows_by_id:
            by_person[item.person] = by_person.get(item.person, 0) + 1
    names = snapshot.info_by_name
    return Waiting(
        suspicious=None if found is None else len(found),
        suspicious_by_concept=[
            Count(name=names[name].title, count=count, query=query_of(split="train", concept=name))
            for name, count in by_concept(found or []).items()
            if name in names
        ],
        suspicious_job=job_of(snapshot),
        staged=mine.counts,
        unsure=sum(by_person.values()),
        unsure_by_person=[
            Count(name=name, count=count, query=query_of(unsure_by=name))
            for name, count in sorted(by_person.items())
        ],
    )
