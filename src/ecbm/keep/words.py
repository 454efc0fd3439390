"""Versions and their reports in words."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

__all__ = ["certificate_words", "counted", "done", "moved_on_words", "summary_of", "summary_words"]

_PAST = {"correct": "corrected", "remove": "removed", "add": "added"}


def counted(number: int, what: str) -> str:
    """
    Examples
    --------
    >>> counted(1, "sample"), counted(12, "label")
    ('1 sample', '12 labels')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def done(edit: str) -> str:
    """An edit's text, as something that has happened.

    Examples
    --------
    >>> done("correct 1 concept label of 1 sample; remove 2 samples")
    'corrected 1 concept label of 1 sample; removed 2 samples'
    """
    parts = []
    for part in edit.split("; "):
        verb, _, rest = part.partition(" ")
        parts.append(f"{_PAST.get(verb, verb)} {rest}".strip())
    return "; ".join(parts)


def summary_of(report: Mapping[str, Any], words: str) -> dict[str, Any]:
    """The few counts of a report that stay with a version, even when an erasure destroys the rest."""
    drift, certificate = report.get("drift") or {}, report.get("certificate") or {}
    return {
        "words": words,
        "method": report.get("method"),
        "split": drift.get("split"),
        "class_predictions_changed": drift.get("class_predictions_changed"),
        "concept_predictions_changed": drift.get("concept_predictions_changed"),
        "heads_only": "no_certificate_for_backbone" in report,
        "class_predictions_that_could_differ": certificate.get("class_predictions_that_could_differ"),
    }


def certificate_words(summary: Mapping[str, Any]) -> str:
    """What the certificate says about predictions."""
    bound = summary.get("class_predictions_that_could_differ")
    if bound is None:
        return "no certificate"
    return f"certificate{' (for the heads)' if summary.get('heads_only') else ''}: at most {bound} more"


def summary_words(summary: Mapping[str, Any]) -> str:
    """One line: what was done and what it changed."""
    parts = [str(summary.get("words", ""))]
    changed = summary.get("class_predictions_changed")
    if changed is not None:
        where = {"val": "validation", "train": "training"}.get(str(summary.get("split")), summary.get("split"))
        parts += [f"{counted(changed, f'{where} prediction')} changed", certificate_words(summary)]
    return "; ".join(part for part in parts if part)


def moved_on_words(connection: sqlite3.Connection, expected: int | None, head: int | None) -> str:
    """What the second of two editors is told."""
    row = connection.execute(
        "SELECT summary, sequence FROM versions WHERE version = ?", (-1 if head is None else head,)
    ).fetchone()
    what = ""
    if row is not None:
        author = connection.execute(
            "SELECT content FROM details WHERE sequence = ? AND part = 'author'", (row[1],)
        ).fetchone()
        by = f" by {json.loads(author[0])}" if author else ""
        what = f" ({summary_words(json.loads(row[0]))}{by})"
    return (
        f"the model moved on since you looked: you started from version {expected}, now it is version "
        f"{head}{what}; nothing was changed: look at it with 'ecbm show' and run your edit again"
    )
