"""One sample: what the model sees, what the labels say, how concepts push classes; and trying values by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.pictures import similar_to
from ecbm.show.serve.schemas import ClassScore, Group, Label, Part, SampleView, Tried, Try
from ecbm.show.serve.staging import mine_of
from ecbm.show.serve.tiles import fields_of, label_of, picture_address, thumb_address

if TYPE_CHECKING:
    from torch import Tensor

    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["class_scores", "router"]

router = APIRouter()
_SIMILAR = 8
_MOST_CLASSES = 200


@router.get("/api/sample")
def sample(
    bench: BenchNeed,
    person: PersonNeed,
    id: Annotated[str, Query(max_length=500)],
    class_name: Annotated[
        str | None, Query(max_length=500, description="A class whose parts are wanted, too.")
    ] = None,
) -> SampleView:
    """Everything about one picture."""
    snapshot = bench.trained()
    data, row = snapshot.data, snapshot.data.row(id)
    mine = mine_of(bench, snapshot, person)
    wanted = [] if class_name is None or data.predicts_number else [data.class_index(class_name)]
    judged = mine.classes.get(id)
    shape = tuple(data.inputs.shape)
    return SampleView(
        version=snapshot.number,
        revision=mine.revision,
        id=id,
        picture=picture_address(snapshot, row),
        thumb=thumb_address(snapshot, row),
        width=shape[2] if snapshot.pictures else None,
        height=shape[1] if snapshot.pictures else None,
        fields=fields_of(snapshot, row),
        split=data.splits[row],
        label=snapshot.label_text(row),
        predicted=snapshot.predicted_text(row),
        right=None if data.predicts_number else not bool(snapshot.class_wrong[row]),
        annotator=bench.annotators.get(id),
        status=mine.by_sample.get(id, "plain"),
        class_status=judged.status if judged is not None else "plain",
        class_staged=str(judged.item.value) if judged is not None and judged.status == "staged" else None,
        number=float(snapshot.readings.outputs[row, 0]) if data.predicts_number else None,
        groups=_groups(
            snapshot, [label_of(snapshot, row, place, mine) for place in range(len(data.layout.concepts))]
        ),
        classes=class_scores(snapshot, row, snapshot.readings.bottleneck[row], wanted),
        similar=similar_to(snapshot, row, "train", _SIMILAR),
    )


def _groups(snapshot: Snapshot, labels: Sequence[Label]) -> list[Group]:
    """Labels by group; concepts that are alone in theirs come together at the end."""
    found: dict[str, list[Label]] = {}
    titles: dict[str, str] = {}
    for info, label in zip(snapshot.infos, labels, strict=True):
        found.setdefault(info.group, []).append(label)
        titles[info.group] = info.group_title
    groups = [Group(name=name, title=titles[name], labels=own) for name, own in found.items() if len(own) > 1]
    alone = [label for own in found.values() if len(own) == 1 for label in own]
    if alone:
        groups.append(Group(name="", title="Single marks" if groups else "Concepts", labels=alone))
    return groups


def class_scores(snapshot: Snapshot, row: int, bottleneck: Tensor, wanted: Sequence[int] = ()) -> list[ClassScore]:
    """Every class, likeliest as predicted first; the first two, the label and the wanted ones have their parts."""
    model, data = snapshot.model, snapshot.data
    weight, bias = model.label_head.weight.detach(), model.label_head.bias.detach()
    scores = weight @ bottleneck + bias
    outputs = model.outputs_from(scores[None])[0]
    if data.predicts_number:
        assert model.target_scaling is not None
        mean, scale = model.target_scaling.tolist()
        # In the number's own unit, so that the parts add up to what is shown.
        parts = _parts(snapshot, weight[0] * scale, bottleneck)
        start = mean + scale * float(bias[0])
        score = float(outputs[0])
        return [ClassScore(name=data.class_names[0], probability=None, score=score, start=start, parts=parts)]
    order = snapshot.readings.outputs[row].argsort(descending=True, stable=True).tolist()
    full = {*order[:2], int(snapshot.labels[row]), *wanted}
    shown = order[:_MOST_CLASSES] + [one for one in order[_MOST_CLASSES:] if one in full]
    return [
        ClassScore(
            name=data.class_names[one],
            probability=float(outputs[one]),
            score=float(scores[one]),
            start=float(bias[one]),
            parts=_parts(snapshot, weight[one], bottleneck) if one in full else [],
        )
        for one in shown
    ]


def _parts(snapshot: Snapshot, weight: Tensor, bottleneck: Tensor) -> list[Part]:
    adds = (weight * bottleneck).tolist()
    found = []
    for info, concept in zip(snapshot.infos, snapshot.data.layout.concepts, strict=True):
        single = len(concept.columns) == 1
        # Of several columns, the one that stands out: the value that is read.
        value = max(float(bottleneck[column]) for column in concept.columns)
        found.append(
            Part(
                concept=concept.name,
                title=info.title,
                value=value,
                weight=float(weight[concept.columns[0]]) if single else None,
                adds=sum(adds[column] for column in concept.columns),
            )
        )
    return sorted(found, key=lambda part: -abs(part.adds))


@router.post("/api/try")
def try_values(bench: BenchNeed, given: Try) -> Tried:
    """What the class would be if concepts had other values. Nothing is kept."""
    snapshot = bench.trained()
    row = snapshot.data.row(given.id)
    model = snapshot.model
    bottleneck = snapshot.readings.bottleneck[row : row + 1].clone()
    for column, numbers in model.resolve_intervention(given.values, 1).items():
        filled = numbers[:, None].expand(-1, len(model.concept_names))
        bottleneck[:, column] = model.concept_values(filled)[:, column]
    classes = class_scores(snapshot, row, bottleneck[0])
    if snapshot.data.predicts_number:
        number = classes[0].score
        return Tried(
            version=snapshot.number, classes=classes, predicted=f"{number:.4g} {snapshot.data.target_unit}".strip(),
            number=number,
        )  # fmt: skip
    best = max(classes, key=lambda one: one.score)
    return Tried(version=snapshot.number, classes=classes, predicted=best.name, number=None)
