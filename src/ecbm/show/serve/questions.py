"""The queue: suspicious labels in a window, and everything beside the picture of one question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray

from ecbm.show.serve.filters import QueueQuery, query_of
from ecbm.show.serve.learning import ordered_for
from ecbm.show.serve.needs import BenchNeed, PersonNeed, ordered_rows
from ecbm.show.serve.queue import Suspicion, job_of
from ecbm.show.serve.schemas import (
    Count,
    LooksLike,
    Question,
    QuestionDetail,
    Queue,
    Reason,
    ShownShare,
    Status,
    Tile,
    Value,
)
from ecbm.show.serve.staging import Mine, mine_of
from ecbm.show.serve.tiles import fields_of, label_of, picture_address, ref_of, thumb_address, tile_of
from ecbm.show.serve.words import for_people, label_words, number_words

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["looks_like", "router"]

router = APIRouter()
_NEIGHBOURS = 15
_SHOWN_NEIGHBOURS = 6
_EXAMPLES = 4


@router.get("/api/queue")
def queue(bench: BenchNeed, person: PersonNeed, asked: QueueQuery) -> Queue:
    """One window of suspicious labels, most likely wrong first; answered ones keep their place."""
    snapshot = bench.trained()
    mine = mine_of(bench, snapshot, person)
    found = ordered_for(bench, snapshot, person, asked.ranking)
    wanted = asked.filter()
    if found is None:
        return Queue(
            version=snapshot.number, revision=mine.revision, ready=False, job=job_of(snapshot), total=0, answered=0,
            offset=asked.offset, items=[], concepts=[], words="Looking for suspicious labels …",
        )  # fmt: skip
    # The status is that of a question here, and not that of a picture.
    samples = wanted.model_copy(update={"status": None, "concept": None, "value": None, "read": None, "sort": None})
    rows = ordered_rows(bench, snapshot, mine, samples)
    fits = np.zeros(len(snapshot.data), bool)
    fits[rows] = True
    place = snapshot.data.rows_by_id
    inside = [one for one in found if one.sample in place and fits[place[one.sample]]]
    counts = _by_title(snapshot, inside)
    if wanted.concept is not None:
        inside = [one for one in inside if one.concept == wanted.concept]
        if wanted.value is not None:
            rows = ordered_rows(bench, snapshot, mine, wanted.model_copy(update={"status": None, "sort": None}))
            labelled = set(rows.tolist())
            inside = [one for one in inside if place[one.sample] in labelled]
    statuses = [status_of(mine, one) for one in inside]
    if wanted.status is not None:
        keep = [i for i, status in enumerate(statuses) if _fits(status, wanted.status)]
        inside, statuses = [inside[i] for i in keep], [statuses[i] for i in keep]
    window = slice(asked.offset, asked.offset + asked.limit)
    return Queue(
        version=snapshot.number,
        revision=mine.revision,
        ready=True,
        job=None,
        total=len(inside),
        answered=sum(status != "plain" for status in statuses),
        offset=asked.offset,
        items=[question_of(snapshot, mine, one) for one in inside[window]],
        concepts=counts,
        words=_words(len(inside), wanted.concept),
    )


def _words(total: int, concept: str | None) -> str:
    if total:
        return f"{total:,} suspicious labels, most likely wrong first"
    other = "Choose another concept, or look" if concept is not None else "Look"
    return f"Nothing suspicious is left here. {other} at what you have staged."


def _fits(status: Status, wanted: str) -> bool:
    if wanted == "open":
        return status == "plain"
    return status == wanted if wanted != "answered" else status != "plain"


def status_of(mine: Mine, one: Suspicion) -> Status:
    """What the person has said about a suspicious label."""
    if one.concept is not None:
        return mine.status(one.sample, one.concept)
    return mine.class_status(one.sample)


def staged_value(mine: Mine, one: Suspicion) -> Value:
    """The label that the person has staged for it."""
    found = mine.classes.get(one.sample) if one.concept is None else mine.by_question.get((one.sample, one.concept))
    value: Value = found.item.value if found is not None and found.status == "staged" else None
    return value


def _by_title(snapshot: Snapshot, found: list[Suspicion]) -> list[Count]:
    counts: dict[str, int] = {}
    for one in found:
        if one.concept is not None:
            counts[one.concept] = counts.get(one.concept, 0) + 1
    return [
        Count(name=name, count=count, query=query_of(concept=name))
        for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def question_of(snapshot: Snapshot, mine: Mine, one: Suspicion) -> Question:
    """A suspicious label as a question."""
    row = snapshot.data.rows_by_id[one.sample]
    if one.concept is None:
        title, label, predicted = "Class", snapshot.label_text(row), snapshot.predicted_text(row) or ""
    else:
        place = snapshot.places[one.concept]
        shown = label_of(snapshot, row, place, None)
        title, label, predicted = snapshot.infos[place].title, shown.label_words, shown.predicted_words
    return Question(
        id=one.sample,
        concept=one.concept,
        title=title,
        thumb=thumb_address(snapshot, row),
        split=snapshot.data.splits[row],
        score=one.score,
        why=for_people(one.reasons[0], snapshot.pictures)
        if one.reasons
        else f"the model says {predicted}, the label {label}",
        label_words=label,
        predicted_words=predicted,
        status=status_of(mine, one),
        staged=staged_value(mine, one),
        fields=fields_of(snapshot, row, 6),
    )


@router.get("/api/question")
def question(
    bench: BenchNeed,
    person: PersonNeed,
    id: Annotated[str, Query(max_length=500)],
    concept: Annotated[str | None, Query(max_length=500)] = None,
    ranking: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> QuestionDetail:
    """Everything beside the picture of one question; also of one that is not suspicious."""
    snapshot = bench.trained()
    row = snapshot.data.row(id)
    if concept is not None:
        snapshot.data.concept(concept)
    mine = mine_of(bench, snapshot, person)
    ranked = ordered_for(bench, snapshot, person, ranking) or []
    found = next((one for one in ranked if one.sample == id and one.concept == concept), None)
    shown = found or Suspicion(id, concept, 0.0, 0.0)
    return QuestionDetail(
        question=question_of(snapshot, mine, shown),
        picture=picture_address(snapshot, row),
        label=None if concept is None else label_of(snapshot, row, snapshot.places[concept], mine),
        class_label=snapshot.label_text(row),
        class_predicted=snapshot.predicted_text(row),
        annotator=bench.annotators.get(id),
        reasons=_reasons(bench, snapshot, mine, row, concept, found),
        looks_like=None if concept is None else looks_like(snapshot, concept, _EXAMPLES),
    )


def _reasons(
    bench: Bench, snapshot: Snapshot, mine: Mine, row: int, concept: str | None, found: Suspicion | None
) -> list[Reason]:
    """Why a label is here: the words of what found it, drawn where they are about what can be drawn."""
    texts = list(found.reasons) if found is not None else []
    if concept is None:
        return [Reason(kind="words", words=_sentence(text)) for text in texts]
    place = snapshot.places[concept]
    shown = label_of(snapshot, row, place, mine)
    label = "there is no label" if shown.label_words == "missing" else f"the label {shown.label_words}"
    words = f"The model says {shown.predicted_words}, {label}"
    binary = snapshot.data.layout.concepts[place].type == "binary"
    share = "present" if binary else shown.predicted_words
    shares = [] if shown.probability is None else [ShownShare(name=share, share=shown.probability)]
    drawn = [Reason(kind="model", words=words, shares=shares)]
    drawn += [
        one for one in (_near(snapshot, mine, row, place), _in_class(snapshot, row, place)) if one is not None
    ]
    drawn += _by_annotator(bench, snapshot, row, place)
    marks = {
        "model": "without this sample the model",
        "neighbours": "nearest neighbours",
        "class": f"% of {snapshot.label_text(row)}",
    }
    reasons: list[Reason] = []
    for text in texts:
        # Said once: a drawing of the same thing goes with the words.
        fits = [one for one in drawn if one.kind in marks and marks[one.kind] in text]
        if fits:
            drawn.remove(fits[0])
        own = fits[0] if fits else Reason(kind="words", words="")
        told = _sentence(for_people(text, snapshot.pictures))
        reasons.append(own.model_copy(update={"words": told, "note": _note(own, text)}))
    return [*reasons, *drawn]


def _note(drawn: Reason, text: str) -> str:
    """Why a drawing of labels as they are says another number than the words of who looked for errors in them."""
    if drawn.kind == "model" and drawn.shares:
        return "" if f"{100 * drawn.shares[0].share:.0f} %" in text else "As it reads it now:"
    if drawn.kind in ("neighbours", "class") and drawn.shares:
        share = drawn.shares[0]
        near = drawn.kind == "neighbours"
        same = f"{share.count} of its {share.of} " if near else f"{100 * share.share:.0f} %"
        return "" if text.startswith(same) else "Likely errors put right. As labelled now:"
    return ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _near(snapshot: Snapshot, mine: Mine, row: int, place: int) -> Reason | None:
    """What the most similar training pictures are labelled."""
    alike = snapshot.similar(row)
    rows = snapshot.rows("train")
    rows = rows[(rows != row) & (snapshot.label_codes[rows, place] >= 0)]
    rows = rows[np.argsort(-alike[rows], kind="stable")[:_NEIGHBOURS]]
    if not len(rows):
        return None
    concept = snapshot.data.layout.concepts[place]
    if concept.type == "continuous":
        return _near_numbers(snapshot, mine, row, place, rows)
    code = int(snapshot.label_codes[row, place])
    same = int((snapshot.label_codes[rows, place] == code).sum())
    other = len(rows) - same
    thing = "pictures" if snapshot.pictures else "records"
    value = concept.value_of([float(snapshot.data.concepts[row, column]) for column in concept.columns])
    words = f"{other} of the {len(rows)} most similar {thing} are labelled otherwise"
    words += "" if code < 0 else f" than {label_words(concept, value)}"
    examples = _tiles(snapshot, mine, place, rows, alike)
    shares = [ShownShare(name="labelled otherwise", count=other, of=len(rows), share=other / len(rows))]
    return Reason(kind="neighbours", words=words, shares=shares, examples=examples)


def _tiles(
    snapshot: Snapshot, mine: Mine, place: int, rows: NDArray[np.int64], alike: NDArray[np.float32]
) -> list[Tile]:
    name = snapshot.data.layout.concepts[place].name
    return [
        tile_of(snapshot, one, mine, place, concept=name, similarity=float(alike[one]))
        for one in rows[:_SHOWN_NEIGHBOURS].tolist()
    ]


def _near_numbers(snapshot: Snapshot, mine: Mine, row: int, place: int, rows: NDArray[np.int64]) -> Reason:
    """Between which numbers the most similar samples are labelled."""
    concept = snapshot.data.layout.concepts[place]
    known = snapshot.data.concepts[rows, concept.columns[0]].numpy()
    low, middle, high = (number_words(float(one), concept.unit) for one in np.quantile(known, [0, 0.5, 1]))
    thing = "pictures" if snapshot.pictures else "records"
    words = f"The {len(rows)} most similar {thing} are labelled {low} to {high}, half of them below {middle}"
    return Reason(
        kind="neighbours", words=words, examples=_tiles(snapshot, mine, place, rows, snapshot.similar(row))
    )


def _in_class(snapshot: Snapshot, row: int, place: int) -> Reason | None:
    """How often the class has the concept, against the other classes."""
    if snapshot.data.predicts_number or snapshot.data.layout.concepts[place].type != "binary":
        return None
    rows = snapshot.rows("train")
    rows = rows[snapshot.label_codes[rows, place] >= 0]
    own = snapshot.labels[rows] == snapshot.labels[row]
    if not own.any() or own.all():
        return None
    present = snapshot.label_codes[rows, place] == 1
    name, title = snapshot.label_text(row), snapshot.infos[place].title
    mine, theirs = float(present[own].mean()), float(present[~own].mean())
    words = f"{mine:.0%} of {name} are labelled with {title}, {theirs:.0%} of the other classes"
    shares = [
        ShownShare(name=name, count=int(present[own].sum()), of=int(own.sum()), share=mine),
        ShownShare(name="other classes", count=int(present[~own].sum()), of=int((~own).sum()), share=theirs),
    ]
    return Reason(kind="class", words=words, shares=shares)


def _by_annotator(bench: Bench, snapshot: Snapshot, row: int, place: int) -> list[Reason]:
    """How often each annotator labels the concept absent where the model sees it."""
    own = bench.annotators.get(snapshot.data.ids[row])
    if own is None or snapshot.data.layout.concepts[place].type != "binary":
        return []
    rows = snapshot.rows("train")
    code = int(snapshot.label_codes[row, place])
    rows = rows[(snapshot.label_codes[rows, place] >= 0) & (snapshot.readings.codes[rows, place] != code)]
    people = np.array([bench.annotators.get(snapshot.data.ids[one], "") for one in rows.tolist()])
    shares = []
    for name in sorted(set(people.tolist()) - {""}):
        theirs = rows[people == name]
        count = int((snapshot.label_codes[theirs, place] == code).sum())
        shares.append(ShownShare(name=name, count=count, of=len(theirs), share=count / len(theirs)))
    words = f"Labelled like this where the model sees otherwise, by annotator; this one is by {own}"
    return [Reason(kind="annotator", words=words, shares=shares)] if len(shares) > 1 else []


def looks_like(snapshot: Snapshot, name: str, most: int) -> LooksLike | None:
    """Examples of a binary concept on training pictures where model and label agree, the surest first."""
    place = snapshot.places[name]
    concept = snapshot.data.layout.concepts[place]
    if concept.type != "binary":
        return None
    rows = snapshot.rows("train")
    read = snapshot.readings.concepts[:, concept.columns[0]].numpy()
    parts = []
    for code, sign in ((1, -1.0), (0, 1.0)):
        own = rows[snapshot.label_codes[rows, place] == code]
        agreeing = own[snapshot.readings.codes[own, place] == code]
        agreeing = agreeing[np.argsort(sign * read[agreeing], kind="stable")]
        parts.append(([ref_of(snapshot, one) for one in _spread(snapshot, agreeing, most)], len(own)))
    return LooksLike(
        present=parts[0][0],
        absent=parts[1][0],
        present_query=query_of(split="train", concept=name, value="present"),
        absent_query=query_of(split="train", concept=name, value="absent"),
        present_count=parts[0][1],
        absent_count=parts[1][1],
    )


def _spread(snapshot: Snapshot, rows: NDArray[np.int64], most: int) -> list[int]:
    """The first rows, one of each class before the second of any."""
    if snapshot.data.predicts_number:
        return [int(row) for row in rows[:most]]
    seen: dict[int, int] = {}
    ranked = []
    for place, row in enumerate(rows[: 50 * most].tolist()):
        label = int(snapshot.labels[row])
        seen[label] = seen.get(label, 0) + 1
        ranked.append((seen[label], place, row))
    return [row for _, _, row in sorted(ranked)[:most]]
