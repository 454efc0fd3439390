"""Edits on edits as curves over rounds."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, RETRAIN
from ecbm.show.reproduce.figures import legend_below, lines
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of, number, spread_of
from ecbm.show.reproduce.telling.comparisons import Difference, Values, difference
from ecbm.show.reproduce.telling.prose import joined, of_all, short

COLUMNS = (
    Column("level", "noise in"),
    Column("round", "round"),
    Column("method", "method"),
    Column("class_accuracy", "class accuracy", ".4f", "class_accuracy_sd"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
    Column("concept_accuracy", "concept accuracy", ".4f", "concept_accuracy_sd"),
    Column("closure", "closure, concepts", ".2f"),
    Column("class_closure", "closure, classes", ".2f"),
    Column("seconds", "seconds", ".3g"),
)
_FIGURES = ("class_accuracy", "class_f1", "concept_accuracy")
_WHAT = {"class_f1": "F1", "concept_accuracy": "concept accuracy"}

Lines = list[dict[str, Any]]


def tell(case: Case, values: Values) -> Findings:
    """Figures after every round, and how far from retraining the last one ends."""
    collected: dict[tuple[str, str, int], Lines] = {}
    for piece, value in values:
        method = METHODS.get(piece.options["method"], piece.options["method"])
        for line in value["rounds"]:
            known = collected.setdefault((piece.options["level"], method, line["round"]), [])
            known.append(line | {"repetition": piece.repetition})
    rows = []
    for (level, method, step), found in collected.items():
        row: dict[str, Any] = {"level": level, "method": method, "round": step}
        for key in (*_FIGURES, "closure", "class_closure", "seconds"):
            row[key] = mean_of([line.get(key) for line in found])
        row |= {f"{key}_sd": spread_of([line[key] for line in found]) for key in _FIGURES}
        rows.append(row)
    levels = {
        level: Rounds(
            level, {(method, step): found for (of, method, step), found in collected.items() if of == level}
        )
        for level in dict.fromkeys(row["level"] for row in rows)
    }
    details = [Detail(f"Noise in {name}, {level.last} rounds", level.about()) for name, level in levels.items()]
    figure = Figure(
        "", "Class accuracy and F1 over rounds of edits on edits, and of retraining each time",
        lambda canvas: _draw(canvas, rows), (9, 5.0),
    )  # fmt: skip
    lead = [kept_up(list(levels.values())), gained(list(levels.values()))]
    table = Table("", "", COLUMNS, rows)
    return Findings("periodic", case.setting("title"), [table], [figure], lead[0], lead, details)


class Rounds:
    """One kind of noise: every method's first and last round, repetition by repetition."""

    def __init__(self, level: str, found: dict[tuple[str, int], Lines]) -> None:
        self.key = "concept_accuracy" if level == "labels" else "class_f1"
        self.last = max(step for _, step in found)
        self.start = found[RETRAIN, 0]
        self.retrained = found[RETRAIN, self.last]
        self.ends = {
            method: lines for (method, step), lines in found.items() if step == self.last and method != RETRAIN
        }
        self.closure = "closure" if level == "labels" else "class_closure"

    @property
    def what(self) -> str:
        """The figure in which the noise is felt: of concepts where their labels were wrong, else of classes."""
        return _WHAT[self.key]

    def gain(self) -> Difference | None:
        """What retraining gains over all rounds."""
        return difference(self.retrained, self.start, self.key)

    def gap(self, method: str) -> Difference | None:
        """What a method ends above retraining."""
        return difference(self.ends[method], self.retrained, self.key)

    def about(self) -> list[str]:
        """Retraining's way, every method's end beside it, and who ends farther from it than the start was."""
        first, last = (mean_of([line[self.key] for line in lines]) for lines in (self.start, self.retrained))
        gain = self.gain()
        if first is None or last is None or gain is None:
            return ["No figures."]
        said = [f"Retrained {self.what} goes from {first:.4f} to {last:.4f} ({gain.words()})"]
        said[0] += ", no better than with the noise." if gain.mean <= 0 else "."
        gaps = {name: gap for name in self.ends if (gap := self.gap(name)) is not None}
        listed = joined(f"{short(name)} {gap.words()}" for name, gap in gaps.items())
        said.append(f"After the last round, against retraining: {listed}.")
        away = [short(name) for name, gap in gaps.items() if abs(gap.mean) > abs(gain.mean)]
        if away:
            said.append(f"Farther from retraining's {self.what} than the start was: {joined(away)}.")
        closures = {name: mean_of([line.get(self.closure) for line in lines]) for name, lines in self.ends.items()}
        known = joined(f"{short(name)} {number(value)}" for name, value in closures.items() if value is not None)
        of = "concept" if self.closure == "closure" else "class"
        return [*said, *([f"Closure of {of} probabilities to the last retrained model: {known}."] if known else [])]


def kept_up(levels: list[Rounds]) -> str:
    """Whether edits on edits end where retraining does."""
    said, rounds = [], max(level.last for level in levels)
    for method in dict.fromkeys(name for level in levels for name in level.ends):
        gaps = [gap for level in levels if method in level.ends and (gap := level.gap(method)) is not None]
        if not gaps:
            continue
        far = f"at most {max(abs(gap.mean) for gap in gaps):.3f} from retraining"
        if any(gap.half is not None for gap in gaps):
            told = sum(gap.certain for gap in gaps)
            far += f" (told apart for {of_all(told, len(gaps), 'kinds of noise')})"
        said.append(f"{short(method)} is {far}")
    where = "in concept accuracy where labels were wrong, in F1 else"
    return f"After {rounds} rounds of edits on edits {joined(said)}, {where}."


def gained(levels: list[Rounds]) -> str:
    """Whether there was anything to keep up with."""
    gains = [gain for level in levels if (gain := level.gain()) is not None]
    if any(gain.half is not None for gain in gains):
        better = sum(gain.certain and gain.mean > 0 for gain in gains)
        beyond = "beyond its interval "
    else:
        better, beyond = sum(gain.mean > 0 for gain in gains), ""
    return f"Retraining in every round gains something {beyond}for {of_all(better, len(gains), 'kinds of noise')}."


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    levels = list(dict.fromkeys(row["level"] for row in rows))
    axes = canvas.subplots(2, len(levels), squeeze=False)
    for column, level in enumerate(levels):
        own = [row for row in rows if row["level"] == level]
        names = list(dict.fromkeys(row["method"] for row in own))
        for axis, key, what in (
            (axes[0][column], "class_accuracy", "accuracy"),
            (axes[1][column], "class_f1", "F1"),
        ):
            series = {n: [(r["round"], r[key], r[f"{key}_sd"]) for r in own if r["method"] == n] for n in names}
            lines(axis, series, "round", what, f"noise in {level}" if key == "class_accuracy" else "")
    legend_below(canvas)
