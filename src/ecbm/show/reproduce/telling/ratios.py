"""Edits of growing size as curves."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import Values, collected, joined, row_of, values_of

COLUMNS = (
    Column("level", "level"),
    Column("size", "edited", "g"),
    Column("method", "method"),
    Column("class_f1", "F1", ".4f", "class_f1_sd"),
    Column("gap", "F1 − retrained", "+.4f"),
    Column("closure", "closure, concepts", ".2f", "closure_half"),
    Column("class_closure", "closure, classes", ".2f", "class_closure_half"),
)
_NAMES = {"labels": "concept labels", "samples": "samples", "concepts": "concepts"}


def tell(case: Case, values: Values) -> Findings:
    """F1 and closure against size, and how far from retraining each method is over all sizes."""
    rows: list[dict[str, Any]] = []
    sizes = {piece.title: piece.options for piece, _ in values}
    for title, entries in collected(values).items():
        retrained = mean_of(values_of(entries[RETRAIN], "class_f1"))
        for name in (NO_OP, *METHODS.values(), RETRAIN):
            if name in entries:
                row = row_of(title, name, entries[name]) | {"level": _NAMES[sizes[title]["level"]]}
                row["size"] = sizes[title]["size"]
                row["gap"] = None if row["class_f1"] is None or retrained is None else row["class_f1"] - retrained
                rows.append(row)
    levels = list(dict.fromkeys(row["level"] for row in rows))
    sentences = [_about(level, [row for row in rows if row["level"] == level]) for level in levels]
    figure = Figure(
        "",
        "F1 (above) and closure (below) against the size of the edit",
        lambda canvas: _draw(canvas, rows),
        (9, 5.4),
    )
    return Findings("ratios", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


def _key(rows: list[dict[str, Any]]) -> str:
    """Closure of concepts, or of classes where no method moves the concepts that stay."""
    ours = [row["closure"] for row in rows if row["method"] not in (NO_OP, RETRAIN)]
    return "closure" if any(abs(value or 0.0) > 0.005 for value in ours) else "class_closure"


def _about(level: str, rows: list[dict[str, Any]]) -> str:
    """Gaps to retraining's F1, the unedited model's among them, and closure at both ends."""
    names = [name for name in dict.fromkeys(row["method"] for row in rows) if name != RETRAIN]
    gaps = {
        name: [abs(row["gap"]) for row in rows if row["method"] == name and row["gap"] is not None]
        for name in names
    }
    largest = [f"{name} {max(found):.4f}" for name, found in gaps.items() if found]
    said = f"{level.capitalize()}: over all sizes F1 is at most so far from retraining's: {joined(largest)}."
    ours = {name: max(found) for name, found in gaps.items() if found and name != NO_OP}
    if ours and gaps.get(NO_OP):
        behind = [name for name, value in ours.items() if value > max(gaps[NO_OP])]
        if behind:
            said += f" Farther off than doing nothing: {joined(behind)}."
    key, ends = _key(rows), []
    for name in ours:
        own = [row for row in rows if row["method"] == name and row[key] is not None]
        if own:
            ends.append(f"{name} {own[0][key]:.2f} and {own[-1][key]:.2f}")
    if ends:
        what = "concept" if key == "closure" else "class"
        said += f" Closure of {what} probabilities at the smallest and the largest edit: {joined(ends)}."
    return said


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    levels = list(dict.fromkeys(row["level"] for row in rows))
    axes = canvas.subplots(2, len(levels), squeeze=False)
    for column, level in enumerate(levels):
        own = [row for row in rows if row["level"] == level]
        key = _key(own)
        names = list(dict.fromkeys(row["method"] for row in own))
        scale = 1.0 if level == "concepts" else 100.0
        label = "concepts removed" if level == "concepts" else f"% of {level} edited"
        for axis, of, half, what in (
            (axes[0][column], "class_f1", "class_f1_sd", "F1"),
            (axes[1][column], key, f"{key}_half", "closure, concepts" if key == "closure" else "closure, classes"),
        ):
            series = {
                name: [(scale * row["size"], row[of], row[half]) for row in own if row["method"] == name]
                for name in names
                if not (of == key and name == NO_OP)
            }
            lines(axis, series, label, what, level if of == "class_f1" else "")
    legend_below(canvas)
