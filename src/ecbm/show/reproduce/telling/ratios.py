"""Edits of growing size as curves."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of, number
from ecbm.show.reproduce.telling.comparisons import AUTO, Values, collected, row_of, values_of
from ecbm.show.reproduce.telling.prose import capital, joined, percent, short

COLUMNS = (
    Column("level", "level"),
    Column("shown", "edited", plain="size"),
    Column("method", "method"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
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
        level, size = sizes[title]["level"], sizes[title]["size"]
        for name in (NO_OP, *METHODS.values(), RETRAIN):
            if name in entries:
                row = row_of(title, name, entries[name]) | {"level": _NAMES[level], "size": size}
                row["shown"] = f"{size}" if level == "concepts" else percent(size)
                row["gap"] = None if row["class_f1"] is None or retrained is None else row["class_f1"] - retrained
                rows.append(row)
    levels = {
        level: [row for row in rows if row["level"] == level]
        for level in dict.fromkeys(row["level"] for row in rows)
    }
    details = [Detail(f"{capital(level)} edited", about(own)) for level, own in levels.items()]
    figure = Figure(
        "",
        "F1 (above) and closure (below) against the size of the edit",
        lambda canvas: _draw(canvas, levels),
        (9, 5.4),
    )
    lead = [farthest(rows), *trends(levels)]
    table = Table("", "", COLUMNS, rows)
    return Findings("ratios", case.setting("title"), [table], [figure], lead[-1], lead, details)


def key_of(rows: list[dict[str, Any]]) -> str:
    """Closure of concepts; of classes where concepts are removed, and those that stay need not move."""
    return "class_closure" if rows[0]["level"] == "concepts" else "closure"


def _largest(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The largest distance from retraining's F1 by method."""
    gaps: dict[str, list[float]] = {}
    for row in rows:
        if row["gap"] is not None and row["method"] != RETRAIN:
            gaps.setdefault(row["method"], []).append(abs(row["gap"]))
    return {name: max(found) for name, found in gaps.items()}


def farthest(rows: list[dict[str, Any]]) -> str:
    """Whether F1 tells the best-known method from no edit over all sizes."""
    largest = _largest(rows)
    if AUTO not in largest or NO_OP not in largest:
        return "F1 is not known of all."
    said = f"Over all sizes and levels F1 after auto is at most {largest[AUTO]:.3f} from retraining's"
    return f"{said}, F1 of the unedited model at most {largest[NO_OP]:.3f}."


def trends(levels: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The closure of ``auto`` at the smallest and the largest edit of every level."""
    said = []
    for level, rows in levels.items():
        own = [row for row in rows if row["method"] == AUTO and row[key_of(rows)] is not None]
        if len(own) > 1:
            first, last = (number(row[key_of(rows)]) for row in (own[0], own[-1]))
            said.append(f"from {first} to {last} for {level} ({own[0]['shown']} to {own[-1]['shown']})")
    return [f"As the edit grows, the closure of auto goes {joined(said)}."] if said else []


def about(rows: list[dict[str, Any]]) -> list[str]:
    """One level: distances from retraining's F1, the unedited model's among them, and closure at both ends."""
    largest = _largest(rows)
    listed = joined(f"{short(name)} {value:.4f}" for name, value in largest.items())
    said = [f"Largest distance from retraining's F1 over all sizes: {listed}."]
    behind = [short(name) for name, value in largest.items() if NO_OP in largest and value > largest[NO_OP]]
    if behind:
        said.append(f"Farther from it than no edit: {joined(behind)}.")
    key, ends = key_of(rows), []
    for name in largest:
        own = [row for row in rows if row["method"] == name and row[key] is not None]
        if own and name != NO_OP:
            ends.append(f"{short(name)} {number(own[0][key])} and {number(own[-1][key])}")
    if ends:
        what = "concept" if key == "closure" else "class"
        said.append(f"Closure of {what} probabilities at the smallest and the largest edit: {joined(ends)}.")
    seeds = [row[key] for row in rows if row["method"] == RETRAIN and row[key] is not None]
    if seeds:
        said.append(f"Another seed of retraining: {number(seeds[0])} and {number(seeds[-1])}.")
    return said


def _draw(canvas: Any, levels: dict[str, list[dict[str, Any]]]) -> None:
    axes = canvas.subplots(2, len(levels), squeeze=False)
    for column, (level, own) in enumerate(levels.items()):
        key = key_of(own)
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
            if of == key:
                axis.axhline(0, color="#999999", linewidth=0.8)
    legend_below(canvas)
