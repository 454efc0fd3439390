"""Pictures, rows of tables and labels as the page draws them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from urllib.parse import quote

from ecbm.show.serve.schemas import Field_, Label, Ref, Tile, Value
from ecbm.show.serve.words import label_words

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.staging import Mine

__all__ = ["fields_of", "label_of", "picture_address", "ref_of", "thumb_address", "tile_of"]

_FIELDS_ON_A_TILE = 6


def thumb_address(snapshot: Snapshot, row: int) -> str | None:
    """Where the small picture of a row is; its digest makes the address change with the picture."""
    if not snapshot.pictures:
        return None
    return f"/picture?id={quote(snapshot.data.ids[row], safe='')}&size=thumb&v={snapshot.digest(row)}"


def picture_address(snapshot: Snapshot, row: int) -> str | None:
    """Where the full picture of a row is."""
    if not snapshot.pictures:
        return None
    return f"/picture?id={quote(snapshot.data.ids[row], safe='')}&size=full&v={snapshot.digest(row)}"


def ref_of(snapshot: Snapshot, row: int) -> Ref:
    return Ref(id=snapshot.data.ids[row], thumb=thumb_address(snapshot, row), label=snapshot.label_text(row))


def fields_of(snapshot: Snapshot, row: int, most: int | None = None) -> list[Field_]:
    """The fields of a row of a table, as they were read; columns of words have their word back."""
    if snapshot.pictures:
        return []
    from ecbm.read.inputs import TensorInputs  # loads torch, which the first page does without

    inputs = snapshot.data.inputs
    values = inputs.raw([row])[0].flatten().tolist()
    columns = inputs.columns if isinstance(inputs, TensorInputs) else None
    if columns is None:
        names = [f"feature {number}" for number in range(1, len(values[:most]) + 1)]
        return [Field_(name=name, value=_number(value)) for name, value in zip(names, values[:most], strict=True)]
    found: list[Field_] = []
    at = 0
    for column in columns.columns[:most]:
        own = values[at : at + len(column.names)]
        at += len(own)
        if column.values:
            word = next((word for word, value in zip(column.values, own, strict=True) if value >= 0.5), None)
            found.append(Field_(name=column.name, value=word))
        else:
            found.append(Field_(name=column.name, value=_number(own[0])))
    return found


def _number(value: float) -> Value:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def label_of(snapshot: Snapshot, row: int, place: int, mine: Mine | None) -> Label:
    """One concept of one sample: what the model says, what the label is, what is staged."""
    concept = snapshot.data.layout.concepts[place]
    columns = list(concept.columns)
    given = concept.value_of([float(snapshot.data.concepts[row, column]) for column in columns])
    values = snapshot.readings.concepts[row, columns].tolist()
    read = concept.value_of(values)
    probabilities: dict[str, float] = {}
    probability: float | None = None
    if concept.type == "binary":
        probability, read_words = values[0], "present" if values[0] >= 0.5 else "absent"
    else:
        read_words = label_words(concept, read)
        if concept.type == "categorical":
            probabilities = dict(zip(concept.values, values, strict=True))
        elif concept.type == "ordinal":
            # Cumulative: the chance of a grade is the step between two thresholds.
            steps = [1.0, *values, 0.0]
            probabilities = {
                grade: max(0.0, steps[number] - steps[number + 1]) for number, grade in enumerate(concept.values)
            }
        if probabilities:
            code = int(snapshot.readings.codes[row, place])
            probability = probabilities[concept.values[code]]
    judged = mine.by_question.get((snapshot.data.ids[row], concept.name)) if mine is not None else None
    staged = judged is not None and judged.status == "staged"
    return Label(
        concept=concept.name,
        label=given,
        label_words=label_words(concept, given),
        predicted=read,
        predicted_words=read_words,
        probability=probability,
        probabilities=probabilities,
        wrong=bool(snapshot.concept_wrong[row, place]),
        status=judged.status if judged is not None else "plain",
        staged=judged.item.value if staged and judged is not None else None,
    )


def tile_of(
    snapshot: Snapshot,
    row: int,
    mine: Mine,
    place: int | None = None,
    *,
    concept: str | None = None,
    similarity: float | None = None,
    score: float | None = None,
) -> Tile:
    """One picture of a grid; with a concept, its status is that of the question about it."""
    sample = snapshot.data.ids[row]
    trained = snapshot.trained
    number = snapshot.data.predicts_number
    status = mine.by_sample.get(sample, "plain") if concept is None else mine.status(sample, concept)
    return Tile(
        id=sample,
        thumb=thumb_address(snapshot, row),
        split=snapshot.data.splits[row],
        label=snapshot.label_text(row),
        predicted=snapshot.predicted_text(row),
        right=None if not trained or number else not bool(snapshot.class_wrong[row]),
        confidence=None if not trained or number else float(snapshot.readings.outputs[row].max()),
        status=status,
        concept=label_of(snapshot, row, place, mine) if place is not None and trained else None,
        similarity=similarity,
        score=score,
        fields=fields_of(snapshot, row, _FIELDS_ON_A_TILE),
    )
