"""Harmful data removed: before, after editing, after retraining."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import points
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import AUTO, Difference, Level, Values, collected, row_of, values_of
from ecbm.show.reproduce.telling.prose import joined, of_all, percent, short
from ecbm.verify.fidelity import recovery_interval

COLUMNS = (
    Column("edit", "noise in"),
    Column("method", "method"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
    Column("class_accuracy", "class accuracy", ".4f", "class_accuracy_sd"),
    Column("concept_accuracy", "concept accuracy", ".4f", "concept_accuracy_sd"),
    Column("recovery", "recovery", ".2f", "recovery_half"),
    Column("closure", "closure, concepts", ".2f", "closure_half"),
    Column("class_closure", "closure, classes", ".2f", "class_closure_half"),
)
_METRIC = {"labels": ("concept_accuracy", "concept accuracy")}


def tell(case: Case, values: Values) -> Findings:
    """Whether removing the noise helps at all, and how much of retraining's gain each method has."""
    found = collected(values)
    # Noise in concept labels is about concepts; a wrong class, or a concept that goes, is about classes.
    levels = {title: Level(entries, "concept" if title in _METRIC else "class") for title, entries in found.items()}
    rows = []
    for title, level in levels.items():
        for name in (NO_OP, *METHODS.values(), RETRAIN):
            if name in level.entries:
                rows.append(row_of(title, name, level.entries[name]) | recovery(title, level, name))
    details = [Detail(f"Noise in {title}", about(title, level, rows)) for title, level in levels.items()]
    figure = Figure(
        "", "Class F1 and concept accuracy with the noise, after editing and after retraining",
        lambda canvas: _draw(canvas, rows), (9, 4.4),
    )  # fmt: skip
    lead = leading(levels, rows)
    table = Table("", "", COLUMNS, rows)
    return Findings("harmful", case.setting("title"), [table], [figure], " ".join(lead[:2]), lead, details)


def _metric(title: str) -> tuple[str, str]:
    """The figure in which the noise is felt, and its name."""
    return _METRIC.get(title, ("class_accuracy", "class accuracy"))


def gain_of(title: str, level: Level) -> tuple[Difference | None, bool]:
    """What retraining gains, and whether that is beyond its interval, or with one repetition beyond its seeds."""
    key, _ = _metric(title)
    gain = level.moved(key)
    if gain is None or gain.mean <= 0:
        return gain, False
    if gain.half is not None:
        return gain, gain.certain
    seeds = level.entries[RETRAIN][0].get(f"{key}_of_seeds") or []
    return gain, len(seeds) < 2 or gain.mean > max(seeds) - min(seeds)


def recovery(title: str, level: Level, name: str) -> dict[str, Any]:
    """Σ gained / Σ to gain over repetitions, where there is something to gain."""
    known = [entry for entry in level.entries[name] if entry.get("gained") is not None]
    if not known or not gain_of(title, level)[1]:
        return {"recovery": None}
    found = recovery_interval([entry["gained"] for entry in known], [entry["to_gain"] for entry in known])
    return {"recovery": found.mean, "recovery_half": found.half}


def _recovered(title: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of retraining's gain by method."""
    return {
        row["method"]: row["recovery"] for row in rows
        if row["edit"] == title and row["method"] in METHODS.values() and row["recovery"] is not None
    }  # fmt: skip


def leading(levels: dict[str, Level], rows: list[dict[str, Any]]) -> list[str]:
    """Where the noise costs something that retraining wins back, and how much of that editing does."""
    gains = {title: gain_of(title, level) for title, level in levels.items()}
    helped = {title: gain for title, (gain, real) in gains.items() if real and gain is not None}
    if not helped:
        kinds = f"any of the {len(levels)} kinds of noise"
        return [f"Retraining without it gains nothing beyond chance for {kinds}: there is nothing to recover."]
    count = of_all(len(helped), len(levels), "kinds of noise")
    listed = joined(f"{title} ({_metric(title)[1]} {gain.words()})" for title, gain in helped.items())
    shares, others = [], []
    for title in helped:
        known = _recovered(title, rows)
        if AUTO in known:
            shares.append(f"{percent(known[AUTO])} for {title}")
        rest = {name: share for name, share in known.items() if name != AUTO}
        if rest:
            best = max(rest, key=lambda name: rest[name])
            others.append(f"{percent(rest[best])} for {title} ({short(best)})")
    said = [f"Retraining without it gains something beyond chance for {count}: {listed}."]
    if shares:
        said.append(
            f"Of that gain auto has {joined(shares)}"
            + (f", the best other edit {joined(others)}." if others else ".")
        )
    return said


def about(title: str, level: Level, rows: list[dict[str, Any]]) -> list[str]:
    """One level: retraining's gain, who has how much of it, and who ends closer to retraining."""
    _, what = _metric(title)
    gain, real = gain_of(title, level)
    if gain is None:
        return ["No figures."]
    said = [f"Retraining without it changes {what} by {gain.words()}"]
    if gain.half is None:
        said[0] += " (one repetition, no interval)"
    if not real:
        said[0] += ", no gain beyond chance, so there is nothing to recover."
    else:
        said[0] += "."
        known = _recovered(title, rows)
        said.append(f"Of that gain: {joined(f'{short(name)} {percent(share)}' for name, share in known.items())}.")
        lost = [short(name) for name, share in known.items() if share < 0]
        if lost:
            said.append(f"Worse than the spoilt model: {joined(lost)}.")
    before, after = (mean_of(values_of(level.entries[name], "class_f1")) for name in (NO_OP, RETRAIN))
    if before is not None and after is not None:
        said.append(f"Class F1 is {before:.4f} with the noise and {after:.4f} retrained.")
    return [*said, *level.standing()]


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    titles = list(dict.fromkeys(row["edit"] for row in rows))
    axes = canvas.subplots(2, len(titles), squeeze=False)
    for column, title in enumerate(titles):
        own = [row for row in rows if row["edit"] == title][::-1]
        points(axes[0][column], own, "class_f1", "class_f1_sd", column == 0)
        points(axes[1][column], own, "concept_accuracy", "concept_accuracy_sd", column == 0)
        axes[0][column].set_title(f"noise in {title}")
        axes[0][column].set_xlabel("class F1")
        axes[1][column].set_xlabel("concept accuracy")
    canvas.tight_layout()
