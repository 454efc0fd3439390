"""The staged edit as a list that can be read and trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ecbm.show.serve.staged_schemas import Staged, StagedGroup, StagedItem
from ecbm.show.serve.tiles import thumb_address
from ecbm.show.serve.words import label_words, number_words, spoken

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.staging import Judged, Mine

__all__ = ["group_key", "item_view", "staged_view"]

_MOST_ITEMS = 200


def group_key(judged: Judged) -> str:
    """What is drawn together: labels of one concept and one direction."""
    item = judged.item
    if item.kind == "label":
        return f"label|{item.concept}|{item.before}|{item.value}|{item.answer == 'unsure'}"
    return f"class|{item.before}|{item.value}" if item.kind == "class" else item.kind


def item_view(snapshot: Snapshot, judged: Judged) -> StagedItem:
    """One item for the page."""
    item, data = judged.item, snapshot.data
    row = data.rows_by_id.get(item.sample) if item.sample else None
    info = snapshot.info_by_name.get(item.concept)
    title = info.title if info is not None else spoken(item.concept)
    before = after = ""
    if item.kind == "label":
        concept = data.layout.by_name.get(item.concept)
        if concept is not None:
            before, after = label_words(concept, item.before), label_words(concept, item.value)
        else:
            before, after = "no label", {1.0: "present", 0.0: "absent"}.get(item.value, str(item.value))
        after = "unsure" if item.answer == "unsure" else after
        words = f"{title}: {before} → {after}"
    elif item.kind == "class":
        title = data.class_names[0] if data.predicts_number else "Class"
        before, after = (_class_words(snapshot, value) for value in (item.before, item.value))
        after = "unsure" if item.answer == "unsure" else after
        words = f"{title}: {before} → {after}"
    elif item.kind == "remove_sample":
        title = "Picture" if snapshot.pictures else "Row"
        before, after, words = "in the data", "removed", f"{item.sample}: removed"
    else:
        before, after, words = _concept_words(snapshot, judged, title)
    return StagedItem(
        item=item.item,
        kind=item.kind,  # type: ignore[arg-type]
        id=item.sample or None,
        thumb=thumb_address(snapshot, row) if row is not None else None,
        concept=item.concept or None,
        title=title,
        before=before,
        after=after,
        words=words,
        time=item.time,
        fits=not judged.why,
        why=judged.why,
    )


def _class_words(snapshot: Snapshot, value: Any) -> str:
    number = snapshot.data.predicts_number and value is not None
    return number_words(float(value), snapshot.data.target_unit) if number else str(value)


def _concept_words(snapshot: Snapshot, judged: Judged, title: str) -> tuple[str, str, str]:
    item = judged.item
    if item.kind == "remove_concept":
        return "a concept", "removed", f"{title}: removed"
    if item.kind == "rename_concept":
        return title, str(item.value), f"{title}: renamed to {spoken(str(item.value))}"
    if item.kind == "merge_concepts":
        info = snapshot.info_by_name.get(item.value["other"])
        other = info.title if info is not None else spoken(item.value["other"])
        name = spoken(item.value["name"])
        return f"{title}, {other}", name, f"{title} and {other}: merged into {name}"
    return "", "added", f"{title}: added"


def staged_view(snapshot: Snapshot, mine: Mine, group: str | None = None) -> Staged:
    """What is staged, in groups; of a named group all items, of others the first ones."""
    groups: dict[str, list[Judged]] = {}
    for judged in mine.judged:
        if judged.status == "staged":
            groups.setdefault(group_key(judged), []).append(judged)
    shown = []
    for key, members in groups.items():
        if group is not None and key != group:
            continue
        items = [item_view(snapshot, one) for one in (members if group is not None else members[:_MOST_ITEMS])]
        first = items[0]
        shown.append(
            StagedGroup(
                title=first.title,
                concept=first.concept,
                kind=first.kind,
                before=first.before,
                after=first.after,
                count=len(members),
                items=items,
                key=key,
            )
        )
    return Staged(
        version=snapshot.number,
        revision=mine.revision,
        counts=mine.counts,
        groups=sorted(shown, key=lambda one: (-one.count, one.key)),
        unsure=[item_view(snapshot, one) for one in mine.unsure[:_MOST_ITEMS]],
    )
