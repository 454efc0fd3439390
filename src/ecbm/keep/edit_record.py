"""An edit in the ledger: one detail for what names no sample, and one for each sample it names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ecbm.keep.ledger import Detail

if TYPE_CHECKING:
    from ecbm.edit.changes import Changes
    from ecbm.edit.edit import Edit
    from ecbm.read.dataset import Dataset

__all__ = ["before_from_details", "edit_details", "edit_from_details", "recorded_edit"]


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def edit_details(changes: Changes) -> list[Detail]:
    """The details of an edit: what really changed, and what the labels were before."""
    edit, before = changes.edit, changes.before
    items: dict[str, dict[str, Any]] = {}

    def item(sample: str) -> dict[str, Any]:
        return items.setdefault(sample, {})

    for sample, concept, value in edit.correct_concepts:
        item(sample).setdefault("correct_concepts", {})[concept] = _plain(value)
    for sample, label in edit.correct_labels:
        item(sample)["correct_label"] = label
    for sample, concept, value in before.correct_concepts:
        item(sample).setdefault("concepts_were", {})[concept] = _plain(value)
    for sample, label in before.correct_labels:
        item(sample)["label_was"] = label
    for name, values in edit.add_concepts.items():
        for sample, value in values.items():
            item(sample).setdefault("add_concepts", {})[name] = _plain(value)
    for sample in edit.remove_samples:
        item(sample)["remove"] = True
    if edit.add_samples is not None:
        for sample in edit.add_samples.ids:
            item(sample)["add"] = True
    whole: dict[str, Any] = {
        "remove_concepts": list(edit.remove_concepts),
        "add_concepts": list(edit.add_concepts),
    }
    whole |= {"concept_types": dict(edit.concept_types)} if edit.concept_types else {}
    whole |= {"units": dict(edit.units)} if edit.units else {}
    return [Detail("edit", whole), *(Detail("item", content, sample) for sample, content in items.items())]


def edit_from_details(details: Sequence[Detail]) -> dict[str, Any]:
    """The edit as in an edit file, from the details that are left of it."""
    edit: dict[str, Any] = {}
    whole: dict[str, Any] = next((d.content for d in details if d.part == "edit"), {})
    added: dict[str, dict[str, Any]] = {name: {} for name in whole.get("add_concepts", [])}
    for detail in details:
        if detail.part != "item" or detail.subject is None:
            continue
        sample, content = detail.subject, detail.content
        for concept, value in content.get("correct_concepts", {}).items():
            edit.setdefault("correct_concepts", []).append({"id": sample, "concept": concept, "value": value})
        if "correct_label" in content:
            edit.setdefault("correct_labels", []).append({"id": sample, "label": content["correct_label"]})
        for name, value in content.get("add_concepts", {}).items():
            added.setdefault(name, {})[sample] = value
        if content.get("remove"):
            edit.setdefault("remove_samples", []).append(sample)
        if content.get("add"):
            edit.setdefault("add_samples", []).append(sample)
    if whole.get("remove_concepts"):
        edit["remove_concepts"] = whole["remove_concepts"]
    if added:
        edit["add_concepts"] = added
    return edit | {name: whole[name] for name in ("concept_types", "units") if name in whole}


def recorded_edit(details: Sequence[Detail], after: Dataset) -> Edit:
    """The edit itself, from all its details and the dataset that it made, which holds the samples it added."""
    from ecbm.edit.edit import Edit

    fields = edit_from_details(details)
    added = set(fields.get("add_samples", ()))
    # Their labels come with what the edit's new concepts say about them, which says it twice and changes nothing.
    rows = [row for row, sample in enumerate(after.ids) if sample in added]
    return Edit(
        [(one["id"], one["concept"], one["value"]) for one in fields.get("correct_concepts", ())],
        [(one["id"], one["label"]) for one in fields.get("correct_labels", ())],
        fields.get("remove_concepts", ()),
        fields.get("add_concepts"),
        fields.get("remove_samples", ()),
        after.select(rows) if rows else None,
        fields.get("concept_types"),
        fields.get("units"),
    )


def before_from_details(details: Sequence[Detail]) -> dict[str, Any]:
    """What the corrected labels were, in the form of the edit file that would take them back."""
    concepts, labels = [], []
    for detail in details:
        if detail.part == "item" and detail.subject is not None:
            for concept, value in detail.content.get("concepts_were", {}).items():
                concepts.append({"id": detail.subject, "concept": concept, "value": value})
            if "label_was" in detail.content:
                labels.append({"id": detail.subject, "label": detail.content["label_was"]})
    found = {"correct_concepts": concepts, "correct_labels": labels}
    return {name: items for name, items in found.items() if items}
