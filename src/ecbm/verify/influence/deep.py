"""Influence through a deep concept predictor: EK-FAC stands for its Hessian (docs/method.md, "Influence").

One pass back over the target's samples and the training samples gives v = ∂T/∂θ, one solve u = (H + δ)⁻¹v, and
one pass *forwards* along u the movement of every training logit. From it follow all samples, labels and concepts
at once; no sample's own gradient is ever formed, so memory is that of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, jvp

from ecbm.edit.gradients import ConceptPart
from ecbm.edit.state import EditorState
from ecbm.progress import progress
from ecbm.read.inputs import Inputs, rows_at_once
from ecbm.train.heads.objectives import concept_curvature
from ecbm.verify.influence.heads import Heads
from ecbm.verify.influence.sensitivity import Sensitivity
from ecbm.verify.influence.targets import Target

if TYPE_CHECKING:
    from ecbm.curvature import Vector

__all__ = ["Deep", "pull_back", "push_forward"]

_BATCH = 256


def _chunks(inputs: Inputs) -> list[Tensor]:
    return list(torch.arange(len(inputs)).split(min(_BATCH, rows_at_once(tuple(inputs.shape)))))


def pull_back(part: ConceptPart, inputs: Inputs, cotangents: Tensor) -> Vector:
    """Σ_i J_iᵀ c_i over all inputs, by parameter name; rows of zeros are skipped."""
    named = {name: part.get_parameter(name) for name in part.trained}
    total = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
    part.eval()
    chunks = [rows for rows in _chunks(inputs) if bool(cotangents[rows].any())]
    with progress("Gradient of the target", len(chunks)) as bar, torch.enable_grad():
        for rows in chunks:
            logits = part(inputs.take(rows))
            found = torch.autograd.grad(
                logits, list(named.values()), cotangents[rows].to(logits.dtype), materialize_grads=True
            )
            for name, gradient in zip(named, found, strict=True):
                total[name] += gradient
            bar.advance()
    return total


def push_forward(part: ConceptPart, inputs: Inputs, direction: Vector) -> Tensor:
    """(n, k) J_i u: how the logits of all inputs move along a direction of the parameters; float64."""
    part.eval()
    parameters = {name: part.get_parameter(name).detach() for name in direction}
    moves = []
    chunks = _chunks(inputs)
    with progress("Training samples", len(chunks)) as bar, torch.no_grad():
        for rows in chunks:
            x = inputs.take(rows)

            def logits(values: Vector, x: Tensor = x) -> Tensor:
                out: Tensor = functional_call(part, values, (x,))
                return out

            moves.append(jvp(logits, (parameters,), (direction,))[1].double())
            bar.advance()
    return torch.cat(moves)


class Deep:
    """The concept predictor of a model with its backbone; kept between questions."""

    def __init__(self, heads: Heads, *, damping: float = 0.1) -> None:
        self.heads, self.damping = heads, damping
        state = heads.state
        curvature = concept_curvature(state.logits, state.terms.weights.double(), heads.layout)
        self._curvature = curvature / len(state.train)

    @property
    def state(self) -> EditorState:
        return self.heads.state

    def sensitivity(self, target: Target) -> Sensitivity:
        """As :meth:`Heads.sensitivity`, with u over the backbone and the concept head together."""
        heads, state = self.heads, self.state
        logits = heads.features(target) @ heads.concept.head.T
        direct, by_label = heads.by_logits(target, logits)
        along = heads.label.solve(by_label)
        inner = heads.by_training_logits(along, None) if bool(along.any()) else None
        found = pull_back(state.part, target.data.inputs, direct)
        if inner is not None:
            more = pull_back(state.part, state.train.inputs, inner)
            found = {name: value + more[name] for name, value in found.items()}
        return self._sensitivity(found, along)

    def _sensitivity(self, back: Vector, along: Tensor) -> Sensitivity:
        heads, state = self.heads, self.state
        curvature = state.concept_curvature("true")
        step = curvature.solve(curvature.restrict(back), self.damping, relative=True)
        moves = push_forward(state.part, state.train.inputs, step)
        moves *= self._length(back, step, moves)
        classes = heads.label.design @ along.T
        found = Sensitivity(moves, classes, heads.concept.residual, heads.label.residual, along)
        return heads.balanced(found)

    def _length(self, back: Vector, step: Vector, moves: Tensor) -> float:
        """s = ⟨v, u⟩ / ⟨u, (G + α) u⟩ with the exact Gauss–Newton matrix G: blocks of layers overshoot, each making
        the whole correction on its own (docs/method.md, "The influence step").
        """
        along = sum(float((back[name].double() * value.double()).sum()) for name, value in step.items())
        size = sum(float(value.double().square().sum()) for value in step.values())
        bend = float((self._curvature * moves.square()).sum()) + self.state.concept_l2 * size
        return along / bend if bend > 0 else 0.0
