"""Concept heads after a small change of the terms, from the solved heads before it.

:func:`~ecbm.train.convex.solve_concept_head` starts from nothing. After an edit nearly everything is known: the
sums over samples S = Rᵀ X of the old residuals R = w(p − t) are kept, so that

- the first gradient needs the changed rows only, and the second one a float32 product of R' − R, which is small;
- logits and gradients are computed in float64 once, for the last step and its proof;
- removed samples keep their rows with weight 0, and a standardisation that moved with the samples is a change of
  coordinates (:class:`Coordinates`): no row of the design is computed or copied again.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.train.convex import FeatureBasis
from ecbm.train.newton import conjugate_gradients

__all__ = ["Coordinates", "KeptDesign", "MovedConcepts", "Preconditioner", "solve_moved_concepts"]

_FIRST = 3e-2
_FINEST = 2e-6
_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """New features as an affine function of kept ones, x' = scale · x + shift (the last column is one)."""

    scale: Tensor
    shift: Tensor

    def to_kept(self, rows: Tensor) -> Tensor:
        """Parameters that give on kept features what ``rows`` give on new ones."""
        scale, shift = self.scale.to(rows.dtype), self.shift.to(rows.dtype)
        bias = rows[:, -1:] + (rows[:, :-1] @ shift)[:, None]
        return torch.cat([rows[:, :-1] * scale, bias], 1)

    def from_kept(self, sums: Tensor) -> Tensor:
        """Sums over samples Σ r x' from Σ r x: the transpose of :meth:`to_kept`."""
        scale, shift = self.scale.to(sums.dtype), self.shift.to(sums.dtype)
        return torch.cat([sums[:, :-1] * scale + sums[:, -1:] * shift, sums[:, -1:]], 1)


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
        kept = parameters if self.coordinates is None else self.coordinates.to_kept(parameters)
        return kept @ (self.exact if parameters.dtype == torch.float64 else self.single).T

    def sums(self, residuals: Tensor) -> Tensor:
        """Σ_i r_ij x'_i, (k, d), in the precision of ``residuals`` (k, n)."""
        return self.in_new(residuals @ (self.exact if residuals.dtype == torch.float64 else self.single))

    def in_new(self, sums: Tensor) -> Tensor:
        return sums if self.coordinates is None else self.coordinates.from_kept(sums)


@dataclasses.dataclass(frozen=True)
class Preconditioner:
    """EK-FAC of the concept head at the old optimum with exact leading blocks (:class:`FeatureBasis`)."""

    basis: FeatureBasis
    diagonal: Tensor
    leading: Tensor

    def of(self, rows: Tensor) -> Preconditioner:
        if len(rows) == len(self.diagonal):
            return self
        return Preconditioner(self.basis, self.diagonal[rows], self.leading[rows])


@dataclasses.dataclass(frozen=True)
class MovedConcepts:
    """Solved heads: parameters (k, d) in new coordinates, their logits (k, n) and gradient norm."""

    parameters: Tensor
    logits: Tensor
    gradient_norm: float
    newton_steps: int
    hessian_products: int


@dataclasses.dataclass(frozen=True)
class _Terms:
    targets: Tensor
    weights: Tensor | None
    count: int

    def residual(self, p: Tensor) -> Tensor:
        out = p - self.targets
        return out if self.weights is None else out.mul_(self.weights)

    def curvature(self, p: Tensor) -> Tensor:
        single = p.float()
        out = single.mul(1 - single).div_(self.count)
        return out if self.weights is None else out.mul_(self.weights)

    def of(self, rows: Tensor) -> _Terms:
        return _Terms(self.targets[rows], None if self.weights is None else self.weights[rows], self.count)


