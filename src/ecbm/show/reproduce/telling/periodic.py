"""Edits on edits as curves over rounds."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of, spread_of
from ecbm.show.reproduce.telling.comparisons import Values, joined

COLUMNS = (
    Column("level", "noise in"),
    Column("round", "round"),
    Column("method", "method"),
    Column("class_accuracy", "class acc.", ".4f", "class_accuracy_sd"),
    Column("class_f1", "F1", ".4f", "class_f1_sd"),
    Column("concept_accuracy", "concept acc.", ".4f", "concept_accuracy_sd"),
    Column("closure", "closure to the last retrained", ".2f"),
    Column("class_closure", "closure, classes", ".2f"),
    Column("seconds", "seconds", ".3g"),
)
_NAMES = {"ekfac": "ekfac guarded (ECBM)", "exact": "exact (heads only)"}
_FIGURES = ("class_accuracy", "class_f1", "concept_accuracy")


def tell(case: Case, values: Values) -> Findings:
    """Figures after every round, and how far from retraining the last one ends."""
    collected: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for piece, value in values:
        method = _NAMES.get(piece.options["method"], piece.options["method"])
        for line in value["rounds"]:
            collected.setdefault((piece.options["level"], method, line["round"]), []).append(line)
    rows = []
    for (level, method, number), found in collected.items():
        row: dict[str, Any] = {"level": level, "method": method, "round": number}
        for key in (*_FIGURES, "closure", "class_closure", "seconds"):
            row[key] = mean_of([line.get(key) for line in found])
        row |= {f"{key}_sd": spread_of([line[key] for line in found]) for key in _FIGURES}
        rows.append(row)
    levels = list(dict.fromkeys(row["level"] for row in rows))
    sentences = [_about(level, [row for row in rows if row["level"] == level]) for level in levels]
    figure = Figure(
        "", "Class accuracy and F1 over rounds of edits on edits, and of retraining each time",
        lambda canvas: _draw(canvas, rows), (9, 5.0),
    )  # fmt: skip
    return Findings("periodic", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


def _about(level: str, rows: list[dict[str, Any]]) -> str:
    last = max(row["round"] for row in rows)
    ends = {row["method"]: row for row in rows if row["round"] == last}
    retrained = ends.pop("retrain")
    start = next(row for row in rows if row["round"] == 0)
    said = (
        f"Noise in {level}, {last} rounds: retrained class accuracy goes from {start['class_accuracy']:.4f} to "
        f"{retrained['class_accuracy']:.4f} and F1 from {start['class_f1']:.4f} to {retrained['class_f1']:.4f}"
    )
    if retrained["class_f1"] <= start["class_f1"]:
        said += " (no better than with the noise)"
    gaps = []
    for name, row in ends.items():
        # Concepts that stay do not move where others are removed and the backbone is left alone.
        moved = row["closure"] is not None and abs(row["closure"]) >= 0.005
        key, of = ("closure", "") if moved else ("class_closure", " of classes")
        gap = f"{name} {row['class_f1'] - retrained['class_f1']:+.4f} in F1"
        if row[key] is not None:
            accuracy = row["class_accuracy"] - retrained["class_accuracy"]
            gap += f" and {accuracy:+.4f} in accuracy, closure{of} {row[key]:.2f}"
        gaps.append(gap)
    said += f". After the last round, against retraining: {joined(gaps)}."
    worse = [
        name for name, row in ends.items()
        if abs(row["class_f1"] - retrained["class_f1"]) > abs(start["class_f1"] - retrained["class_f1"])
    ]  # fmt: skip
    if worse:
        said += f" Farther from retraining's F1 than the start was: {joined(worse)}."
    return said


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    levels = list(dict.fromkeys(row["level"] for row in rows))
    axes = canvas.subplots(2, len(levels), squeeze=False)
    for column, level in enumerate(levels):
        own = [row for row in rows if row["level"] == level]
        names = list(dict.fromkeys(row["method"] for row in own))
        for axis, key, what in (
            (axes[0][column], "class_accuracy", "accuracy"),
            (axes[1][column], "class_f1", "F1"),
        ):
            series = {n: [(r["round"], r[key], r[f"{key}_sd"]) for r in own if r["method"] == n] for n in names}
            lines(axis, series, "round", what, f"noise in {level}" if key == "class_accuracy" else "")
    legend_below(canvas)
