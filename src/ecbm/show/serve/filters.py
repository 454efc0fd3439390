"""Filters: which pictures, in which order. Every figure of the page leads to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

import numpy as np
from fastapi import Query
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ecbm.errors import InputError, unknown_name
from ecbm.show.serve.words import spoken

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.staging import Mine

__all__ = ["AmongQuery", "Filter", "QueueQuery", "WindowQuery", "query_of", "rows_of", "words_of"]

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


class Filter(BaseModel):
    """A filter as query parameters; all must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Literal["train", "val", "test"] | None = None
    label: Annotated[str | None, Query(max_length=500)] = None
    predicted: Annotated[str | None, Query(max_length=500)] = None
    concept: Annotated[str | None, Query(max_length=500)] = None
    value: Annotated[str | None, Query(max_length=200)] = None
    read: Annotated[str | None, Query(max_length=200)] = None
    wrong: Literal["class", "concept", "yes"] | None = None
    changed: Annotated[int | None, Query(ge=0, le=10**9)] = None
    status: Literal["staged", "answered", "unsure", "open"] | None = None
    unsure_by: Annotated[str | None, Query(max_length=100)] = None
    annotator: Annotated[str | None, Query(max_length=200)] = None
    find: Annotated[str | None, Query(max_length=200)] = None
    ids: Annotated[str | None, Query(max_length=100_000)] = None
    near: Annotated[str | None, Query(max_length=500)] = None
    sort: Literal["id", "similar", "suspicious", "uncertain", "confidence"] | None = None


class Window(Filter):
    """A filter and the window that is wanted of what fits."""

    offset: Annotated[int, Query(ge=0, le=10**9)] = 0
    limit: Annotated[int, Query(ge=1, le=500)] = 100

    def filter(self) -> Filter:
        """The filter alone."""
        return Filter(**self.model_dump(exclude={"offset", "limit", "ranking"}, exclude_unset=True))


class QueueWindow(Window):
    """The same of a queue, and the order that answers have led to; 0: the version's own."""

    ranking: Annotated[int, Query(ge=0, le=10**9)] = 0


class Among(Filter):
    """A filter and a picture whose place is wanted."""

    id: Annotated[str, Query(max_length=500)]

    def filter(self) -> Filter:
        """The filter alone."""
        return Filter(**self.model_dump(exclude={"id"}, exclude_unset=True))


WindowQuery = Annotated[Window, Query()]
QueueQuery = Annotated[QueueWindow, Query()]
AmongQuery = Annotated[Among, Query()]


def query_of(**given: Any) -> str:
    """A filter as a query string.

    Examples
    --------
    >>> query_of(split="val", label="Moss Piper", concept=None)
    'split=val&label=Moss+Piper'
    """
    return urlencode({name: value for name, value in given.items() if value is not None})


@dataclasses.dataclass(frozen=True)
class Context:
    """What a filter may ask for besides the version: the person's answers, who changed what, suspicions."""

    mine: Mine
    changed_by: Callable[[int], set[str]]
    unsure_of: Callable[[str], set[str]]
    scores: Callable[[], NDArray[np.float64] | None]
    annotators: dict[str, str]


def rows_of(snapshot: Snapshot, wanted: Filter, context: Context) -> Rows:
    """The rows that fit, in order."""
    data = snapshot.data
    mask: Mask = np.ones(len(data), bool)
    if wanted.split is not None:
        mask &= snapshot.splits == wanted.split
    if wanted.label is not None:
        mask &= snapshot.labels == data.class_index(wanted.label) if not data.predicts_number else False
    if wanted.predicted is not None:
        _needs_model(snapshot, "predicted")
        mask &= snapshot.readings.predicted == data.class_index(wanted.predicted)
    mask &= _by_concept(snapshot, wanted)
    if wanted.wrong is not None:
        mask &= _wrong(snapshot, wanted)
    if wanted.changed is not None:
        mask &= _named(snapshot, context.changed_by(wanted.changed))
    if wanted.annotator is not None:
        mask &= np.array([context.annotators.get(name) == wanted.annotator for name in data.ids], bool)
    if wanted.status is not None:
        mask &= _by_status(snapshot, wanted, context.mine)
    if wanted.unsure_by is not None:
        mask &= _named(snapshot, context.unsure_of(wanted.unsure_by))
    if wanted.find is not None:
        text = wanted.find.casefold()
        mask &= np.fromiter((text in name for name in _folded(snapshot)), bool, len(data))
    if wanted.ids is not None:
        mask &= _named(snapshot, set(wanted.ids.split(",")))
    return _sorted(snapshot, np.flatnonzero(mask), wanted, context)


def _needs_model(snapshot: Snapshot, what: str) -> None:
    if not snapshot.trained:
        raise InputError(f"the filter {what!r} needs a model; train one first")


def _folded(snapshot: Snapshot) -> list[str]:
    if "folded" not in snapshot.kept:
        snapshot.kept["folded"] = [name.casefold() for name in snapshot.data.ids]
    found: list[str] = snapshot.kept["folded"]
    return found


def _named(snapshot: Snapshot, ids: set[str]) -> Mask:
    mask: Mask = np.zeros(len(snapshot.data), bool)
    rows = snapshot.data.rows_by_id
    mask[[rows[name] for name in ids if name in rows]] = True
    return mask


