"""The answer to "which labels are wrong?" as a value: to print, to trim, to turn into an edit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ecbm.edit.edit import Edit
from ecbm.errors import InputError

if TYPE_CHECKING:
    import pandas

__all__ = ["Suggestion", "Suggestions"]


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """One label that is probably wrong: what it should be, how probable that is, and why.

    ``concept`` is ``None`` for a class label (or a label that is a number); ``value`` is the proposed value, and
    ``recorded`` the present one. ``evidence`` has the figures behind the reasons: what the model, the neighbours,
    the class and the other labels make of the opposite value, and what it would do to the validation loss.
    """

    id: str
    concept: str | None
    value: float | str
    recorded: float | str
    score: float
    reasons: tuple[str, ...]
    evidence: Mapping[str, float | None] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | {"reasons": list(self.reasons), "evidence": dict(self.evidence)}


@dataclasses.dataclass(frozen=True)
class Suggestions:
    """Suspicious labels, best first, and what else was found. Nothing is applied: see :meth:`to_edit`.

    Attributes
    ----------
    suggestions
        Labels that are probably wrong, likeliest first.
    expected_errors, labels
        How many labels are estimated to be wrong, suggested or not, and how many there are.
    patterns
        What was done wrong more than once, each with its ``words``.
    clusters
        Where suspicious labels lie close together: a class, a concept and a recorded value.
    samples
        Samples in which several labels seem wrong.
    rare
        Suggestions for concepts that too few samples have (or lack), which are ranked among themselves.
    checks
        Single labels worth a look where no model can know.
    confirmed
        Labels that a person found to be wrong and that the data still holds.
    notes
        What a reader of the figures has to know.
    split
        Whose labels these are.
    """

    suggestions: tuple[Suggestion, ...]
    expected_errors: Mapping[str, float]
    labels: Mapping[str, int]
    patterns: tuple[Mapping[str, Any], ...]
    clusters: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...]
    rare: tuple[Suggestion, ...]
    checks: tuple[Mapping[str, Any], ...]
    confirmed: tuple[Suggestion, ...]
    notes: tuple[str, ...]
    split: str = "train"

    def __len__(self) -> int:
        return len(self.suggestions)

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.suggestions)

    def __repr__(self) -> str:
        wrong = sum(self.expected_errors.values())
        return f"Suggestions({len(self)} labels, about {wrong:.0f} of {sum(self.labels.values()):,} wrong)"

    def to_edit(self, *, confirmed_only: bool = False) -> Edit:
        """The corrections as an edit, to trim and apply: what was confirmed, and what is suggested.

        Parameters
        ----------
        confirmed_only
            Leave out what nobody has looked at.
        """
        if self.split != "train":
            raise InputError(
                f"suggestions about the {self.split} split make no edit; edits reach training labels alone"
            )
        chosen = self.confirmed if confirmed_only else (*self.confirmed, *self.suggestions)
        return Edit(
            correct_concepts=[(s.id, s.concept, s.value) for s in chosen if s.concept is not None],
            correct_labels=[(s.id, s.value) for s in chosen if s.concept is None],
        )

    def to_frame(self) -> pandas.DataFrame:
        """One row a suggestion: id, concept (``None`` for a class label), recorded, value, score, reasons, rare,
        and a column for each figure of the evidence.
        """
        import pandas

        rows = [
            {
                "id": s.id, "concept": s.concept, "recorded": s.recorded, "value": s.value, "score": s.score,
                "reasons": "; ".join(s.reasons), "rare": rare, **s.evidence,
            }
            for some, rare in ((self.suggestions, False), (self.rare, True))
            for s in some
        ]  # fmt: skip
        first = ["id", "concept", "recorded", "value", "score", "reasons", "rare"]
        frame = pandas.DataFrame(rows, columns=None if rows else first)
        frame["concept"] = frame["concept"].astype(object).where(frame["concept"].notna(), None)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "suggestions": [s.to_dict() for s in self.suggestions],
            "expected_errors": dict(self.expected_errors),
            "labels": dict(self.labels),
            "patterns": [dict(p) for p in self.patterns],
            "clusters": [dict(c) for c in self.clusters],
            "samples": [dict(s) for s in self.samples],
            "rare": [s.to_dict() for s in self.rare],
            "checks": [dict(c) for c in self.checks],
            "confirmed": [s.to_dict() for s in self.confirmed],
            "notes": list(self.notes),
            "split": self.split,
        }
