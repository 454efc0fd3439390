"""Ways to move the backbone, each a rung of the ladder: a curvature step, and gradient steps."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ecbm.curvature import Vector
from ecbm.edit.carry import has_statistics, restandardise
from ecbm.edit.gradients import ConceptPart, add_step, concept_part, dot, gradient_sum
from ecbm.edit.methods.auto.refine import refine
from ecbm.errors import EcbmError
from ecbm.read.inputs import rows_at_once
from ecbm.train.heads.objectives import concept_curvature

if TYPE_CHECKING:
    from ecbm.edit.methods.auto.ladder import Ladder

__all__ = ["MOVES", "CurvatureStep", "GradientSteps", "Move", "Moved", "pull_of"]


@dataclasses.dataclass(frozen=True)
class Moved:
    """A moved backbone and concept head, every setting that was chosen, and the work it took.

    ``design`` and ``validation`` are features of the edited training and validation samples with ones, where the move
    has them; their work is then part of ``work``.
    """

    part: ConceptPart
    settings: dict[str, Any]
    work: float
    design: Tensor | None = None
    validation: Tensor | None = None


class Move(Protocol):
    """A way to move the backbone on the edited data."""

    name: str

    def least(self, ladder: Ladder) -> float:
        """The least work with which it makes sense."""
        ...

    def worth_it(self, ladder: Ladder) -> bool:
        """Whether to try it with the work that is left."""
        ...

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        """Move the last rung's model for about that much work; ``None`` if there is nowhere to go."""
        ...


# -- gradients of some samples before and after --------------------------------------------------------------

_PULL_SAMPLE = 256


