"""Edits and what they did, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

__all__ = [
    "certificate_words", "counted", "done", "listed", "local_time", "readable_size", "summary_of", "summary_words",
]  # fmt: skip

_PAST = {"correct": "corrected", "remove": "removed", "add": "added"}


def counted(number: int, what: str) -> str:
    """
    Examples
    --------
    >>> counted(1, "sample"), counted(1200, "label")
    ('1 sample', '1,200 labels')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b"]), listed("abcdef", most=2)
    ('a, b', 'a, b and 4 more')
    """
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def local_time(stamp: str) -> str:
    """A time of the ledger (UTC) as the user's clock shows it, with its distance from UTC.

    Examples
    --------
    >>> local_time("2025-11-18T00:11:52.123Z")[:7]
    '2025-11'
    """
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return stamp


def readable_size(size: int) -> str:
    """
    Examples
    --------
    >>> readable_size(980), readable_size(52_100_000)
    ('980 bytes', '52 MB')
    """
    if size < 1000:
        return counted(size, "byte")
    power = 1 if size < 999_500 else 2 if size < 999_500_000 else 3
    value, unit = size / 1000**power, ("kB", "MB", "GB")[power - 1]
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"


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
    number = {}
    if "prediction_largest_change" in drift:
        number = {
            "unit": drift.get("unit", ""),
            "prediction_largest_change": drift["prediction_largest_change"],
            "prediction_change_bound": certificate.get("largest_prediction_change"),
            "label_head_only": str(certificate.get("covers", "")).startswith("the label head"),
        }
    return number | {
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
    part = " (for the label head)" if summary.get("label_head_only") else ""
    words = f"certificate{' (for the heads)' if summary.get('heads_only') and not part else part}:"
    distance = summary.get("prediction_change_bound")
    if bound is None and distance is None:
        return "no certificate"
    if bound is None:
        return f"{words} at most {_with_unit(distance, summary)} from the exact solution"
    return f"{words} at most {bound:,} more"


def _with_unit(value: Any, summary: Mapping[str, Any]) -> str:
    return f"{value:.3g} {summary.get('unit', '')}".strip()


def summary_words(summary: Mapping[str, Any]) -> str:
    """One line: what was done and what it changed."""
    parts = [str(summary.get("words", ""))]
    changed = summary.get("class_predictions_changed")
    if changed is not None:
        where = {"val": "validation", "train": "training"}.get(str(summary.get("split")), summary.get("split"))
        parts += [f"{counted(changed, f'{where} prediction')} changed", certificate_words(summary)]
    moved = summary.get("prediction_largest_change")
    if moved is not None:
        parts.append(f"predictions moved by at most {_with_unit(moved, summary)}")
    if moved is not None or summary.get("prediction_change_bound") is not None:
        parts.append(certificate_words(summary))
    return "; ".join(part for part in parts if part)
