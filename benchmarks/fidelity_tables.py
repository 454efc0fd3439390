"""The rows of ``fidelity.py`` as tables on the screen and as text for the documentation."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {
    "closure": ("closure", ".2f"),
    "same seed": ("same_seed_closure", ".2f"),
    "class": ("class_closure", ".2f"),
    "recovery": ("recovery", ".2f"),
    "concept acc.": ("concept_accuracy", ".4f"),
    "class F1": ("class_f1", ".4f"),
    "|ΔF1|": ("f1_gap_to_retraining", ".4f"),
    "seconds": ("seconds", ".3g"),
    "share": ("share_of_retraining", ".3f"),
    "work": ("share_of_work", ".3f"),
}


def _cells(row: dict[str, Any]) -> list[str]:
    def text(key: str, form: str) -> str:
        value, half = row.get(key), row.get(f"{key}_half")
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        return format(value, form) + (f" ± {half:{form}}" if half is not None else "")

    return [row["row"], *(text(key, form) for key, form in COLUMNS.values())]


_ORDER = (
    "no-op",
    "heads only",
    "exact",
    "ekfac",
    "hessian",
    "auto",
    "more training",
    "fine-tuning",
    "NegGrad+",
    "retrain",
)


def _place(row: dict[str, Any]) -> int:
    """Nothing, ours, controls, retraining; budgets are in their order already."""
    name = row["row"]
    return next((place for place, start in enumerate(_ORDER) if name.startswith(start)), len(_ORDER))


def _with_seeds(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that not every original seed has are marked: a short budget left their control no time."""
    marked = []
    for row in members:
        few = 0 < row.get("seeds", 0) < row.get("of_seeds", 0)
        mark = f" ({row['seeds']} of {row['of_seeds']} seeds)" if few else ""
        marked.append({**row, "row": row["row"] + mark})
    return marked


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
