"""One version explained in sentences, for ``ecbm show``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ecbm.words import counted, local_time, summary_words

__all__ = ["explain", "said_labels"]

_MOST = 20


def explain(item: dict[str, Any], current: int) -> Iterator[str]:
    """The lines that ``ecbm show`` prints for a version as :meth:`Workspace.described` gives it."""
    here = " (the current one)" if item["version"] == current else ""
    parent = f", made from version {item['parent']}" if item["parent"] is not None else ""
    yield f"version {item['version']}{here}{parent}"
    when = local_time(item["time"])
    yield f"by {item['author'] or '(erased)'} at {when}" + (f": {item['reason']}" if item["reason"] else "")
    yield ""
    yield summary_words(item["summary"])
    if not item["kept"]:
        yield "Its weights and data were destroyed by an erasure; only this description is left."
    if item["edit"]:
        target = item["summary"].get("shape", {}).get("target", "class")
        yield from _edit_lines(item["edit"], item.get("before") or {}, target)
    destroyed = item["details_destroyed"]
    if destroyed:
        yield f"{counted(destroyed, 'detail')} of it destroyed by erasures."
    report = item["report"] or {}
    if not report.get("destroyed_by_erasure"):
        yield from _report_lines(report)
    facts = item["environment"]
    if facts:
        yield (
            f"computed by ecbm {facts['ecbm']} with torch {facts['torch']} on {facts['machine']} "
            f"({facts['capability']}), {counted(facts['threads'], 'thread')}"
        )
    for name, value in item["fingerprints"].items():
        yield f"{name} fingerprint {value}"


def _edit_lines(edit: dict[str, Any], before: dict[str, Any], target: str) -> Iterator[str]:
    # Versions of before old values were recorded have none; then only the new one is shown.
    types = edit.get("concept_types", {})
    values = {(i, concept): value for i, concept, value in said_labels(before.get("correct_concepts", []), types)}
    classes = {one["id"]: one["label"] for one in before.get("correct_labels", [])}
    lines = [
        f"  {i}: {concept} {_from(values.get((i, concept)))}→ {value}"
        for i, concept, value in said_labels(edit.get("correct_concepts", []), types)
    ]
    lines += [
        f"  {one['id']}: {target} {_from(classes.get(one['id']))}→ {one['label']}"
        for one in edit.get("correct_labels", [])
    ]
    lines += [f"  {sample}: removed" for sample in edit.get("remove_samples", [])]
    lines += [f"  {sample}: added" for sample in edit.get("add_samples", [])]
    lines += [f"  concept {name}: removed" for name in _concepts(edit.get("remove_concepts", []), types)]
    added = edit.get("add_concepts", {})
    lines += [
        f"  concept {name}: added, with {counted(len(added[column]), 'label')}"
        for name, column in _concepts(added, types).items()
    ]
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield f"  … and {len(lines) - _MOST} more ('ecbm show --json' lists all)"


def _concepts(columns: Iterable[str], types: Mapping[str, str]) -> dict[str, str]:
    """The concepts that some columns are of, each with one of its columns."""
    if not types:
        return {column: column for column in columns}
    from ecbm.read.concept_types import concept_of  # loads torch, which history does without

    return {concept_of(column, types): column for column in columns}


def said_labels(corrections: Sequence[dict[str, Any]], types: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Sample, concept and value of corrections; the columns of one concept are said as one value."""
    if not types:
        yield from ((one["id"], one["concept"], _value(one["value"])) for one in corrections)
        return
    from ecbm.read.concept_types import concept_groups, layout_of  # loads torch, which history does without

    grouped: dict[tuple[str, str], dict[str, float | None]] = {}
    for one in corrections:
        (group,) = concept_groups([one["concept"]])
        name = group if types.get(group, "binary") in ("categorical", "ordinal") else one["concept"]
        grouped.setdefault((one["id"], name), {})[one["concept"]] = one["value"]
    for (sample, name), columns in grouped.items():
        if name in columns:
            yield sample, name, _value(columns[name])
            continue
        concept = layout_of(list(columns), {name: types[name]}).by_name[name]
        labels = [math.nan if value is None else value for value in columns.values()]
        yield sample, name, concept.said(concept.value_of(labels))


def _from(old: str | None) -> str:
    return "" if old is None else f"{old} "


def _figure(value: float | None) -> str:
    # A figure that is not finite is stored as nothing.
    return "any number" if value is None else f"{value:.3g}"


def _value(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"


def _report_lines(report: dict[str, Any]) -> Iterator[str]:
    if report.get("method"):
        why = (report.get("settings") or {}).get("why")
        yield f"method {report['method']}" + (f": {why}" if why else "")
    objective = report.get("objective")
    if objective:
        parts = [
            f"{name} {objective['before'][name]:.6g} → {objective['after'][name]:.6g}"
            for name in objective["after"]
        ]
        yield f"objective on the edited data: {', '.join(parts)}"
    drift = report.get("drift")
    if drift:
        where = f"on {counted(drift['samples'], drift['split'] + ' sample')}"
        concepts = counted(drift["concept_predictions_changed"], "concept prediction")
        if "class_predictions_changed" in drift:
            classes = counted(drift["class_predictions_changed"], "class prediction")
            yield f"{where}: {classes} and {concepts} changed"
        else:
            moved = f"{_figure(drift['prediction_largest_change'])} {drift.get('unit', '')}".strip()
            yield f"{where}: predictions moved by at most {moved}, {concepts} changed"
    certificate = report.get("certificate")
    if certificate:
        known = f"of {counted(certificate['validation_samples'], 'validation sample')}"
        if "class_predictions_that_could_differ" in certificate:
            changed = counted(certificate["class_predictions_that_could_differ"], "more class prediction")
            yield f"certificate ({certificate['covers']}): retraining would change at most {changed} {known}"
        else:
            bound = f"{_figure(certificate['largest_prediction_change'])} {(drift or {}).get('unit', '')}".strip()
            words = f"no prediction {known} is farther than {bound} from the exact solution"
            yield f"certificate ({certificate['covers']}): {words}"
    promise = report.get("certified")
    if promise:
        yield (
            f"certified removal: what was removed is ({promise['epsilon']:g}, {promise['delta']:g})-"
            "indistinguishable from what was never there"
        )
    for note in report.get("notes") or []:
        yield f"note: {note}"
    for name, why in (report.get("not_covered") or {}).items():
        yield f"not covered: {name} ({why})"
    if report.get("warning"):
        yield f"warning: {report['warning']}"
    seconds = report.get("seconds")
    if seconds:
        yield f"took {sum(seconds.values()):.2f} s"
