"""The answer to "which labels are wrong?" as a value: to print, to trim, to turn into an edit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ecbm.edit.edit import Edit

__all__ = ["Suggestion", "Suggestions"]


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """One label that is probably wrong: what it should be, how probable that is, and why.

    ``concept`` is ``None`` for a class label; ``value`` is the proposed value, and ``recorded`` the present one.
    ``evidence`` has the figures behind the reasons: what the model, the neighbours, the class and the other labels
    make of the opposite value, and what it would do to the validation loss.
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
        return dataclasses.asdict(self) | {"reasons": list(self.reasons), "evidence": dict(self.evidence)}


@dataclasses.dataclass(frozen=True)
class Suggestions:
    """Suspicious labels, best first, and what else was found. Nothing is applied: see :meth:`edit`.

    ``expected_errors`` estimates how many of the ``labels`` of the training split are wrong, suggested or not;
    ``patterns`` are things done wrong more than once; ``rare`` has the suggestions for concepts that too few
    samples have (or lack), which are ranked among themselves; ``checks`` are single labels worth a look where no
    model can know; ``samples`` are those in which several labels seem wrong, ``clusters`` where suspicious labels
    lie close together.
    """

    suggestions: tuple[Suggestion, ...]
    expected_errors: Mapping[str, float]
    labels: Mapping[str, int]
    patterns: tuple[Mapping[str, Any], ...]
    clusters: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...]
    rare: tuple[Suggestion, ...]
    checks: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.suggestions)

    def edit(self) -> Edit:
        """The corrections as an edit, to trim and apply."""
        return Edit(
            correct_concepts=[(s.id, s.concept, s.value) for s in self.suggestions if s.concept is not None],
            correct_labels=[(s.id, s.value) for s in self.suggestions if s.concept is None],
        )

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
            "notes": list(self.notes),
        }
