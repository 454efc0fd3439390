"""An influence step of g whose damping and length the edited objective chooses; nothing worse than no step is kept.

The paper's step is that of a quadratic model, and a deep network is not quadratic: at the usual damping it is many
times too long. The model of the change is right in its direction and wrong in its length, and the length can be
mended exactly: along d = (H + δ)⁻¹(∇J' − ∇J) the quadratic

    m(s) = −s ⟨∇J' − ∇J, d⟩ + ½ s² ⟨d, (G' + α) d⟩

has its least value at s = ⟨∇J' − ∇J, d⟩ / ⟨d, (G' + α) d⟩, where G' is the Gauss–Newton matrix of the edited data,
of which only that one number is needed for each δ (Martens and Grosse 2015 rescale K-FAC's steps so). Of the
dampings that which gives the least edited objective is taken, both on some of the samples; whether the step helps
at all is decided on all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from ecbm.curvature import Vector
from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry
from ecbm.edit.methods.stage import DeepStage, Stage
from ecbm.edit.report import concept_value, logits_before
from ecbm.edit.state import EditorState, Facts
from ecbm.train.model import ConceptBottleneck

__all__ = ["DEEP_DAMPINGS", "FROZEN_DAMPINGS", "Solved", "Taken", "guarded_step"]

# Multiples of the mean eigenvalue. A frozen backbone's own L2 is nearly always enough, so its first δ is 0.
DEEP_DAMPINGS = (0.01, 0.1, 1.0, 10.0)
FROZEN_DAMPINGS = (0.0, 0.01, 0.1, 1.0, 10.0)
_HALVINGS = 4


@dataclasses.dataclass(frozen=True)
class Solved:
    """(H + δ)⁻¹ change, what was chosen on the way, and what it does not cover."""

    step: Vector
    settings: dict[str, Any]
    not_covered: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Taken:
    """The model after the step, its concept logits, and what is known and was chosen."""

    model: ConceptBottleneck
    logits: Tensor
    facts: Facts
    settings: dict[str, Any]
    not_covered: dict[str, str]


@dataclasses.dataclass(frozen=True)
class _Candidate:
    damping: float
    length: float
    objective: float
    solved: Solved


def guarded_step(
    stage: Stage,
    alignment: Alignment,
    state: EditorState,
    change: Vector,
    solve: Callable[[float], Solved],
    dampings: Sequence[float],
    *,
    compare: bool,
    precise: bool,
) -> Taken:
    """Take the best step among some dampings.

    Parameters
    ----------
    change
        ∇J'_C − ∇J_C, which every step divides by its curvature.
    solve
        From a damping to its step.
    dampings
        The ones that may be tried, the boldest first.
    compare
        Whether all of them are looked at, and the best counts; otherwise the first that helps.
    precise
        As for :meth:`Stage.apply`.
    """
    carried = carry(alignment)
    present = logits_before(carried, alignment, state)
    before = concept_value(carried, alignment, present)
    looked_at: list[dict[str, Any]] = []
    candidates: Iterable[_Candidate] = (_look(stage, change, solve(damping), damping) for damping in dampings)
    if compare:
        found = list(candidates)
        looked_at = [{"damping": c.damping, "length": c.length, "objective": c.objective} for c in found]
        candidates = sorted(found, key=lambda candidate: candidate.objective)
    tried: dict[str, Any] = {}
    for candidate in candidates:
        tried = candidate.solved.settings
        taken = _shortened(stage, alignment, candidate, before, precise)
        if taken is not None:
            return dataclasses.replace(taken, settings=taken.settings | {"looked_at": looked_at})
    why = "no damping or length lowered the edited objective: the concept predictor is left as it is"
    settings = tried | {"damping": None, "length": 0.0, "guard": why, "looked_at": looked_at}
    return Taken(carried, present, Facts(), settings, {})


def _look(stage: Stage, change: Vector, solved: Solved, damping: float) -> _Candidate:
    """A step with the length that its quadratic model asks for."""
    if not isinstance(stage, DeepStage):
        return _Candidate(damping, 1.0, math.nan, solved)
    length = stage.length(solved.step, change)
    objective = stage.sample_objective(solved.step, length) if length > 0 else math.inf
    return _Candidate(damping, length, objective, solved)


def _shortened(
    stage: Stage, alignment: Alignment, candidate: _Candidate, before: float, precise: bool
) -> Taken | None:
    """The step, or the longest of its halves that lowers the edited objective on all samples."""
    length = candidate.length
    for _ in range(_HALVINGS if length > 0 and math.isfinite(length) else 0):
        step = {name: length * value for name, value in candidate.solved.step.items()}
        model, logits, facts = stage.apply(step, precise=precise)
        after = concept_value(model, alignment, logits)
        if after <= before:
            settings = candidate.solved.settings | {"damping": candidate.damping, "length": length}
            return Taken(model, logits, facts, settings, candidate.solved.not_covered)
        length /= 2
    return None
