"""Importance of concepts: predicted against brute force, and what removing both ends does to F1."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of, spread_of
from ecbm.show.reproduce.telling.comparisons import Values

_ENDS = ("most", "least")
RANKING = (
    Column("concept", "concept"),
    Column("predicted", "predicted change of loss", "+.4f"),
    Column("auto", "by auto", "+.4f"),
    Column("retrain", "by retraining", "+.4f"),
    Column("f1_auto", "F1, auto", "+.4f"),
    Column("f1_retrain", "F1, retraining", "+.4f"),
)
SETS = (
    Column("end", "influence"),
    Column("count", "concepts removed"),
    Column("auto", "change of F1, auto", "+.4f", "auto_half"),
    Column("retrain", "change of F1, retraining", "+.4f", "retrain_half"),
    Column("gap", "auto − retraining", "+.4f"),
)


def agreement(predicted: dict[str, float], actual: dict[str, float], top: int) -> tuple[int, float]:
    """How many of the first ``top`` concepts two rankings share, and Spearman's correlation of all.

    Examples
    --------
    >>> agreement({"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 9.0, "b": 1.0, "c": 4.0}, 2)
    (1, 0.5)
    """
    from scipy.stats import spearmanr

    names = list(predicted)
    best = [set(sorted(names, key=lambda name: -of[name])[:top]) for of in (predicted, actual)]
    found = spearmanr([predicted[name] for name in names], [actual[name] for name in names])
    return len(best[0] & best[1]), float(found.statistic)


def tell(case: Case, values: Values) -> Findings:
    """The first repetition's ranking beside brute force, agreement over all of them, and the curves."""
    top = min(int(case.setting("top")), len(case.data.concept_names))
    by_seed: dict[int, dict[str, Any]] = {}
    for piece, value in values:
        own = by_seed.setdefault(piece.repetition, {"one": {}, "set": {}})
        if piece.options["kind"] == "influence":
            own["influence"] = value
        elif piece.options["kind"] == "one":
            own["one"][piece.options["concept"]] = value
        else:
            own["set"][piece.options["end"], piece.options["count"]] = value
    ranking = _ranking(by_seed[min(by_seed)])
    sets = _sets(by_seed)
    tables = [
        Table("ranking", "Every concept on its own", RANKING, ranking),
        Table("", "The most and the least influential together", SETS, sets),
    ]
    figure = Figure(
        "", "Change of F1 as the most and the least influential concepts are removed; right: predicted against "
        "actual change of the validation loss", lambda canvas: _draw(canvas, sets, ranking), (9, 3.6),
    )  # fmt: skip
    sentences = [*_agreements(case, by_seed, top), *_ends(sets)]
    return Findings("concept-importance", case.setting("title"), tables, [figure], sentences)


def _changes(own: dict[str, Any], kind: str) -> dict[str, float]:
    return {name: found[kind]["changes"]["val"] for name, found in own["one"].items()}


def _ranking(own: dict[str, Any]) -> list[dict[str, Any]]:
    predicted, start = own["influence"]["influences"], own["influence"]["class_f1"]
    rows = []
    for name in sorted(predicted, key=lambda name: -predicted[name]):
        one = own["one"][name]
        rows.append(
            {
                "concept": name,
                "predicted": predicted[name],
                **{kind: one[kind]["changes"]["val"] for kind in ("auto", "retrain")},
                **{f"f1_{kind}": one[kind]["class_f1"] - start for kind in ("auto", "retrain")},
            }
        )
    return rows


def _sets(by_seed: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    first = next(iter(by_seed.values()))
    for end, count in first["set"]:
        row: dict[str, Any] = {"end": end, "count": count}
        for kind in ("auto", "retrain"):
            changes = [
                own["set"][end, count][kind]["class_f1"] - own["influence"]["class_f1"] for own in by_seed.values()
            ]
            row[kind], row[f"{kind}_half"] = mean_of(changes), spread_of(changes, interval=True)
        row["gap"] = row["auto"] - row["retrain"]
        rows.append(row)
    return rows


def _agreements(case: Case, by_seed: dict[int, dict[str, Any]], top: int) -> list[str]:
    """Overlap and rank correlation with brute force, beside what chance and the seeds give."""
    count = len(case.data.concept_names)
    said = []
    for kind, what in (("auto", "removing each concept by auto"), ("retrain", "retraining without each concept")):
        found = [agreement(own["influence"]["influences"], _changes(own, kind), top) for own in by_seed.values()]
        shared, correlation = mean_of([one[0] for one in found]), mean_of([one[1] for one in found])
        said.append(
            f"Against {what}, theorem 4.3 names {shared:.1f} of the {top} most influential concepts (by chance "
            f"{top * top / count:.1f}), and Spearman's correlation over all {count} is {correlation:.2f}."
        )
    own = next(iter(by_seed.values()))
    largest = max(abs(value) for value in own["influence"]["influences"].values())
    noise = own["influence"]["noise"]
    if noise > 1e-9:
        verdict = "more" if noise > largest else "less"
        said.append(
            f"Two seeds of the same training lie {noise:.4f} apart in that loss, {verdict} than the largest "
            f"predicted influence ({largest:.4f})"
            + (": one retraining without a concept cannot rank concepts here." if noise > largest else ".")
        )
    seconds = mean_of([own["influence"]["seconds"] for own in by_seed.values()])
    each = [one["training_seconds"] for own in by_seed.values() for one in own["one"].values()]
    brute = mean_of(each)
    if seconds is not None and brute is not None:
        said.append(
            f"All influences take {seconds:.2g} s together; brute force by retraining takes {brute * count:.3g} s."
        )
    return said


def _ends(sets: list[dict[str, Any]]) -> list[str]:
    said = []
    for end in _ENDS:
        own = [row for row in sets if row["end"] == end]
        if not own:
            continue
        last, gaps = own[-1], [abs(row["gap"]) for row in own]
        said.append(
            f"Removing the {last['count']} {end} influential concepts changes F1 by {last['retrain']:+.4f} "
            f"(retraining) and {last['auto']:+.4f} (auto); over all numbers the two differ by at most "
            f"{max(gaps):.4f}."
        )
    ends = {end: [row["retrain"] for row in sets if row["end"] == end] for end in _ENDS}
    if all(ends.values()):
        costly = ends["most"][-1] < min(0.0, ends["least"][-1])
        said.append(
            f"The most influential ones {'cost' if costly else 'do not cost'} F1 more than the least influential "
            "ones do, at the largest number removed and retrained."
        )
    return said


def _draw(canvas: Any, sets: list[dict[str, Any]], ranking: list[dict[str, Any]]) -> None:
    axes = canvas.subplots(1, 3)
    for axis, end in zip(axes, _ENDS, strict=False):
        own = [row for row in sets if row["end"] == end]
        series = {
            kind: [(row["count"], row[kind], row[f"{kind}_half"]) for row in own] for kind in ("retrain", "auto")
        }
        lines(axis, series, "concepts removed", "change of F1", f"{end} influential")
        axis.axhline(0, color="#999999", linewidth=0.6)
    low, high = (f(row["predicted"] for row in ranking) for f in (min, max))
    axes[2].plot([low, high], [low, high], color="#999999", linewidth=0.8)
    for kind, colour, mark in (("retrain", "#000000", "D"), ("auto", "#0072B2", "o")):
        xs, ys = [row["predicted"] for row in ranking], [row[kind] for row in ranking]
        axes[2].plot(xs, ys, linestyle="", color=colour, marker=mark, markersize=3.5)
    axes[2].set_xlabel("predicted change of loss")
    axes[2].set_ylabel("actual change")
    axes[2].set_title("one concept each")
    legend_below(canvas)
