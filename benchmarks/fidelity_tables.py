"""The rows of ``fidelity.py`` as tables on the screen, as text for the documentation, and as a plot."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {
    "closure": ("closure", ".3f"),
    "mean": ("closure_of_mean_change", ".3f"),
    "class": ("class_closure", ".3f"),
    "recovery": ("recovery", ".3f"),
    "concept acc.": ("concept_accuracy", ".4f"),
    "class F1": ("class_f1", ".4f"),
    "|ΔF1|": ("f1_gap_to_retraining", ".4f"),
    "seconds": ("seconds", ".3g"),
    "× faster": ("speed_up", ".0f"),
}


def _cells(row: dict[str, Any]) -> list[str]:
    def text(value: float | None, form: str) -> str:
        return "–" if value is None or (isinstance(value, float) and math.isnan(value)) else format(value, form)

    return [row["row"], *(text(row.get(key), form) for key, form in COLUMNS.values())]


def _place(row: dict[str, Any]) -> tuple[bool, bool, bool, float]:
    """Ours, then fine-tuning without and with exact heads by budget, then retraining; others where they are."""
    name = row["row"]
    tuned = name.startswith("fine-tuning")
    budget = name.rsplit(", ", 1)[-1].removesuffix("%")
    return (
        name.startswith("retrain"),
        tuned,
        "heads exactly" in name,
        float(budget) if tuned and budget.isdigit() else 0.0,
    )


def _with_seeds(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that not every original seed has are marked: a short budget left their control no time."""
    most = max(row.get("seeds", 0) for row in members)
    some = [0 < row.get("seeds", 0) < most for row in members]
    marks = [f" ({row['seeds']} of {most} seeds)" if few else "" for row, few in zip(members, some, strict=True)]
    return [{**row, "row": row["row"] + mark} for row, mark in zip(members, marks, strict=True)]


def _groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['setting']}: {row['scenario']}", []).append(row)
    return {title: _with_seeds(sorted(members, key=_place)) for title, members in groups.items()}


def show(rows: list[dict[str, Any]], console: Console) -> None:
    for title, members in _groups(rows).items():
        table = Table(title=title, title_justify="left")
        for header in ("row", *COLUMNS):
            table.add_column(header, justify="left" if header == "row" else "right")
        for row in members:
            table.add_row(*_cells(row))
        console.print(table)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The tables for the documentation."""
    lines = []
    headers = " | ".join(COLUMNS).replace("|ΔF1|", r"\|ΔF1\|")
    for title, members in _groups(rows).items():
        lines += [f"### {title}", "", f"| row | {headers} |", "|---|" + "---:|" * len(COLUMNS)]
        lines += [f"| {' | '.join(_cells(row))} |" for row in members] + [""]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Recovery against time, one panel a setting and scenario in which retraining gains something."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("plots need matplotlib (the bench extra)", file=sys.stderr)
        return
    panels = sorted({(r["setting"], r["scenario"]) for r in rows if r.get("recovery") and r.get("seconds")})
    if not panels:
        return
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(7, 3.2 * len(panels)), squeeze=False)
    for axis, (setting, scenario) in zip(axes[:, 0], panels, strict=True):
        for row in rows:
            known = row.get("recovery") is not None and row.get("seconds")
            if (row["setting"], row["scenario"]) == (setting, scenario) and known:
                axis.scatter(row["share_of_retraining"], row["recovery"], s=25)
                axis.annotate(row["row"], (row["share_of_retraining"], row["recovery"]), fontsize=6)
        axis.set(title=f"{setting}: {scenario}", xlabel="share of retraining time", ylabel="recovery", xscale="log")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
