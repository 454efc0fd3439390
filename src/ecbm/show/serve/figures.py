"""Figures about a version: what is right, on validation samples, each with the query to the pictures behind it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import EcbmError
from ecbm.keep import durable
from ecbm.keep.staged import keep_unless_erased
from ecbm.show.serve.filters import query_of
from ecbm.show.serve.schemas import Share

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = [
    "class_share", "classes_share", "concept_share", "concepts_share", "first_figures", "importance",
    "remember_first", "share_of",
]  # fmt: skip


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


# -- the first version, with which the current one is compared -------------------------------------------


def _kept_at(bench: Bench) -> Path:
    return bench.folder / "cache" / "served-figures.json"


def first_figures(bench: Bench, snapshot: Snapshot) -> dict[str, Any] | None:
    """Figures of the first model that is kept, on its validation samples; ``None`` while they are not known.

    They are computed in the background (:func:`remember_first`), for every model looks at all pictures then.
    """
    if "first" not in snapshot.kept:
        oldest = _oldest(bench, snapshot)
        if oldest is None:
            snapshot.kept["first"] = None
        else:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                snapshot.kept["first"] = json.loads(_kept_at(bench).read_bytes())[str(oldest)]
    found: dict[str, Any] | None = snapshot.kept.get("first")
    return found


def _oldest(bench: Bench, snapshot: Snapshot) -> int | None:
    line = [one for one in bench.lineage(snapshot.number) if one.model is not None and one.kept]
    return line[-1].version if line and line[-1].version != snapshot.number else None


def remember_first(bench: Bench, snapshot: Snapshot) -> None:
    """Compute the figures of the first model, or keep the current ones if it is the first."""
    oldest = _oldest(bench, snapshot)
    if oldest is not None and first_figures(bench, snapshot) is not None:
        return
    with contextlib.suppress(OSError, EcbmError):
        first = snapshot if oldest is None else bench.snapshot_of(oldest)
        split = first.judged_split
        classes, concepts = classes_share(first, split), concepts_share(first, split)
        figures = {
            "version": first.number,
            "class_accuracy": None if classes is None else classes.share,
            "concept_accuracy": None if concepts is None else concepts.share,
        }
        if oldest is not None:
            snapshot.kept["first"] = figures
        path, content = _kept_at(bench), json.dumps({str(first.number): figures}).encode()
        durable.make_folder(path.parent)
        keep_unless_erased(bench.folder, first.erasures, lambda: durable.replace_unflushed(path, content))
