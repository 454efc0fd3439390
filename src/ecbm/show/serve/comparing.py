"""Two models side by side on the validation samples that both have: figures, flips, readings that change sides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ecbm.show.serve.changes import Flip, MetricChange, Reading, ReadingChanges
from ecbm.show.serve.filters import query_of
from ecbm.show.serve.snapshot import Readings, coded
from ecbm.show.serve.tiles import picture_address, ref_of, thumb_address
from ecbm.show.serve.words import number_words

if TYPE_CHECKING:
    from ecbm.read.concept_types import Concept
    from ecbm.read.dataset import Dataset
    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["Pair", "Side"]

_MOST_FLIPS = 200
_MOST_EXAMPLES = 24
_BECAUSE = 3
_OUTCOMES = ("becomes_right", "becomes_wrong", "stays_wrong")
# Readings that move less are noise beside those that turn.
_MOVED = 0.05


@dataclasses.dataclass(frozen=True)
class Side:
    """What one model says about some samples of its data."""

    data: Dataset
    readings: Readings
    rows: NDArray[np.int64]


class Pair:
    """Before and after, on the samples of a split that both have.

    Parameters
    ----------
    shown
        Where pictures are taken from.
    before, after
        The two sides; rows of both are the same samples in the same order.
    split
        The split that they are of.
    """

    def __init__(self, shown: Snapshot, before: Side, after: Side, split: str) -> None:
        self.shown, self.before, self.after, self.split = shown, before, after, split
        self.ids = [before.data.ids[row] for row in before.rows.tolist()]

    @property
    def of(self) -> int:
        return len(self.ids)

    # -- classes -------------------------------------------------------------------------------------------

    def _said(self, side: Side) -> NDArray[np.int64]:
        return side.readings.predicted[side.rows]

    def _labels(self, side: Side) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = side.data.labels.numpy()[side.rows]
        return labels

    def flips(self) -> tuple[list[Flip], dict[str, int]]:
        """Samples whose class changes, those that become wrong first; and how many of each outcome."""
        if self.before.data.predicts_number:
            return [], dict.fromkeys(_OUTCOMES, 0)
        names = self.before.data.class_names, self.after.data.class_names
        old = np.array(names[0])[self._said(self.before)]
        new = np.array(names[1])[self._said(self.after)]
        truth = np.array(names[1])[self._labels(self.after)]
        places = np.flatnonzero(old != new)
        outcome = np.where(new == truth, "becomes_right", np.where(old == truth, "becomes_wrong", "stays_wrong"))
        counts = {
            name: int((outcome[places] == name).sum()) for name in ("becomes_right", "becomes_wrong", "stays_wrong")
        }
        order = {"becomes_wrong": 0, "becomes_right": 1, "stays_wrong": 2}
        ranked = sorted(places.tolist(), key=lambda place: (order[str(outcome[place])], place))
        found = []
        for place in ranked[:_MOST_FLIPS]:
            row = self.shown.data.rows_by_id.get(self.ids[place])
            before = self.before.readings.outputs[self.before.rows[place]]
            after = self.after.readings.outputs[self.after.rows[place]]
            found.append(
                Flip(
                    id=self.ids[place],
                    thumb=None if row is None else thumb_address(self.shown, row),
                    picture=None if row is None else picture_address(self.shown, row),
                    label=str(truth[place]),
                    before=str(old[place]),
                    before_probability=float(before[names[0].index(str(old[place]))]),
                    after=str(new[place]),
                    after_probability=float(after[names[1].index(str(new[place]))]),
                    outcome=str(outcome[place]),  # type: ignore[arg-type]
                    because=self._because(place),
                )
            )
        return found, counts

    def _because(self, place: int) -> list[Reading]:
        """The binary concepts whose readings moved most."""
        moves = []
        for name, one, other in self._shared():
            if one.type != "binary":
                continue
            before = float(self.before.readings.concepts[self.before.rows[place], one.columns[0]])
            after = float(self.after.readings.concepts[self.after.rows[place], other.columns[0]])
            if abs(after - before) >= _MOVED:
                moves.append(Reading(concept=name, title=self._title(name), before=before, after=after))
        return sorted(moves, key=lambda one: -abs(one.after - one.before))[:_BECAUSE]

    # -- concepts ------------------------------------------------------------------------------------------

    def _shared(self) -> list[tuple[str, Concept, Concept]]:
        """Concepts that both have, with the same values."""
        old, new = self.before.data.layout.by_name, self.after.data.layout.by_name
        both = [(name, old[name], new[name]) for name in old if name in new]
        return [one for one in both if one[1].values == one[2].values]

    def _title(self, name: str) -> str:
        info = self.shown.info_by_name.get(name)
        return info.title if info is not None else name

    def readings(self) -> tuple[list[ReadingChanges], int, int]:
        """Concepts whose readings change sides, most first; how many readings change, of how many."""
        found: list[ReadingChanges] = []
        changed = total = 0
        for name, one, other in self._shared():
            if one.type == "continuous":
                continue
            old = coded((one,), self.before.readings.concepts[self.before.rows])[:, 0]
            new = coded((other,), self.after.readings.concepts[self.after.rows])[:, 0]
            truth = coded((other,), self.after.data.concepts[self.after.rows])[:, 0]
            places = np.flatnonzero(old != new)
            total += len(old)
            changed += len(places)
            if not len(places):
                continue
            known = places[truth[places] >= 0]
            found.append(
                ReadingChanges(
                    concept=name,
                    title=self._title(name),
                    count=len(places),
                    becomes_right=int((new[known] == truth[known]).sum()),
                    becomes_wrong=int((old[known] == truth[known]).sum()),
                    examples=[
                        ref_of(self.shown, self.shown.data.rows_by_id[self.ids[place]])
                        for place in places.tolist()
                        if self.ids[place] in self.shown.data.rows_by_id
                    ][:_MOST_EXAMPLES],
                )
            )
        return sorted(found, key=lambda one: (-one.count, one.concept)), changed, total

    # -- figures -------------------------------------------------------------------------------------------

    def metrics(self) -> tuple[list[MetricChange], int]:
        """Classes, concepts, then single concepts that change; and how many concepts do not."""
        found = [self._classes()]
        single: list[MetricChange] = []
        totals = np.zeros(4, np.int64)
        unchanged = 0
        for name, one, other in self._shared():
            if one.type == "continuous":
                continue
            counts = *self._right(self.before, one), *self._right(self.after, other)
            totals += np.array(counts)
            before, after = _share(*counts[:2]), _share(*counts[2:])
            if counts[:2] == counts[2:]:
                unchanged += 1
                continue
            single.append(
                MetricChange(
                    name=name, title=self._title(name), before=before, after=after, right_before=counts[0],
                    right_after=counts[2], of=counts[3],
                    query=query_of(split=self.split, concept=name, wrong="concept"),
                )
            )  # fmt: skip
        r0, n0, r1, n1 = (int(value) for value in totals)
        if n1:
            found.append(
                MetricChange(
                    name="concepts", title="Concepts", before=_share(r0, n0), after=_share(r1, n1), right_before=r0,
                    right_after=r1, of=n1, query=query_of(split=self.split, wrong="concept"),
                )
            )  # fmt: skip
        single.sort(key=lambda one: (-abs((one.after or 0) - (one.before or 0)), one.name))
        return found + single, unchanged

    def _classes(self) -> MetricChange:
        if self.before.data.predicts_number:
            errors = [
                float(
                    np.abs(side.readings.outputs[side.rows, 0].numpy() - side.data.labels.numpy()[side.rows]).mean()
                )
                for side in (self.before, self.after)
            ]
            return MetricChange(
                name="error", title=f"Mean error of {self.before.data.class_names[0]}", before=errors[0],
                after=errors[1], right_before=None, right_after=None, of=self.of, unit=self.before.data.target_unit,
                query=query_of(split=self.split),
            )  # fmt: skip
        right = [int((self._said(side) == self._labels(side)).sum()) for side in (self.before, self.after)]
        return MetricChange(
            name="classes", title="Classes", before=_share(right[0], self.of), after=_share(right[1], self.of),
            right_before=right[0], right_after=right[1], of=self.of,
            query=query_of(split=self.split, wrong="class"),
        )  # fmt: skip

    def _right(self, side: Side, concept: Concept) -> tuple[int, int]:
        read = coded((concept,), side.readings.concepts[side.rows])[:, 0]
        truth = coded((concept,), side.data.concepts[side.rows])[:, 0]
        known = truth >= 0
        return int((read[known] == truth[known]).sum()), int(known.sum())

    def largest_change(self) -> float | None:
        """How far a predicted number moves at most, in its unit."""
        if not self.before.data.predicts_number or not self.of:
            return None
        old = self.before.readings.outputs[self.before.rows, 0]
        new = self.after.readings.outputs[self.after.rows, 0]
        return float((old - new).abs().max())

    def words(self, counts: dict[str, int], would: str = "would change") -> str:
        """What happens to predictions, in one sentence."""
        names = {"val": "validation", "train": "training", "test": "test"}
        thing = f"{names[self.split]} {'pictures' if self.shown.pictures else 'records'}"
        moved = self.largest_change()
        if moved is not None:
            text = number_words(moved, self.before.data.target_unit)
            move = "moved" if would == "changed" else "would move"
            return f"Predictions of {self.of} {thing} {move} by at most {text}"
        total = sum(counts.values())
        return f"{total or 'None'} of {self.of} {thing} {would} class"


def _share(right: int, of: int) -> float | None:
    return right / of if of else None
