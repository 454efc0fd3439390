"""Bounds against true distances."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import Values
from ecbm.show.reproduce.telling.prose import joined

COLUMNS = (
    Column("of", "function of"),
    Column("at", "at", "g"),
    Column("distance", "influence step, error", ".2e"),
    Column("bound", "its bound", ".2e"),
    Column("ratio", "bound / error", ".1f"),
    Column("newton_distance", "Newton step, error", ".2e"),
    Column("newton_bound", "its bound", ".2e"),
    Column("held", "held"),
    Column("of_cases", "of"),
)
_AXES = {
    "damping": "damping δ",
    "removed samples": "share of samples removed",
    "removed concepts": "concepts removed (label head)",
}


def tell(case: Case, values: Values) -> Findings:
    """Whether the bounds hold, how loose they are, and how both grow."""
    collected: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for _, value in values:
        for one in value["rows"]:
            collected.setdefault((one["of"], one["at"]), []).append(one)
    rows = []
    for (of, at), found in collected.items():
        row: dict[str, Any] = {"of": of, "at": at}
        row |= {key: mean_of([each[key] for each in found]) for key in _MEANS}
        row |= {key: sum(each[key] for each in found) for key in ("held", "of_cases")}
        row["ratio"] = row["bound"] / row["distance"] if row["distance"] else None
        rows.append(row)
    kinds = {of: [row for row in rows if row["of"] == of] for of in dict.fromkeys(row["of"] for row in rows)}
    lead = [held_in(rows), *looseness(kinds)]
    details = [Detail(of.capitalize(), [about(of, own)]) for of, own in kinds.items()]
    figure = Figure(
        "", "True errors of a single step and their bounds", lambda canvas: _draw(canvas, rows), (9, 3.4)
    )
    table = Table("", "", COLUMNS, rows)
    return Findings("bounds", case.setting("title"), [table], [figure], in_short(rows), lead, details)


def held_in(rows: list[dict[str, Any]]) -> str:
    """Whether every bound was kept."""
    held, cases = sum(row["held"] for row in rows), sum(row["of_cases"] for row in rows)
    said = f"The corrected bounds hold in {held:,} of {cases:,} cases"
    return said + ("." if held == cases else ", so that something in them or in the solver is wrong.")


def in_short(rows: list[dict[str, Any]]) -> str:
    """Whether the bounds hold, and how loose they are over all."""
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    loose = f" They are {_times(ratios)} times the true error." if ratios else ""
    return held_in(rows) + loose


def looseness(kinds: dict[str, list[dict[str, Any]]]) -> list[str]:
    """How many times the true error a bound is, by what changes."""
    ratios = {of: [row["ratio"] for row in own if row["ratio"]] for of, own in kinds.items()}
    said = joined(f"{_times(found)} times against {of}" for of, found in ratios.items() if found)
    return [f"The influence step's bound over its true error: {said}."] if said else []


def _times(ratios: list[float]) -> str:
    low, high = (f"{value:.2g}" if value < 100 else f"{value:,.0f}" for value in (min(ratios), max(ratios)))
    return low if low == high else f"{low} to {high}"


_MEANS = ("distance", "bound", "newton_distance", "newton_bound")


def about(of: str, rows: list[dict[str, Any]]) -> str:
    """How error and bound change with one thing."""
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        error, bound = first["distance"], first["bound"]
        return f"With {of} of {first['at']:g} the influence step's error is {error:.1e}, its bound {bound:.1e}."
    grows = last["distance"] > first["distance"]
    return (
        f"From {first['at']:g} to {last['at']:g} the influence step's error {'grows' if grows else 'falls'} from "
        f"{first['distance']:.1e} to {last['distance']:.1e}, its bound goes from {first['bound']:.1e} to "
        f"{last['bound']:.1e}."
    )


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    kinds = list(dict.fromkeys(row["of"] for row in rows))
    axes = canvas.subplots(1, len(kinds), squeeze=False)[0]
    names = {
        "influence step, error": "distance", "influence step, bound": "bound",
        "Newton step, error": "newton_distance", "Newton step, bound": "newton_bound",
    }  # fmt: skip
    for axis, kind in zip(axes, kinds, strict=True):
        own = [row for row in rows if row["of"] == kind]
        series = {name: [(row["at"], row[key], None) for row in own if row[key]] for name, key in names.items()}
        lines(axis, series, _AXES[kind], "distance of parameters", kind)
        axis.set_yscale("log")
        if kind == "damping":
            smallest = min((row["at"] for row in own if row["at"]), default=1e-3)
            axis.set_xscale("symlog", linthresh=smallest)
            axis.set_xlim(left=-0.3 * smallest)
    legend_below(canvas)
