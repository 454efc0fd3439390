"""What an edit changed, label by label, with what was there before: read from the ledger alone.

What an erasure has destroyed is not in the ledger any more, so it cannot appear here.
"""

from __future__ import annotations

from typing import Any

from ecbm.keep.explain import said_labels
from ecbm.read.concept_types import concept_groups

__all__ = ["changes_of"]

_WORDS = {"0": "absent", "1": "present"}


def changes_of(item: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """The changes of a version as :meth:`Workspace.described` gives it.

    Parameters
    ----------
    item
        The version.
    types
        Types of concepts by name, as far as they are known; all others are taken for binary.

    Returns
    -------
    dict
        ``concept_labels`` and ``class_labels`` (each with ``id``, ``was``, ``is``; ``was`` is ``None`` where it is
        not recorded), ``removed``, ``added`` (ids), ``concepts_removed``, ``concepts_added`` (name to how many
        labels), ``groups`` (alike changes of concept labels, counted, most first), ``destroyed`` (how many details
        an erasure has taken away).
    """
    edit, before = item.get("edit") or {}, item.get("before") or {}
    declared = edit.get("concept_types", {})
    named = declared | {name: kind for name, kind in types.items() if kind in ("categorical", "ordinal")}
    were = {(i, name): value for i, name, value in said_labels(before.get("correct_concepts", []), named)}
    labels: list[dict[str, Any]] = [
        {
            "id": sample,
            "concept": name,
            "was": _said(were.get((sample, name)), name, types),
            "is": _said(value, name, types),
        }
        for sample, name, value in said_labels(edit.get("correct_concepts", []), named)
    ]
    classes = {one["id"]: one["label"] for one in before.get("correct_labels", [])}
    groups: dict[tuple[str, Any, Any], list[str]] = {}
    for one in labels:
        measured = types.get(one["concept"]) == "continuous"
        key = (one["concept"], None, None) if measured else (one["concept"], one["was"], one["is"])
        groups.setdefault(key, []).append(one["id"])
    return {
        "concept_labels": labels,
        "class_labels": [
            {"id": one["id"], "was": classes.get(one["id"]), "is": one["label"]}
            for one in edit.get("correct_labels", [])
        ],
        "removed": list(edit.get("remove_samples", [])),
        "added": list(edit.get("add_samples", [])),
        "concepts_removed": list(dict.fromkeys(_owner(name, named) for name in edit.get("remove_concepts", []))),
        "concepts_added": {
            _owner(name, named): len(values) for name, values in edit.get("add_concepts", {}).items()
        },
        "groups": [
            {"concept": concept, "was": was, "is": now, "count": len(ids), "ids": ids}
            for (concept, was, now), ids in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0][0]))
        ],
        "destroyed": item.get("details_destroyed", 0),
    }


def _owner(column: str, types: dict[str, str]) -> str:
    """The concept that a column belongs to: several columns may be one."""
    (group,) = concept_groups([column])
    return group if group in types else column


def _said(value: str | None, name: str, types: dict[str, str]) -> str | None:
    if value is None or types.get(name, "binary") != "binary":
        return value
    return _WORDS.get(value, value)
