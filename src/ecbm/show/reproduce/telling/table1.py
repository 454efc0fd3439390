"""Table 1 as a table, a figure and sentences."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import points
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table
from ecbm.show.reproduce.telling.comparisons import (
    Entries,
    Values,
    closeness,
    collected,
    difference,
    effect_on,
    row_of,
    times,
)  # fmt: skip

COLUMNS = (
    Column("edit", "edit"),
    Column("method", "method"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
    Column("concept_accuracy", "concept acc.", ".4f"),
    Column("closure", "closure, concepts", ".2f", "closure_half"),
    Column("class_closure", "closure, classes", ".2f", "class_closure_half"),
    Column("seconds", "seconds", ".3g"),
    Column("speed_up", "× faster", ".3g"),
    Column("preparation", "kept beforehand, s", ".3g"),
    Column("missing", "not run because"),
)


def tell(case: Case, values: Values) -> Findings:
    """Rows of every level and method; per level what F1 can tell, who is closest, who loses, and what it costs."""
    found = collected(values)
    rows = [
        row_of(title, name, entries[name])
        for title, entries in found.items()
        for name in (NO_OP, *METHODS.values(), RETRAIN)
        if name in entries
    ]
    sentences = [_about(title, entries) for title, entries in found.items()]
    if not case.setting("hessian"):
        sentences.append(
            "CBM-IF (the exact Hessian) was not run: with a backbone that is trained its conjugate gradients take "
            "longer than retraining."
        )
    figure = Figure(
        "", "F1 and closure of every method at every level", lambda canvas: _draw(canvas, rows), (9, 4.2)
    )
    return Findings("table1", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


def _about(title: str, entries: Entries) -> str:
    ours = [name for name in METHODS.values() if name in entries]
    parts = [effect_on("class_f1", "F1", entries), *closeness(entries, ours), times(entries, ours)]
    parts.append(_against_control(entries))
    return f"{title.capitalize()}: " + ". ".join(part[:1].upper() + part[1:] for part in parts if part) + "."


def _against_control(entries: Entries) -> str:
    """``auto`` against fine-tuning of equal work, in closure; of classes where concepts do not move."""
    auto, tuned = entries.get("auto", []), entries.get("fine-tuning of equal work", [])
    for key, what in (("closure", "concepts"), ("class_closure", "classes")):
        gap = difference(auto, tuned, key)
        if gap is None:
            continue
        words = f"closure of {what} {gap.words('+.2f')}"
        if gap.half is None or not gap.certain:
            return f"auto against fine-tuning of equal work: {words}" + (
                "" if gap.half is None else ", not told apart"
            )
        return f"auto is {'ahead of' if gap.mean > 0 else 'behind'} fine-tuning of equal work ({words})"
    return ""


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    """Every method a line of points, every level a column: F1 above, closure below."""
    titles = list(dict.fromkeys(row["edit"] for row in rows))
    axes = canvas.subplots(2, len(titles), squeeze=False)
    for column, title in enumerate(titles):
        own = [row for row in rows if row["edit"] == title][::-1]
        classes = all(abs(row["closure"] or 0.0) < 0.005 for row in own if row["method"] in METHODS.values())
        key = "class_closure" if classes else "closure"
        points(axes[0][column], own, "class_f1", "class_f1_sd", column == 0)
        points(axes[1][column], own, key, f"{key}_half", column == 0)
        axes[0][column].set_title(title)
        axes[0][column].set_xlabel("F1")
        axes[1][column].set_xlabel("closure, classes" if classes else "closure, concepts")
    canvas.tight_layout()