def _by_concept(snapshot: Snapshot, wanted: Filter) -> Mask | bool:
    if wanted.concept is None:
        if wanted.value is not None or wanted.read is not None:
            raise InputError("the filters 'value' and 'read' need a concept; name it with 'concept'")
        return True
    if wanted.concept not in snapshot.places:
        # A concept that is being added has no labels in the data yet.
        return True if wanted.value is None and wanted.read is None else _unknown(snapshot, wanted.concept)
    place = snapshot.places[wanted.concept]
    mask: Mask | bool = True
    if wanted.value is not None:
        mask = snapshot.label_codes[:, place] == code_of(snapshot, place, wanted.value)
    if wanted.read is not None:
        _needs_model(snapshot, "read")
        mask = mask & (snapshot.readings.codes[:, place] == code_of(snapshot, place, wanted.read))
    return mask


def _unknown(snapshot: Snapshot, concept: str) -> bool:
    raise unknown_name("concept", concept, snapshot.places)


def code_of(snapshot: Snapshot, place: int, value: str) -> int:
    """What stands in the codes for a value in words."""
    concept = snapshot.data.layout.concepts[place]
    if value == "missing":
        return -1
    if concept.type == "continuous":
        raise InputError(f"{concept.name!r} is a number; filter by 'missing' alone")
    if concept.type == "binary":
        if value not in ("present", "absent"):
            raise unknown_name("value", value, ("present", "absent", "missing"))
        return int(value == "present")
    if value not in concept.values:
        raise unknown_name(f"value of {concept.name!r}", value, concept.values)
    return concept.values.index(value)


def _wrong(snapshot: Snapshot, wanted: Filter) -> Mask:
    _needs_model(snapshot, "wrong")
    if wanted.concept is not None and wanted.concept in snapshot.places:
        by_concept: Mask = snapshot.concept_wrong[:, snapshot.places[wanted.concept]]
    else:
        by_concept = np.asarray(snapshot.concept_wrong.any(1))
    if wanted.wrong == "class":
        return snapshot.class_wrong
    return by_concept if wanted.wrong == "concept" else by_concept | snapshot.class_wrong


def _by_status(snapshot: Snapshot, wanted: Filter, mine: Mine) -> Mask:
    if wanted.concept is not None:
        known = {
            sample: one.status for (sample, concept), one in mine.by_question.items() if concept == wanted.concept
        }
    else:
        known = dict(mine.by_sample)
    if wanted.status == "open":
        return ~_named(snapshot, set(known))
    fits = {
        "staged": ("staged", "removed"),
        "unsure": ("unsure",),
        "answered": ("staged", "kept", "unsure", "removed"),
    }
    assert wanted.status is not None
    return _named(snapshot, {sample for sample, status in known.items() if status in fits[wanted.status]})


def _sorted(snapshot: Snapshot, rows: Rows, wanted: Filter, context: Context) -> Rows:
    sort = wanted.sort or ("similar" if wanted.near is not None else "id")
    if sort == "id":
        return rows
    if sort == "similar":
        if wanted.near is None:
            raise InputError("sorting by similarity needs a picture; name it with 'near'")
        _needs_model(snapshot, "near")
        return _by(rows, -snapshot.similar(snapshot.data.row(wanted.near)))
    _needs_model(snapshot, "sort")
    if sort == "suspicious":
        scores = context.scores()
        return rows if scores is None else _by(rows, -scores)
    if snapshot.data.predicts_number:
        return rows
    confidence = snapshot.readings.outputs.max(1).values.numpy()
    if sort == "uncertain":
        if wanted.concept in snapshot.places:
            concept = snapshot.data.layout.by_name[str(wanted.concept)]
            if concept.type == "binary":
                return _by(rows, np.abs(snapshot.readings.concepts[:, concept.columns[0]].numpy() - 0.5))
        return _by(rows, confidence)
    return _by(rows, -confidence)


def _by(rows: Rows, key: NDArray[Any]) -> Rows:
    return rows[np.argsort(key[rows], kind="stable")]


def words_of(snapshot: Snapshot, wanted: Filter, total: int) -> str:
    """The filter in words; if nothing fits, what to do."""
    thing = "picture" if snapshot.pictures else "row"
    parts = len(wanted.model_fields_set - {"sort", "near"})
    if total == 0:
        if parts == 0:
            return f"There is no {thing} in the data."
        one = f"No {thing} fits this filter. Take it away." if parts == 1 else ""
        return one or f"No {thing} fits all {parts} filters. Take one away."
    names = {"train": "training", "val": "validation", "test": "test"}
    words = [names[wanted.split]] if wanted.split else []
    words += [f"labelled {wanted.label}"] if wanted.label else []
    words += [f"read as {wanted.predicted}"] if wanted.predicted else []
    if wanted.concept:
        info = snapshot.info_by_name.get(wanted.concept)
        title = info.title if info is not None else spoken(wanted.concept)
        words.append(
            title + (f" {wanted.value}" if wanted.value else "") + (f", read {wanted.read}" if wanted.read else "")
        )
    words += [f"{'something' if wanted.wrong == 'yes' else wanted.wrong} read wrong"] if wanted.wrong else []
    words += [f"changed by version {wanted.changed}"] if wanted.changed is not None else []
    words += [wanted.status] if wanted.status else []
    words += [f"{wanted.unsure_by} is unsure"] if wanted.unsure_by else []
    words += [f"annotator {wanted.annotator}"] if wanted.annotator else []
    words += [f"id with {wanted.find!r}"] if wanted.find else []
    words += [f"most similar to {wanted.near}"] if wanted.near else []
    return ", ".join(words) or f"all {thing}s"
