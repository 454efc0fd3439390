"""Concept heads after a small change of the terms, from the solved heads before it.

:func:`~ecbm.train.heads.concept.solve_concept_head` starts from nothing. After an edit nearly everything is known:
the sums over samples S = Rᵀ X of the old residuals R = w(p − t) are kept, so that

- the first gradient needs the changed rows only, and the next ones a float32 product of R' − R, which is small;
- logits and gradients are computed in float64 once, before the last steps;
- removed samples keep their rows with weight 0, and a standardisation that moved with the samples is a change of
  coordinates (:class:`Coordinates`): no row of the design is computed or copied again. Parameters are those that
  read kept features throughout; only the L2 term knows the new coordinates.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.train.heads.newton import conjugate_gradients
from ecbm.train.heads.objectives import concept_curvature, concept_residual, weighted_product
from ecbm.train.heads.precondition import apply_blocks

__all__ = ["Coordinates", "KeptDesign", "LeadingInverses", "MovedConcepts", "OldConcepts", "solve_moved_concepts"]

_FIRST = 3e-2
_FINEST = 2e-6
_ROUNDS = 8
# A gradient that float32 still tells apart from rounding, and how many steps are made without float64 at most.
_ROUGH, _ROUGH_STEPS = 1e-7, 5
_SMALL_MOVE = 1e-6
# A correction of kept inverses costs as much as building them anew when it has as many rows as they have.
_MOST_ROWS = 256


@dataclasses.dataclass(frozen=True)
class LeadingInverses:
    """Approximate inverse Hessians of k concepts near their optimum.

    In the eigenbasis of the features most directions are felt less than the L2 term. The inverse Hessian within the
    others, the leading ones, is kept for every concept; orthogonal to them a head's Hessian is about the L2 plus
    the mean curvature that is left.

    Attributes
    ----------
    vectors
        (d, m) leading eigenvectors of the features, float32.
    inverses
        (k, m, m) inverse Hessians within them, L2 included.
    rest
        (k,) what stands for the Hessian orthogonal to them.
    """

    vectors: Tensor
    inverses: Tensor
    rest: Tensor

    def of(self, concepts: Tensor) -> LeadingInverses:
        """Those of some concepts."""
        if torch.equal(concepts, torch.arange(len(self.rest))):
            return self
        return LeadingInverses(self.vectors, self.inverses[concepts], self.rest[concepts])

    def apply(self, gradients: Tensor) -> Tensor:
        """H⁻¹ gradients, (k, d) float32."""
        leading = gradients @ self.vectors
        scale = 1 / self.rest[:, None]
        own = apply_blocks(self.inverses, leading).addcmul_(leading, scale, value=-1.0)
        return torch.addcmul(own @ self.vectors.T, gradients, scale)

    def after(self, rows: Tensor, curvature: Tensor, sign: int) -> LeadingInverses:
        """The inverses when samples with these feature rows (r, d) and curvature (k, r) come or go.

        H' = H ± V Vᵀ  ⇒  H'⁻¹ = H⁻¹ ∓ H⁻¹V (I ± VᵀH⁻¹V)⁻¹ VᵀH⁻¹ (Woodbury): a group of samples may be most of what
        a direction feels. Left as they are where that is not worth its cost or rounding makes it indefinite: a
        preconditioner may be off.
        """
        count = len(rows)
        if count == 0 or count > _MOST_ROWS:
            return self
        factors = (rows @ self.vectors).T * curvature.sqrt()[:, None, :]
        moved = torch.bmm(self.inverses, factors)
        inner = (
            torch.eye(count)
            .expand(len(curvature), -1, -1)
            .baddbmm(factors.transpose(1, 2), moved, alpha=float(sign))
        )
        root, trouble = torch.linalg.cholesky_ex(inner)
        if bool((trouble != 0).any()):
            return self
        half = torch.linalg.solve_triangular(root, moved.transpose(1, 2), upper=False)
        inverses = torch.baddbmm(self.inverses, half.transpose(1, 2), half, alpha=-float(sign))
        return dataclasses.replace(self, inverses=inverses)


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """New features as an affine function of kept ones, x' = scale · x + shift (the last column is one).

    With v the parameters that give on kept features what w give on new ones, v = T w.
    """

    scale: Tensor
    shift: Tensor

    def to_new(self, parameters: Tensor) -> Tensor:
        """w = T⁻¹ v, for rows of parameters with the bias last."""
        scale, shift = self.scale.to(parameters.dtype), self.shift.to(parameters.dtype)
        weights = parameters[:, :-1] / scale
        return torch.cat([weights, parameters[:, -1:] - (weights @ shift)[:, None]], 1)

    def gradient_to_new(self, gradients: Tensor) -> Tensor:
        """Tᵀ g: a gradient over w from one over v."""
        scale, shift = self.scale.to(gradients.dtype), self.shift.to(gradients.dtype)
        return torch.cat([gradients[:, :-1] * scale + gradients[:, -1:] * shift, gradients[:, -1:]], 1)

    def gradient_to_kept(self, gradients: Tensor) -> Tensor:
        """T⁻ᵀ g."""
        scale, shift = self.scale.to(gradients.dtype), self.shift.to(gradients.dtype)
        return torch.cat([(gradients[:, :-1] - gradients[:, -1:] * shift) / scale, gradients[:, -1:]], 1)


@dataclasses.dataclass(frozen=True)
class KeptDesign:
    """Feature rows with a column of ones in both precisions, and the coordinates of the new objective.

    Rows may include samples that are gone: those have weight 0.
    """

    exact: Tensor
    single: Tensor
    coordinates: Coordinates | None = None

    def logits(self, parameters: Tensor) -> Tensor:
        """(k, n) in the precision of ``parameters``."""
        return parameters @ (self.exact if parameters.dtype == torch.float64 else self.single).T

    def sums(self, residuals: Tensor) -> Tensor:
        """Σ_i r_ij x_i, (k, d), in the precision of ``residuals`` (k, n)."""
        return residuals @ (self.exact if residuals.dtype == torch.float64 else self.single)

    def penalty(self, parameters: Tensor) -> Tensor:
        """The gradient of ½|w|² over v."""
        if self.coordinates is None:
            return parameters
        return self.coordinates.gradient_to_kept(self.coordinates.to_new(parameters))

    def to_new(self, parameters: Tensor) -> Tensor:
        return parameters if self.coordinates is None else self.coordinates.to_new(parameters)

    def norms(self, gradients: Tensor) -> Tensor:
        """Norm of every concept's gradient, as one over the new parameters."""
        own = gradients if self.coordinates is None else self.coordinates.gradient_to_new(gradients)
        return own.square().sum(1).sqrt_()


