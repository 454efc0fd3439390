"""Importance of concepts: predicted against brute force, and what removing both ends does to F1."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of, number, spread_of
from ecbm.show.reproduce.telling.comparisons import Difference, Values
from ecbm.show.reproduce.telling.prose import whole

_ENDS = ("most", "least")
RANKING = (
    Column("concept", "concept"),
    Column("predicted", "loss, predicted", "+.4f"),
    Column("auto", "loss, auto", "+.4f"),
    Column("retrain", "loss, retraining", "+.4f"),
    Column("f1_auto", "F1, auto", "+.4f"),
    Column("f1_retrain", "F1, retraining", "+.4f"),
)
SETS = (
    Column("end", "influence"),
    Column("count", "removed"),
    Column("auto", "F1, auto", "+.4f", "auto_half"),
    Column("retrain", "F1, retraining", "+.4f", "retrain_half"),
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
        Table(
            "ranking", "Every concept removed on its own: change of the validation loss and of F1", RANKING, ranking
        ),
        Table("", "The most and the least influential removed together: change of F1", SETS, sets),
    ]
    figure = Figure(
        "", "Change of F1 as the most and the least influential concepts are removed; right: predicted against "
        "actual change of the validation loss", lambda canvas: _draw(canvas, sets, ranking), (9, 3.6),
    )  # fmt: skip
    found = agreements(by_seed, top)
    lead = [agreed(found, top, len(case.data.concept_names)), *noise(by_seed)]
    details = [Detail("Removed together", ends(sets)), Detail("Cost", cost(by_seed))]
    return Findings(
        "concept-importance", case.setting("title"), tables, [figure], in_short(found, by_seed, top), lead, details
    )


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


Agreement = list[tuple[int, float]]


def agreements(by_seed: dict[int, dict[str, Any]], top: int) -> dict[str, Agreement]:
    """Overlap and rank correlation with both kinds of brute force, by repetition."""
    return {
        kind: [agreement(own["influence"]["influences"], _changes(own, kind), top) for own in by_seed.values()]
        for kind in ("auto", "retrain")
    }


def beyond_chance(found: Agreement, top: int, count: int) -> bool:
    """Whether every repetition shares more of the first ``top`` of ``count`` than 95 of 100 random rankings.

    Examples
    --------
    >>> beyond_chance([(9, 0.8)], 10, 21), beyond_chance([(6, 0.3)], 10, 21)
    (True, False)
    """
    from scipy.stats import hypergeom

    return all(hypergeom.sf(shared - 1, count, top, top) < 0.05 for shared, _ in found)


def agreed(found: dict[str, Agreement], top: int, count: int) -> str:
    """How theorem 4.3's ranking compares with removing concepts, beside what chance gives."""
    shared, correlation = (
        {kind: mean_of([one[place] for one in ranks]) or 0.0 for kind, ranks in found.items()} for place in (0, 1)
    )
    chance = whole(top * top / count)
    verdict = (
        f"more than chance ({chance})"
        if beyond_chance(found["retrain"], top, count)
        else (f"which chance may give as well ({chance} in the mean)")
    )
    return (
        f"Of the {top} concepts that theorem 4.3 calls most influential, {whole(shared['auto'])} are among the "
        f"{top} whose removal by auto raises the loss most (Spearman's correlation over all {count}: "
        f"{number(correlation['auto'])}), and {whole(shared['retrain'])} among those of retraining "
        f"({number(correlation['retrain'])}), {verdict}."
    )


def in_short(found: dict[str, Agreement], by_seed: dict[int, dict[str, Any]], top: int) -> str:
    """Agreement with both kinds of brute force, and whether retraining can tell at all."""
    auto, retrain = (whole(mean_of([one[0] for one in found[kind]]) or 0.0) for kind in ("auto", "retrain"))
    count = len(next(iter(by_seed.values()))["one"])
    said = (
        f"Theorem 4.3 names {auto} of the {top} concepts whose removal by auto costs most, and {retrain} of those "
        f"of retraining (chance: {whole(top * top / count)})"
    )
    apart, largest = _apart(by_seed)
    if apart > largest:
        said += "; two seeds of one training differ by more than any predicted influence"
    return f"{said}."


def _apart(by_seed: dict[int, dict[str, Any]]) -> tuple[float, float]:
    """How far two seeds of one training lie apart, and the largest predicted influence."""
    own = next(iter(by_seed.values()))["influence"]
    return own["noise"], max(abs(value) for value in own["influences"].values())


def noise(by_seed: dict[int, dict[str, Any]]) -> list[str]:
    """Whether one retraining can tell influences of this size at all."""
    apart, largest = _apart(by_seed)
    if apart <= 1e-9:
        return []
    said = f"Two seeds of the same training differ by {apart:.4f} in that loss"
    if apart > largest:
        verdict = "so one retraining a concept cannot rank concepts here"
        return [f"{said}, more than the largest predicted influence ({largest:.4f}), {verdict}."]
    return [f"{said}, less than the largest predicted influence ({largest:.4f})."]


def cost(by_seed: dict[int, dict[str, Any]]) -> list[str]:
    """Seconds of the theorem and of brute force."""
    seconds = mean_of([own["influence"]["seconds"] for own in by_seed.values()])
    each = [one["training_seconds"] for own in by_seed.values() for one in own["one"].values()]
    brute, count = mean_of(each), len(next(iter(by_seed.values()))["one"])
    if seconds is None or brute is None:
        return ["Not measured."]
    return [f"All influences take {seconds:.2g} s together, retraining without each concept {brute * count:.3g} s."]


def ends(sets: list[dict[str, Any]]) -> list[str]:
    """What removing the concepts of both ends does to F1, by retraining and by ``auto``."""
    said = []
    for end in _ENDS:
        own = [row for row in sets if row["end"] == end]
        if not own:
            continue
        last, gaps = own[-1], [abs(row["gap"]) for row in own]
        changes = [Difference(last[kind], last.get(f"{kind}_half")).words() for kind in ("retrain", "auto")]
        said.append(
            f"Without the {last['count']} {end} influential concepts F1 changes by {changes[0]} (retraining) and "
            f"{changes[1]} (auto); over all numbers the two differ by at most {max(gaps):.4f}."
        )
    final = {end: [row["retrain"] for row in sets if row["end"] == end] for end in _ENDS}
    if all(final.values()):
        costly = final["most"][-1] < min(0.0, final["least"][-1])
        said.append(
            f"Retrained without them, the most influential ones {'cost' if costly else 'do not cost'} F1 more than "
            "the least influential ones do."
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
