"""What the experiments made of comparisons share: rows over repetitions, and sentences about them.

A difference counts where the 95 % interval over repetitions does not hold 0; with one repetition there is no
interval, and the sentence says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from ecbm.show.reproduce.comparing import NO_OP, RETRAIN
from ecbm.show.reproduce.findings import mean_of, spread_of
from ecbm.show.reproduce.pieces import Piece

__all__ = [
    "Difference",
    "Entries",
    "closeness",
    "collected",
    "difference",
    "effect_on",
    "joined",
    "row_of",
    "times",
    "values_of",
]

Values = Sequence[tuple[Piece, dict[str, Any]]]
Entries = dict[str, list[dict[str, Any]]]
"""Rows by method, one entry a repetition."""


def collected(values: Values) -> dict[str, Entries]:
    """By title and method, in the order of the pieces; an entry knows its repetition."""
    found: dict[str, Entries] = {}
    for piece, value in values:
        for name, row in value["rows"].items():
            entry = row | {"repetition": piece.repetition, "training_seconds": value["training_seconds"]}
            found.setdefault(piece.title, {}).setdefault(name, []).append(entry)
    return found


def values_of(entries: Sequence[dict[str, Any]], key: str) -> list[float | None]:
    """One figure of every repetition."""
    return [entry.get(key) for entry in entries]


def row_of(title: str, method: str, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line of a table: means over repetitions, their standard deviation (figures) or interval (closure)."""
    row: dict[str, Any] = {"edit": title, "method": method, "repetitions": len(entries)}
    for key in ("class_f1", "class_accuracy", "concept_accuracy"):
        row[key], row[f"{key}_sd"] = mean_of(values_of(entries, key)), spread_of(values_of(entries, key))
    for key in ("closure", "class_closure"):
        row[key] = mean_of(values_of(entries, key))
        row[f"{key}_half"] = spread_of(values_of(entries, key), interval=True)
    row["seconds"] = mean_of(values_of(entries, "seconds"))
    row["preparation"] = mean_of(values_of(entries, "preparation"))
    training = mean_of(values_of(entries, "training_seconds"))
    if row["seconds"] and training:
        row["speed_up"], row["share_of_retraining"] = training / row["seconds"], row["seconds"] / training
    row["note"] = next((entry["note"] for entry in entries if entry.get("note")), "")
    row["missing"] = row["note"] if row["class_f1"] is None else ""
    return row


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference over repetitions with half of its 95 % interval; ``None`` of one repetition."""

    mean: float
    half: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval does not hold 0."""
        return self.half is not None and abs(self.mean) > self.half

    def words(self, form: str = "+.4f") -> str:
        """As a number with what is known of its spread."""
        if self.half is None:
            return f"{self.mean:{form}} (one repetition, no interval)"
        return f"{self.mean:{form}} ± {self.half:{form.replace('+', '')}}"


def difference(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]], key: str) -> Difference | None:
    """One minus other, paired by repetition; ``None`` where no repetition has both."""
    theirs = {entry["repetition"]: entry.get(key) for entry in other}
    pairs = [(entry.get(key), theirs.get(entry["repetition"])) for entry in one]
    values = [a - b for a, b in pairs if a is not None and b is not None]
    mean = mean_of(values)
    return None if mean is None else Difference(mean, spread_of(values, interval=True))


def effect_on(key: str, name: str, entries: Entries) -> str:
    """Whether retraining itself moves a figure: if not, that figure cannot tell an edit from no edit."""
    moved = difference(entries[RETRAIN], entries[NO_OP], key)
    if moved is None:
        return ""
    text = f"retraining moves {name} by {moved.words()} against doing nothing"
    if moved.half is None:
        return text
    if moved.certain:
        return f"{text}, which is beyond its interval"
    return (
        f"{text}, which is within its interval, so {name} near retraining's does not tell an edit from no edit here"
    )


# Closures that differ by less are not told apart in words.
_ALIKE = 0.005


def _closures(entries: Entries, methods: Sequence[str], key: str) -> dict[str, float]:
    known = {name: mean_of(values_of(entries.get(name, ()), key)) for name in methods}
    return {name: value for name, value in known.items() if value is not None}


def closeness(entries: Entries, methods: Sequence[str]) -> list[str]:
    """Which method ends closest to retraining, what another seed gives, and which end farther than no edit.

    Of concepts; of classes where no method moves the concepts (a concept was removed and the backbone left alone).
    """
    key, what, reached = "closure", "concept", _closures(entries, methods, "closure")
    if all(abs(value) < _ALIKE for value in reached.values()):
        key, what, reached = "class_closure", "class", _closures(entries, methods, "class_closure")
    if not reached:
        return []
    best = max(reached, key=lambda name: reached[name])
    if reached[best] < _ALIKE:
        said = f"no method comes closer to the retrained {what} probabilities than doing nothing"
    else:
        nearest = joined(name for name in reached if reached[best] - reached[name] < _ALIKE)
        said = f"closest to the retrained {what} probabilities: {nearest}, with a closure of {reached[best]:.2f}"
    floor = mean_of(values_of(entries[RETRAIN], key))
    if floor is not None:
        said += f"; another seed of retraining has {floor:.2f}"
    halves = {name: spread_of(values_of(entries[name], key), interval=True) or 0.0 for name in reached}
    worse = joined(f"{name} ({v:.2f})" for name, v in reached.items() if v < -max(halves[name], _ALIKE))
    alike = joined(
        f"{name} ({v:.2f} ± {halves[name]:.2f})" for name, v in reached.items() if _ALIKE < halves[name] >= abs(v)
    )
    sentences = [said, *([f"farther from retraining than doing nothing: {worse}"] if worse else [])]
    return [*sentences, *([f"not told from doing nothing: {alike}"] if alike else [])]


def times(entries: Entries, methods: Sequence[str]) -> str:
    """How long edits take beside retraining."""
    rows = {name: row_of("", name, entries[name]) for name in methods if name in entries}
    shares = {name: row["share_of_retraining"] for name, row in rows.items() if row.get("share_of_retraining")}
    if not shares:
        return ""
    faster = joined(f"{name} {share:.1%}" for name, share in shares.items() if share < 1)
    slower = joined(f"{name} ({share:.1f} times as long)" for name, share in shares.items() if share >= 1)
    said = f"of retraining's time: {faster}" if faster else ""
    long = f"longer than retraining: {slower}" if slower else ""
    return "; ".join(part for part in (said, long) if part)


def joined(words: Iterable[str]) -> str:
    """Words in a sentence, all of them.

    Examples
    --------
    >>> joined(["a", "b", "c"]), joined(["a"]), joined([])
    ('a, b and c', 'a', '')
    """
    found = list(words)
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)