@dataclasses.dataclass(frozen=True)
class OldConcepts:
    """Heads solved on the old terms: parameters (k, d), the logits (k, n) they give, residuals w(p − t) of the old
    terms (k, n), and the sums of those over samples (k, d).
    """

    parameters: Tensor
    logits: Tensor
    residuals: Tensor
    sums: Tensor


@dataclasses.dataclass(frozen=True)
class MovedConcepts:
    """Solved heads: parameters (k, d) in new coordinates, their logits (k, n), the sums over samples of their
    residuals (k, d) in kept coordinates, and what was reached.
    """

    parameters: Tensor
    logits: Tensor
    sums: Tensor
    gradient_norm: float
    newton_steps: int
    work: int


@dataclasses.dataclass(frozen=True)
class _Terms:
    targets: Tensor
    weights: Tensor | None
    count: int

    def residual(self, logits: Tensor) -> Tensor:
        return concept_residual(logits, self.targets, self.weights)

    def curvature(self, logits: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights.float()
        return concept_curvature(logits.float(), weights).div_(self.count)

    def of(self, rows: Tensor) -> _Terms:
        if len(rows) == len(self.targets):
            return self
        return _Terms(self.targets[rows], None if self.weights is None else self.weights[rows], self.count)


def solve_moved_concepts(
    design: KeptDesign,
    targets: Tensor,
    weights: Tensor,
    count: int,
    l2: float,
    old: OldConcepts,
    preconditioner: LeadingInverses,
    tolerance: float,
) -> MovedConcepts | None:
    """Minimise J'_C over some concepts from the old optimum; ``None`` where plain Newton steps do not get there.

    Parameters
    ----------
    design
        Features, n rows.
    targets, weights
        (k, n) new terms; a sample that is gone has weight 0.
    count
        n', by which the new objective divides.
    old
        Where to start from.
    tolerance
        Bound on the Frobenius norm of the gradient, reached in float64.
    """
    plain = bool((weights == 1).all())
    terms = _Terms(targets.double(), None if plain else weights.double(), count)
    share = 0.7 * tolerance / math.sqrt(max(len(old.parameters), 1))
    parameters, steps, work = _roughly(design, terms, l2, old, preconditioner, share)

    at = design.logits(parameters)
    residuals = terms.residual(at)
    sums = design.sums(residuals)
    final = torch.full_like(parameters[:, 0], math.inf)
    going = torch.arange(len(parameters))
    for _ in range(_ROUNDS):
        gradient = sums[going].div_(count).add_(design.penalty(parameters[going]), alpha=l2)
        norms = design.norms(gradient)
        if not bool(norms.isfinite().all()) or bool((norms > final[going].clamp_max(1e-2)).any()):
            return None
        final[going] = norms
        if float(final.norm()) <= tolerance:
            return MovedConcepts(design.to_new(parameters), at, sums, float(final.norm()), steps, work)
        left = norms > share
        going, gradient, norms = going[left], gradient[left], norms[left]
        mine = terms.of(going)
        forcing = (0.7 * share / norms).clamp_(_FINEST, 0.5)
        curvature = mine.curvature(at[going])
        move, used = _newton_move(design, curvature, l2, gradient, forcing, preconditioner.of(going))
        work, steps = work + used + 2 * len(going), steps + 1
        parameters[going] -= move
        # A move this small is known to float64's accuracy from float32 products; a larger one is not.
        if float(move.abs().max()) < _SMALL_MOVE:
            at[going] -= design.logits(move.float())
            new = mine.residual(at[going])
            sums[going] += design.sums((new - residuals[going]).float())
        else:
            at[going] = design.logits(parameters[going])
            new = mine.residual(at[going])
            sums[going] = design.sums(new)
        residuals[going] = new
    return None


def _roughly(
    design: KeptDesign,
    terms: _Terms,
    l2: float,
    old: OldConcepts,
    preconditioner: LeadingInverses,
    share: float,
) -> tuple[Tensor, int, int]:
    """Newton steps with what float32 can tell of the gradient: parameters, steps, work.

    A system is solved no better than Newton's own error makes worth while, (|g| / |g before|)² (Eisenstat, Walker).
    """
    parameters, at, count = old.parameters.clone(), old.logits, terms.count
    change = terms.residual(at) - old.residuals
    rows = (change != 0).any(0).nonzero().flatten()
    gradient = (old.sums + change[:, rows] @ design.exact[rows]).div_(count)
    gradient.add_(design.penalty(parameters), alpha=l2)
    norms = gradient.norm(dim=1)
    going = torch.arange(len(parameters))
    forcing = torch.full_like(norms, _FIRST)
    work = 2 * len(parameters)
    for step in range(1, _ROUGH_STEPS + 1):
        mine = terms.of(going)
        move, used = _newton_move(design, mine.curvature(at), l2, gradient, forcing, preconditioner.of(going))
        work += used
        parameters[going] -= move
        if step == _ROUGH_STEPS:
            break
        at = old.logits[going] + design.logits((parameters - old.parameters)[going].float())
        moved = design.sums((mine.residual(at) - old.residuals[going]).float())
        work += len(going)
        gradient = (old.sums[going] + moved).div_(count).add_(design.penalty(parameters[going]), alpha=l2)
        before, norms = norms, gradient.norm(dim=1)
        left = norms > max(_ROUGH, share)
        if not bool(left.any()):
            break
        going, gradient, at, before, norms = going[left], gradient[left], at[left], before[left], norms[left]
        forcing = torch.maximum((norms / before).square_(), 0.3 * _ROUGH / norms).clamp_(1e-5, 0.1)
    return parameters, step, work


def _newton_move(
    design: KeptDesign,
    curvature: Tensor,
    l2: float,
    gradient: Tensor,
    forcing: Tensor,
    preconditioner: LeadingInverses,
) -> tuple[Tensor, int]:
    """H⁻¹ gradient by conjugate gradients in float32, to a relative residual for each row."""

    def multiply(vector: Tensor, active: Tensor) -> Tensor:
        part = curvature if len(active) == len(curvature) else curvature[active]
        return weighted_product(design.single, part, vector).add_(design.penalty(vector), alpha=l2)

    def precondition(vector: Tensor, active: Tensor) -> Tensor:
        return preconditioner.of(active).apply(vector)

    norms = gradient.norm(dim=1, keepdim=True).clamp_min(1e-300)
    found = conjugate_gradients(multiply, precondition, (gradient / norms).float(), forcing.float(), False)
    return found.solution.double() * norms, found.work
