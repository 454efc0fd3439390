"""What the experiments made of comparisons share: rows over repetitions, and sentences about them.

A difference counts where the 95 % interval over repetitions does not hold 0; with one repetition there is no
interval, and the sentence says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.findings import mean_of, number, spread_of
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.telling.prose import capital, joined, percent, short

__all__ = [
    "AUTO",
    "TUNED",
    "WRITTEN",
    "Difference",
    "Entries",
    "Level",
    "collected",
    "difference",
    "row_of",
    "values_of",
]

AUTO, WRITTEN, TUNED = (METHODS[key] for key in ("auto", "ekfac, as written", "fine-tuning"))
Values = Sequence[tuple[Piece, dict[str, Any]]]
Entries = Mapping[str, Sequence[dict[str, Any]]]
"""Rows by method, one entry a repetition."""


def collected(values: Values) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By title and method, in the order of the pieces; an entry knows its repetition."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
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


# Closures nearer to 0 than this are not told from doing nothing in words, whatever their interval.
_ALIKE = 0.005


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference over repetitions with half of its 95 % interval; ``None`` of one repetition."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Difference | None:
        """Of one value a repetition."""
        mean = mean_of(values)
        return None if mean is None else cls(mean, spread_of(values, interval=True))

    @property
    def certain(self) -> bool:
        """Whether the interval does not hold 0."""
        return self.half is not None and abs(self.mean) > self.half

    def words(self, form: str = "+.4f") -> str:
        """As a number with what is known of its spread."""
        text = number(self.mean, form)
        return text if self.half is None else f"{text} ± {self.half:{form.replace('+', '')}}"


def difference(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]], key: str) -> Difference | None:
    """One minus other, paired by repetition; ``None`` where no repetition has both."""
    theirs = {entry["repetition"]: entry.get(key) for entry in other}
    pairs = [(entry.get(key), theirs.get(entry["repetition"])) for entry in one]
    return Difference.of([a - b for a, b in pairs if a is not None and b is not None])


class Level:
    """One kind of edit: where every method ends between the unedited model and retraining, and what it takes.

    Parameters
    ----------
    entries
        Rows by method.
    of
        Whose probabilities count: ``"concept"``, or ``"class"`` where the edit is about classes, or removes
        concepts and leaves those that stay as they are.
    """

    def __init__(self, entries: Entries, of: str) -> None:
        self.entries, self.of = entries, of
        self.key = "closure" if of == "concept" else "class_closure"
        self.methods = [name for name in METHODS.values() if name in entries]
        found = {name: Difference.of(values_of(entries[name], self.key)) for name in self.methods}
        self.closures = {name: closure for name, closure in found.items() if closure is not None}
        self.repeated = any(closure.half is not None for closure in self.closures.values())

    @property
    def seeds(self) -> float | None:
        """The closure of retraining under another seed."""
        return mean_of(values_of(self.entries[RETRAIN], self.key))

    def closer(self, name: str) -> bool:
        """Whether a method ends closer to retraining than the unedited model, beyond the interval."""
        found = self.closures.get(name)
        return found is not None and found.certain and found.mean > _ALIKE

    def farther(self, name: str) -> bool:
        """Whether it ends farther away, beyond the interval."""
        found = self.closures.get(name)
        return found is not None and found.certain and found.mean < -_ALIKE

    def share(self, name: str) -> float | None:
        """Of retraining's time."""
        share: float | None = row_of("", name, self.entries[name]).get("share_of_retraining")
        return share

    def moved(self, key: str) -> Difference | None:
        """What retraining itself changes of a figure, against doing nothing."""
        return difference(self.entries[RETRAIN], self.entries[NO_OP], key)

    # -- sentences -----------------------------------------------------------------------------------------------

    def standing(self) -> list[str]:
        """Who ends closer to retraining than the unedited model, who farther, and what another seed gives."""
        if not self.closures:
            return []
        ranked = sorted(self.closures, key=lambda name: -self.closures[name].mean)
        seeds = "" if self.seeds is None else f"; another seed of retraining {number(self.seeds)}"
        if not self.repeated:
            return [f"Closure of {self.of} probabilities (one repetition): {self._listed(ranked)}{seeds}."]
        groups = {
            f"Closer to the retrained {self.of} probabilities than no edit": [n for n in ranked if self.closer(n)],
            "Farther from them than no edit": [name for name in ranked if self.farther(name)],
            "Not told from no edit": [n for n in ranked if not self.closer(n) and not self.farther(n)],
        }
        said = [f"{words}: {self._listed(names)}." for words, names in groups.items() if names]
        if not groups[next(iter(groups))]:
            said.insert(0, f"No method comes closer to the retrained {self.of} probabilities than no edit.")
        if self.seeds is not None:
            said.append(f"Closure of another seed of retraining: {number(self.seeds)}.")
        return said

    def _listed(self, names: Sequence[str]) -> str:
        return joined(f"{short(name)} {self.closures[name].words('.2f')}" for name in names)

    def effect(self, key: str, what: str) -> str:
        """Whether retraining itself moves a figure: if not, that figure cannot tell an edit from no edit."""
        moved = self.moved(key)
        if moved is None:
            return ""
        said = f"Retraining changes {what} by {moved.words()}"
        if moved.half is None:
            return f"{said} (one repetition, no interval)."
        return f"{said}, {'beyond' if moved.certain else 'within'} its interval."

    def against_tuning(self) -> str:
        """``auto`` against fine-tuning of equal work, in closure."""
        gap = difference(self.entries.get(AUTO, ()), self.entries.get(TUNED, ()), self.key)
        if gap is None:
            return ""
        words = f"closure {gap.words('+.2f')}"
        if gap.half is None:
            return f"{capital(AUTO)} against fine-tuning of equal work: {words}."
        if not gap.certain:
            return f"{capital(AUTO)} and fine-tuning of equal work are not told apart ({words})."
        return f"{capital(AUTO)} is {'ahead of' if gap.mean > 0 else 'behind'} fine-tuning of equal work ({words})."

    def times(self) -> str:
        """How long edits take beside retraining."""
        shares = {name: self.share(name) for name in self.methods}
        known = {name: share for name, share in shares.items() if share}
        faster = joined(f"{short(name)} {percent(share)}" for name, share in known.items() if share < 1)
        slower = joined(f"{short(name)} ({share:.1f} times)" for name, share in known.items() if share >= 1)
        said = [f"of retraining's time: {faster}"] if faster else []
        said += [f"longer than retraining: {slower}"] if slower else []
        return f"{capital('; '.join(said))}." if said else ""
