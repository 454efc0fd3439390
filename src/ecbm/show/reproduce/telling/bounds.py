"""Bounds against true distances."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import Values

COLUMNS = (
    Column("of", "function of"),
    Column("at", "at", "g"),
    Column("distance", "true error of the influence step", ".2e"),
    Column("bound", "its bound", ".2e"),
    Column("newton_distance", "true error of the Newton step", ".2e"),
    Column("newton_bound", "its bound", ".2e"),
    Column("ratio", "bound / error", ".1f"),
    Column("held", "cases that held"),
    Column("of_cases", "cases"),
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
    held, cases = sum(row["held"] for row in rows), sum(row["of_cases"] for row in rows)
    sentences = [
        f"The corrected bounds hold in {held} of {cases} cases"
        + ("." if held == cases else ", so that something in them or in the solver is wrong.")
    ]
    for of in dict.fromkeys(row["of"] for row in rows):
        sentences.append(_about(of, [row for row in rows if row["of"] == of]))
    figure = Figure(
        "", "True errors of a single step and their bounds", lambda canvas: _draw(canvas, rows), (9, 3.4)
    )
    return Findings("bounds", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


_MEANS = ("distance", "bound", "newton_distance", "newton_bound")


def _about(of: str, rows: list[dict[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        error, bound = first["distance"], first["bound"]
        return f"With {of} of {first['at']:g} the influence step's error is {error:.1e}, its bound {bound:.1e}."
    grows = last["distance"] > first["distance"]
    said = (
        f"As a function of {of} the influence step's error {'grows' if grows else 'falls'} from "
        f"{first['distance']:.1e} at {first['at']:g} to {last['distance']:.1e} at {last['at']:g}, its bound goes "
        f"from {first['bound']:.1e} to {last['bound']:.1e}"
    )
    return said + (f"; the bound is {min(ratios):.1f} to {max(ratios):.1f} times the error." if ratios else ".")


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
