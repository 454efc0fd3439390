"""Figures about a version: what is right, on validation samples, each with the query to the pictures behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ecbm.show.serve.filters import query_of
from ecbm.show.serve.schemas import Share

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["class_share", "classes_share", "concept_share", "concepts_share", "importance", "share_of"]


def share_of(right: int, of: int, query: str, query_all: str) -> Share:
    return Share(right=right, of=of, share=right / of if of else None, query=query, query_all=query_all)


def classes_share(snapshot: Snapshot, split: str) -> Share | None:
    """Classes right; ``None`` where a number is predicted."""
    if snapshot.data.predicts_number:
        return None
    rows = snapshot.rows(split)
    wrong = int(snapshot.class_wrong[rows].sum())
    return share_of(
        len(rows) - wrong, len(rows), query_of(split=split, wrong="class", sort="confidence"), query_of(split=split)
    )


def class_share(snapshot: Snapshot, split: str, number: int) -> Share:
    rows = snapshot.rows(split)
    rows = rows[snapshot.labels[rows] == number]
    wrong = int(snapshot.class_wrong[rows].sum())
    name = snapshot.data.class_names[number]
    return share_of(
        len(rows) - wrong,
        len(rows),
        query_of(split=split, label=name, wrong="class", sort="confidence"),
        query_of(split=split, label=name),
    )


def concepts_share(snapshot: Snapshot, split: str) -> Share | None:
    """Concept labels right, over all labels that are known; ``None`` if none can be right or wrong."""
    counted = countable(snapshot)
    rows = snapshot.rows(split)
    known = int((snapshot.label_codes[rows][:, counted] >= 0).sum())
    if not known:
        return None
    wrong = int(snapshot.concept_wrong[rows][:, counted].sum())
    return share_of(known - wrong, known, query_of(split=split, wrong="concept"), query_of(split=split))


def countable(snapshot: Snapshot) -> NDArray[np.int64]:
    """Places of the concepts that are right or wrong: all but numbers."""
    kinds = [concept.type for concept in snapshot.data.layout.concepts]
    return np.flatnonzero(np.array([kind != "continuous" for kind in kinds], bool))


def concept_share(snapshot: Snapshot, split: str, place: int) -> Share | None:
    concept = snapshot.data.layout.concepts[place]
    if concept.type == "continuous":
        return None
    rows = snapshot.rows(split)
    known = int((snapshot.label_codes[rows, place] >= 0).sum())
    wrong = int(snapshot.concept_wrong[rows, place].sum())
    return share_of(
        known - wrong,
        known,
        query_of(split=split, concept=concept.name, wrong="concept"),
        query_of(split=split, concept=concept.name),
    )


def importance(snapshot: Snapshot, split: str) -> NDArray[np.int64]:
    """How many predicted classes hang on each concept: another comes out with the concept's mean in its place."""
    key = ("importance", split)
    if key in snapshot.kept:
        found: NDArray[np.int64] = snapshot.kept[key]
        return found
    readings, layout = snapshot.readings, snapshot.data.layout
    counts = np.zeros(len(layout.concepts), np.int64)
    if not snapshot.data.predicts_number:
        rows = snapshot.rows(split)
        mean = readings.bottleneck[snapshot.rows("train")].mean(0)
        weight = readings.model.label_head.weight.detach()
        scores, values = readings.scores[rows], readings.bottleneck[rows]
        for place, concept in enumerate(layout.concepts):
            own = list(concept.columns)
            without = scores - (values[:, own] - mean[own]) @ weight[:, own].T
            counts[place] = int((without.argmax(1) != scores.argmax(1)).sum())
    snapshot.kept[key] = counts
    return counts
