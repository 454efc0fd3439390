"""Harmful data removed: before, after editing, after retraining."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import points
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import (
    Entries,
    Values,
    closeness,
    collected,
    difference,
    joined,
    row_of,
    values_of,
)
from ecbm.verify.fidelity import recovery_interval

COLUMNS = (
    Column("edit", "noise in"),
    Column("method", "method"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
    Column("class_accuracy", "class acc.", ".4f", "class_accuracy_sd"),
    Column("concept_accuracy", "concept acc.", ".4f", "concept_accuracy_sd"),
    Column("recovery", "recovery", ".2f", "recovery_half"),
    Column("closure", "closure, concepts", ".2f", "closure_half"),
    Column("class_closure", "closure, classes", ".2f", "class_closure_half"),
)
_METRIC = {"labels": ("concept_accuracy", "concept accuracy")}
_CLASS = ("class_accuracy", "class accuracy")


def tell(case: Case, values: Values) -> Findings:
    """Whether removing the noise helps at all, and how much of retraining's gain each method has."""
    found = collected(values)
    rows = []
    for title, entries in found.items():
        for name in (NO_OP, *METHODS.values(), RETRAIN):
            if name in entries:
                rows.append(row_of(title, name, entries[name]) | _recovery(title, entries, name))
    sentences = [_about(title, entries, rows) for title, entries in found.items()]
    figure = Figure(
        "", "Class F1 and concept accuracy with the noise, after editing and after retraining",
        lambda canvas: _draw(canvas, rows), (9, 4.4),
    )  # fmt: skip
    return Findings("harmful", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


def _gains(title: str, entries: Entries) -> bool:
    """Whether retraining gains anything beyond its interval, or with one repetition anything beyond its seeds."""
    key, _ = _METRIC.get(title, _CLASS)
    gain = difference(entries[RETRAIN], entries[NO_OP], key)
    if gain is None or gain.mean <= 0:
        return False
    if gain.half is not None:
        return gain.certain
    seeds = entries[RETRAIN][0].get(f"{key}_of_seeds") or []
    return len(seeds) < 2 or gain.mean > max(seeds) - min(seeds)


def _recovery(title: str, entries: Entries, name: str) -> dict[str, Any]:
    """Σ gained / Σ to gain over repetitions, where there is something to gain."""
    known = [entry for entry in entries[name] if entry.get("gained") is not None]
    if not known or not _gains(title, entries):
        return {"recovery": None}
    found = recovery_interval([entry["gained"] for entry in known], [entry["to_gain"] for entry in known])
    return {"recovery": found.mean, "recovery_half": found.half}


def _about(title: str, entries: Entries, rows: list[dict[str, Any]]) -> str:
    key, what = _METRIC.get(title, _CLASS)
    gain = difference(entries[RETRAIN], entries[NO_OP], key)
    said = f"Noise in {title}: "
    if gain is None:
        return f"{said}no figures."
    said += f"retraining without it changes {what} by {gain.words()}"
    ours = [name for name in METHODS.values() if name in entries]
    if not _gains(title, entries):
        said += ", no gain beyond noise, so there is nothing to recover"
    else:
        shares = {row["method"]: row["recovery"] for row in rows if row["edit"] == title and row["method"] in ours}
        known = {name: share for name, share in shares.items() if share is not None}
        shown = joined(f"{name} has {share:.0%}" for name, share in known.items())
        said += f"; of that gain {shown}"
        lost = [name for name, share in known.items() if share < 0]
        if lost:
            said += f"; the spoilt model is made worse still by {joined(lost)}"
    near = closeness(entries, ours)
    moved = mean_of(values_of(entries[RETRAIN], "class_f1")), mean_of(values_of(entries[NO_OP], "class_f1"))
    if moved[0] is not None and moved[1] is not None:
        near.insert(0, f"class F1 is {moved[1]:.4f} with the noise and {moved[0]:.4f} retrained")
    return said + "".join(f". {part[:1].upper()}{part[1:]}" for part in near) + "."


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    titles = list(dict.fromkeys(row["edit"] for row in rows))
    axes = canvas.subplots(2, len(titles), squeeze=False)
    for column, title in enumerate(titles):
        own = [row for row in rows if row["edit"] == title][::-1]
        points(axes[0][column], own, "class_f1", "class_f1_sd", column == 0)
        points(axes[1][column], own, "concept_accuracy", "concept_accuracy_sd", column == 0)
        axes[0][column].set_title(f"noise in {title}")
        axes[0][column].set_xlabel("class F1")
        axes[1][column].set_xlabel("concept accuracy")
    canvas.tight_layout()
