"""What somebody has answered and staged, seen against the current version: staged, kept, unsure, or not fitting.

Whether an answer changes anything depends on the label it meets, so it is found out here and not stored: when
somebody else has corrected the same label meanwhile, an answer becomes one that keeps it.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import TYPE_CHECKING

from ecbm.keep.staged import StagedItem
from ecbm.show.serve.schemas import StagedCounts, Status, Value
from ecbm.words import counted

if TYPE_CHECKING:
    from ecbm.read.dataset import Dataset
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench

__all__ = ["Judged", "Mine", "label_now", "mine_of"]


def label_now(data: Dataset, sample: str, concept: str) -> Value:
    """The label that a sample has for a concept, as its type says it."""
    row = data.rows_by_id[sample]
    found = data.layout.by_name[concept]
    # As an array: a person may have thousands of answers, and picking single numbers out of a tensor is slow.
    labels = data.concepts.numpy()[row]
    value = found.value_of([float(labels[column]) for column in found.columns])
    return None if isinstance(value, float) and math.isnan(value) else value


def same(a: Value, b: Value) -> bool:
    """Whether two labels are the same; numbers as they are stored, in single precision."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    return a == b


@dataclasses.dataclass(frozen=True)
class Judged:
    """An item against the current version: its status, the label now, and why it does not fit, if so."""

    item: StagedItem
    status: Status
    now: Value = None
    why: str = ""


class Mine:
    """The items of one person against one version."""

    def __init__(self, snapshot: Snapshot, person: str, revision: int, items: list[StagedItem]) -> None:
        self.snapshot, self.person, self.revision = snapshot, person, revision
        self.open = [item for item in items if item.done is None]
        self.finished = [item for item in items if item.done is not None]

    @cached_property
    def added(self) -> list[str]:
        """Concepts that are being added."""
        return [item.concept for item in self.open if item.kind == "add_concept"]

    @cached_property
    def judged(self) -> list[Judged]:
        """Every open item, oldest first."""
        return [self._judge(item) for item in self.open]

    @cached_property
    def staged(self) -> list[Judged]:
        """What a commit would apply."""
        return [one for one in self.judged if one.status == "staged" and not one.why]

    @cached_property
    def conflicts(self) -> list[Judged]:
        """What no longer fits."""
        return [one for one in self.judged if one.why]

    @cached_property
    def unsure(self) -> list[Judged]:
        return [one for one in self.judged if one.status == "unsure"]

    @cached_property
    def by_question(self) -> dict[tuple[str, str], Judged]:
        """From sample and concept to the answer; one that a version has already counts as kept."""
        found = {(i.sample, i.concept): Judged(i, "kept") for i in self.finished if i.kind == "label"}
        found |= {(one.item.sample, one.item.concept): one for one in self.judged if one.item.kind == "label"}
        return found

    @cached_property
    def classes(self) -> dict[str, Judged]:
        found = {i.sample: Judged(i, "kept") for i in self.finished if i.kind == "class"}
        return found | {one.item.sample: one for one in self.judged if one.item.kind == "class"}

    @cached_property
    def removed(self) -> set[str]:
        return {one.item.sample for one in self.staged if one.item.kind == "remove_sample"}

    @cached_property
    def by_sample(self) -> dict[str, Status]:
        """The status of every sample about which something was said; the weightiest counts."""
        order: dict[Status, int] = {"plain": 0, "kept": 1, "unsure": 2, "staged": 3, "removed": 4}
        found: dict[str, Status] = {}
        for (sample, _), one in self.by_question.items():
            if order[one.status] > order[found.get(sample, "plain")]:
                found[sample] = one.status
        for sample, one in self.classes.items():
            if order[one.status] > order[found.get(sample, "plain")]:
                found[sample] = one.status
        return found | dict.fromkeys(self.removed, "removed")

    def status(self, sample: str, concept: str) -> Status:
        one = self.by_question.get((sample, concept))
        return one.status if one is not None else "plain"

    def class_status(self, sample: str) -> Status:
        one = self.classes.get(sample)
        return one.status if one is not None else "plain"

    @cached_property
    def counts(self) -> StagedCounts:
        """One line for the tray."""
        labels = [one.item for one in self.staged if one.item.kind in ("label", "class")]
        kinds = {kind: sum(one.item.kind == kind for one in self.staged) for kind in _WORDS}
        pictures = len({item.sample for item in labels})
        thing = "picture" if self.snapshot.pictures else "row"
        words = [f"{counted(len(labels), 'label')} of {counted(pictures, thing)}"] if labels else []
        words += [f"{counted(count, _WORDS[kind][0])} {_WORDS[kind][1]}" for kind, count in kinds.items() if count]
        return StagedCounts(
            total=len(self.staged),
            labels=len(labels),
            pictures=pictures,
            words=", ".join(words).replace("sample", thing),
            since=min((one.item.time for one in self.staged), default=None),
            conflicts=len(self.conflicts),
        )

    # -- one item ------------------------------------------------------------------------------------------

    def _judge(self, item: StagedItem) -> Judged:
        data = self.snapshot.data
        if item.sample and item.sample not in data.rows_by_id:
            return Judged(item, "staged", why="this picture is not in the data any more")
        if item.kind == "label":
            return self._judge_label(item)
        if item.kind == "class":
            row = data.rows_by_id[item.sample]
            now = data.label_of(row)
            if item.answer == "unsure":
                return Judged(item, "unsure", now)
            if data.predicts_number:
                return Judged(item, "kept" if same(float(item.value), now) else "staged", now)
            if item.value not in data.class_names:
                return Judged(item, "staged", now, f"there is no class {item.value!r} any more")
            if now == item.value:
                return Judged(item, "kept", now)
            return Judged(item, "staged", now, "" if now == item.before else f"somebody changed it to {now}")
        if item.kind == "add_concept":
            taken = item.concept in {*data.concept_names, *data.layout.by_name}
            return Judged(item, "staged", why="this concept exists already" if taken else "")
        if item.kind != "remove_sample" and item.concept not in data.layout.by_name:
            return Judged(item, "staged", why="this concept is not in the data any more")
        if item.kind == "merge_concepts" and item.value["other"] not in data.layout.by_name:
            return Judged(item, "staged", why=f"{item.value['other']!r} is not in the data any more")
        return Judged(item, "staged")

    def _judge_label(self, item: StagedItem) -> Judged:
        data = self.snapshot.data
        if item.concept in self.added and item.concept not in data.layout.by_name:
            return Judged(item, "unsure" if item.answer == "unsure" else "staged")
        if item.concept not in data.layout.by_name:
            return Judged(item, "staged", why="this concept is not in the data any more")
        now = label_now(data, item.sample, item.concept)
        if item.answer == "unsure":
            return Judged(item, "unsure", now)
        if same(now, item.value):
            return Judged(item, "kept", now)
        if same(now, item.before):
            return Judged(item, "staged", now)
        return Judged(item, "staged", now, "somebody changed this label meanwhile")


_WORDS = {
    "remove_sample": ("sample", "removed"),
    "remove_concept": ("concept", "removed"),
    "rename_concept": ("concept", "renamed"),
    "merge_concepts": ("pair of concepts", "merged"),
    "add_concept": ("concept", "added"),
}


def mine_of(bench: Bench, snapshot: Snapshot, person: str) -> Mine:
    """The items of somebody, read again only when something was staged."""
    revision = bench.staged.revision()
    key = ("mine", person)
    known: Mine | None = snapshot.kept.get(key)
    if known is None or known.revision != revision:
        known = Mine(snapshot, person, revision, bench.staged.items(person))
        snapshot.kept[key] = known
    return known