def solve_moved_concepts(
    design: KeptDesign,
    targets: Tensor,
    weights: Tensor,
    count: int,
    l2: float,
    start: Tensor,
    logits: Tensor,
    old_residuals: Tensor,
    old_sums: Tensor,
    preconditioner: Preconditioner,
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
    start, logits
        (k, d) old parameters in new coordinates, and (k, n) what they give.
    old_residuals, old_sums
        (k, n) w(p − t) of the old terms, and their sums over samples (k, d) in new coordinates.
    tolerance
        Bound on the Frobenius norm of the gradient, reached in float64.
    """
    plain = bool((weights == 1).all())
    terms = _Terms(targets.double(), None if plain else weights.double(), count)
    share = 0.7 * tolerance / math.sqrt(max(len(start), 1))
    parameters, p = start.clone(), torch.sigmoid(logits)
    change = terms.residual(p) - old_residuals
    rows = (change != 0).any(0).nonzero().flatten()
    first = design.in_new(change[:, rows] @ design.exact[rows])
    gradient = (old_sums + first).div_(count).add_(parameters, alpha=l2)
    before = norms = gradient.norm(dim=1)
    products = 0

    # Two steps with what float32 can tell of the gradient.
    forcing = torch.full_like(norms, _FIRST)
    for step in range(2):
        move, used = _newton_move(design, terms.curvature(p), l2, gradient, norms, forcing, preconditioner)
        products += used
        parameters -= move
        if step == 1:
            break
        p = torch.sigmoid(logits + design.logits((parameters - start).float()))
        moved = design.sums((terms.residual(p) - old_residuals).float())
        gradient = (old_sums + moved).div_(count).add_(parameters, alpha=l2)
        before, norms = norms, gradient.norm(dim=1)
        forcing = (norms / before.clamp_min(1e-300)).square_().clamp_(1e-5, 0.1)

    at = design.logits(parameters)
    going = torch.arange(len(parameters))
    final = torch.full_like(norms, math.inf)
    steps = 2
    for _ in range(_ROUNDS):
        mine = terms.of(going) if len(going) < len(parameters) else terms
        p = torch.sigmoid(at[going])
        gradient = design.sums(mine.residual(p)).div_(count).add_(parameters[going], alpha=l2)
        norms = gradient.norm(dim=1)
        if not bool(norms.isfinite().all()) or bool((norms > final[going].clamp_max(1e-2)).any()):
            return None
        final[going] = norms
        if float(final.norm()) <= tolerance:
            return MovedConcepts(parameters, at, float(final.norm()), steps, products)
        left = norms > share
        if not bool(left.all()):
            going, gradient, norms, p, mine = going[left], gradient[left], norms[left], p[left], mine.of(left)
        forcing = (0.7 * share / norms).clamp_(_FINEST, 0.5)
        move, used = _newton_move(design, mine.curvature(p), l2, gradient, norms, forcing, preconditioner.of(going))
        products += used
        steps += 1
        parameters[going] -= move
        # A move this small is known to float64's accuracy from a float32 product; a larger one is not.
        if float(move.abs().max()) < 1e-6:
            at[going] += design.logits(move.float()).neg_()
        else:
            at[going] = design.logits(parameters[going])
    return None


def _newton_move(
    design: KeptDesign,
    curvature: Tensor,
    l2: float,
    gradient: Tensor,
    norms: Tensor,
    forcing: Tensor,
    preconditioner: Preconditioner,
) -> tuple[Tensor, int]:
    """H⁻¹ gradient by conjugate gradients in float32, to a relative residual for each row."""

    def multiply(vector: Tensor, active: Tensor) -> Tensor:
        part = curvature if len(active) == len(curvature) else curvature[active]
        return design.sums(design.logits(vector).mul_(part)).add_(vector, alpha=l2)

    def precondition(vector: Tensor, active: Tensor) -> Tensor:
        part = preconditioner.of(active)
        return part.basis.precondition(part.diagonal, vector, part.leading)

    scaled = (gradient / norms[:, None].clamp_min(1e-300)).float()
    move, count, _ = conjugate_gradients(multiply, precondition, scaled, forcing.float(), False)
    return move.double() * norms[:, None], count
