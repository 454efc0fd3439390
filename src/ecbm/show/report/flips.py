"""Predictions that a version changed, and those that are wrong, sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ecbm.show.report.figures import SplitFigures

__all__ = ["flips_of", "mistakes_of"]


def flips_of(found: SplitFigures) -> dict[str, Any] | None:
    """Class predictions that differ from the parent's, worst news first; numbers that moved, farthest first.

    Concept predictions that differ are counted by concept. ``None`` without a parent.
    """
    if found.before is None:
        return None
    old, new, data = found.before.said, found.after.said, found.data
    changed: list[dict[str, Any]] = []
    for row, sample in enumerate(data.ids):
        if old[row] == new[row]:
            continue
        one: dict[str, Any] = {"id": sample, "before": old[row], "after": new[row], "label": data.label_of(row)}
        if data.predicts_number:
            one["moved"] = float(new[row]) - float(old[row])
        else:
            one["became"] = _became(bool(found.before.labels[row]), bool(found.after.labels[row]))
        changed.append(one)
    if data.predicts_number:
        changed.sort(key=lambda one: -abs(one["moved"]))
    else:
        order = ("wrong", "right", "still wrong")
        changed.sort(key=lambda one: order.index(one["became"]))
    concepts = {}
    for name, said in found.after.concept_said.items():
        # A measured value moves a little with every edit; that is no other answer.
        if data.layout.types[name] == "continuous" or name not in found.before.concept_said:
            continue
        count = sum(a != b for a, b in zip(found.before.concept_said[name], said, strict=True))
        if count:
            concepts[name] = count
    return {
        "samples": len(data),
        "changed": len(changed),
        "items": changed,
        "concepts": dict(sorted(concepts.items(), key=lambda pair: (-pair[1], pair[0]))),
    }


def _became(before: bool, after: bool) -> str:
    if before == after:
        return "still wrong"
    return "right" if after else "wrong"


def mistakes_of(found: SplitFigures) -> list[dict[str, Any]]:
    """Samples with the wrong class, most certain first; of numbers those farthest off, at most a tenth of them."""
    data, after = found.data, found.after
    if data.predicts_number:
        order = np.argsort(-after.labels, kind="stable")[: max(1, len(data) // 10)].tolist()
        return [
            {"id": data.ids[row], "said": after.said[row], "label": data.label_of(row), "off": after.labels[row]}
            for row in order
        ]
    wrong = [row for row in range(len(data)) if not after.labels[row]]
    wrong.sort(key=lambda row: (-after.confidence[row], row))
    return [
        {
            "id": data.ids[row],
            "said": after.said[row],
            "label": data.label_of(row),
            "confidence": after.confidence[row],
        }
        for row in wrong
    ]