def _some_rows(ladder: Ladder, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(ladder.alignment.model.recipe.seed)
    return torch.randperm(ladder.alignment.samples.after, generator=generator)[:count].sort().values


def _backbone_gradients(ladder: Ladder, part: ConceptPart, rows: Tensor) -> tuple[Vector, Vector, float]:
    """Data gradients of J' and J over the backbone, as means over some edited training rows and the old ones that
    correspond, and the work: the same samples where they stay, so that noise of the drawing cancels, and as large a
    share of the removed ones. Both are taken in the coordinates of the edited data's standardisation.
    """
    alignment, state = ladder.alignment, ladder.state
    samples = alignment.samples
    new = gradient_sum(part, alignment.after.inputs, alignment.terms_after, rows)
    share = round(len(samples.gone) * len(rows) / samples.after)
    drawn = samples.gone[torch.linspace(0, max(len(samples.gone) - 1, 0), share).long()]
    origin = samples.origin[rows]
    present = torch.cat([origin[origin >= 0], drawn])
    original = state.part
    if not samples.complete and has_statistics(state.model.backbone):
        original = concept_part(restandardise(state.model, alignment.after))
    old = gradient_sum(original, state.train.inputs, state.terms, present)

    def mean(total: Vector, count: int) -> Vector:
        return {name: value / max(count, 1) for name, value in total.items() if name.startswith("backbone.")}

    work = ladder.cost.passes(len(rows) + len(present), backward=True)
    return mean(new, len(rows)), mean(old, len(present)), work


def pull_of(ladder: Ladder) -> tuple[float, float]:
    """How strongly the edit pulls at the backbone: the change of its gradient in units of the old one's; and the work.

    Both are of the same few samples. Training ended where the gradient of all samples is small, so that of a few
    is mostly the noise of drawing them: an edit that changes it by little is one the backbone cannot feel.
    """
    part = concept_part(ladder.last.model)
    new, old, work = _backbone_gradients(ladder, part, _some_rows(ladder, _PULL_SAMPLE))
    change = {name: value - old[name] for name, value in new.items()}
    return math.sqrt(dot(change, change) / max(dot(old, old), 1e-300)), work


# -- the curvature step --------------------------------------------------------------------------------------

_SAMPLE = 768
_DAMPINGS = (0.01, 0.1, 1.0)
_LENGTHS = (1.0, 0.5, 0.25)
# In every case measured so far gradient steps paid more for the same work, so the step may take a sixth at most.
_STEP_SHARE = 6
# A fit of EK-FAC over all samples, and a step on its sample, in forward passes over their data.
_FIT_PASSES, _STEP_PASSES = 8.0, 20.0


class CurvatureStep:
    """An EK-FAC step of the backbone. EK-FAC is block-diagonal, so every layer makes the whole correction on its own
    and the sum is far too long: the step is rescaled by the exact Gauss–Newton quadratic,
    length = gᵀΔ / Δᵀ(GGN + α)Δ, and damping and length are chosen by the edited objective on a sample of the data.
    """

    name = "a rescaled curvature step"

    def least(self, ladder: Ladder) -> float:
        sample = min(_SAMPLE, ladder.cost.samples)
        fit = 0.0 if ladder.state.has_curvature("true") else ladder.cost.passes(_FIT_PASSES * ladder.cost.samples)
        return _STEP_SHARE * (ladder.cost.closing + ladder.cost.passes(_STEP_PASSES * sample)) + fit

    def worth_it(self, ladder: Ladder) -> bool:
        return ladder.left > self.least(ladder)

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        alignment, state = ladder.alignment, ladder.state
        part = concept_part(ladder.last.model)
        try:
            curvature = state.concept_curvature("true")
        except EcbmError as error:
            ladder.not_covered["backbone"] = f"no curvature: {error}"
            return None
        rows = _some_rows(ladder, _SAMPLE)
        new, old, _ = _backbone_gradients(ladder, part, rows)
        gradient = {name: value - old[name] for name, value in new.items()}
        ladder.not_covered |= curvature.report()["uncovered"]
        covered = curvature.restrict(gradient)
        if not covered:
            return None
        inputs, terms = alignment.after.inputs.take(rows), alignment.terms_after[rows]
        alpha = state.concept_l2

        def objective(candidate: ConceptPart) -> float:
            with torch.no_grad():
                loss = terms.loss(_logits(candidate, inputs))
                squares = sum(float(p.double().square().sum()) for p in candidate.backbone.parameters())
            return float(loss) / len(rows) + 0.5 * alpha * squares

        least, found, settings = objective(part), None, dict[str, Any]()
        steps = curvature.solve_many(covered, _DAMPINGS, relative=True)
        for damping, direction in zip(_DAMPINGS, steps, strict=True):
            bend = _gauss_newton_form(part, inputs, terms.weights, direction) + alpha * dot(direction, direction)
            if not bend > 0:
                continue
            unit = dot(gradient, direction) / bend
            for share in _LENGTHS:
                trial = copy.deepcopy(part)
                add_step(trial, direction, -share * unit)
                value = objective(trial)
                if value < least:
                    least, found, settings = value, trial, {"damping": damping, "length": share * unit}
        if found is None:
            return None
        return Moved(found, settings, ladder.cost.passes(_STEP_PASSES * len(rows)))


def _gauss_newton_form(part: ConceptPart, inputs: Tensor, weights: Tensor, direction: Vector) -> float:
    """Δᵀ GGN Δ on a sample: (1/n) Σ w p (1 − p) (JΔ)², with JΔ by a central difference of the logits."""
    size = dot(direction, direction) ** 0.5
    scale = sum(float(part.get_parameter(name).detach().double().square().sum()) for name in direction) ** 0.5
    step = 1e-3 * max(scale, 1e-3) / max(size, 1e-30)
    ahead, behind = copy.deepcopy(part), copy.deepcopy(part)
    add_step(ahead, direction, step)
    add_step(behind, direction, -step)
    with torch.no_grad():
        slope = (_logits(ahead, inputs).double() - _logits(behind, inputs).double()) / (2 * step)
        curvature = concept_curvature(_logits(part, inputs).double(), weights)
    return float((curvature * slope.square()).sum()) / len(inputs)


def _logits(part: ConceptPart, inputs: Tensor) -> Tensor:
    """Of a sample, shown to the network in pieces."""
    return torch.cat([part(piece) for piece in inputs.split(rows_at_once(tuple(inputs.shape[1:])))])


# -- gradient steps ------------------------------------------------------------------------------------------

_FEWEST_EPOCHS = 0.1
# The learning rate as shares of the recipe's, for the shortest refinement and from an epoch on: a few steps at a high
# rate would only do damage.
_GENTLE, _FULL = 0.1, 0.25


class GradientSteps:
    """Gradient steps of everything for the work that is left."""

    name = "gradient steps"

    def least(self, ladder: Ladder) -> float:
        steps = _FEWEST_EPOCHS * ladder.cost.samples / ladder.cost.batch
        return steps * ladder.cost.step + self._closing(ladder)

    def worth_it(self, ladder: Ladder) -> bool:
        """Where the backbone can be cut, a live tail is at least as good."""
        return not ladder.cost.tails and ladder.left > self.least(ladder)

    def _closing(self, ladder: Ladder) -> float:
        return ladder.cost.passes(ladder.cost.samples + ladder.cost.validation)

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        alignment, last, cost = ladder.alignment, ladder.last.model, ladder.cost
        steps = max(1, int((work - self._closing(ladder)) / cost.step))
        epochs = steps * cost.batch / cost.samples
        rate = (_GENTLE + (_FULL - _GENTLE) * min(epochs, 1.0)) * last.recipe.peak_learning_rate
        inputs, deadline = alignment.after.inputs, ladder.deadline
        part, done = refine(last, alignment, inputs, steps=steps, learning_rate=rate, deadline=deadline)
        return Moved(part, {"steps": done, "learning_rate": rate}, done * cost.step + self._closing(ladder))



