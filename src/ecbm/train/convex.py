"""The two convex heads, solved to a stated gradient norm in float64.

Given features, the concept head is k independent L2-regularised logistic regressions and the label head one
multinomial logistic regression (method.md, "Two convex heads"); both objectives are strictly convex:

    J_C(W) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|W|²        z = X Wᵀ, X with a column of ones
    J_Y(Φ) = (1/n) Σ_i  v_i CE(b_i Φᵀ, y_i)  + (β/2)|Φ|²

The solver is Newton with conjugate gradients. What makes it fast where a general optimiser is not:

- the preconditioner is EK-FAC of the head: the eigenbasis Q of XᵀX/n, in which the diagonal of every Hessian
  is one matrix product, so that a handful of CG iterations suffice however the features are correlated;
- Hessian products run in float32, gradients and objectives in float64: the outer Newton loop is then iterative
  refinement and still reaches the rounding floor of float64;
- concepts that have converged leave the batch, so the cost follows the concepts that are still moving.

scikit-learn's and SciPy's solvers do none of the three: no shared preconditioner over k problems, no weights by
(sample, concept), and a gradient tolerance that stops short of what a certificate needs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ecbm.errors import EcbmError

__all__ = [
    "ConvexSolution",
    "FeatureBasis",
    "concept_objective",
    "label_objective",
    "solve_concept_head",
    "solve_label_head",
    "with_ones",
]

_MAX_NEWTON = 100
_MAX_CG = 250
_ARMIJO = 1e-4


def with_ones(features: Tensor) -> Tensor:
    """Features in float64 with a last column of ones, which folds the bias into the weights."""
    return torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], dim=1)


@dataclasses.dataclass(frozen=True)
class FeatureBasis:
    """Eigenbasis of the second moment XᵀX/n: what preconditions the solves, and can be kept between them."""

    vectors: Tensor
    squared: Tensor
    """(XQ)², float32: from it the Hessian's diagonal in this basis is one matrix product."""

    @classmethod
    def of(cls, design: Tensor) -> FeatureBasis:
        _, vectors = torch.linalg.eigh(design.T @ design / len(design))
        return cls(vectors.float(), (design.float() @ vectors.float()).square_())

    def diagonal(self, curvature: Tensor, l2: float) -> Tensor:
        """Diagonal of QᵀHQ + l2 for every row: curvature is (n, rows), already divided by n."""
        return (curvature.float().T @ self.squared).add_(l2)

    def precondition(self, diagonal: Tensor, vector: Tensor) -> Tensor:
        return ((vector @ self.vectors) / diagonal) @ self.vectors.T


@dataclasses.dataclass(frozen=True)
class ConvexSolution:
    """A solved head: parameters with the bias as last column, and what was reached."""

    parameters: Tensor
    gradient_norm: float
    objective: float
    newton_steps: int
    hessian_products: int

    @property
    def weight(self) -> Tensor:
        return self.parameters[:, :-1].contiguous()

    @property
    def bias(self) -> Tensor:
        return self.parameters[:, -1].contiguous()


# -- the two objectives ------------------------------------------------------------------------------------


def concept_objective(
    design: Tensor, targets: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor, Tensor]:
    """J_C split by concept: values (k,), gradient (k, d), probabilities (n, k). ``targets`` hold no NaN."""
    logits = design @ parameters.T
    probabilities = torch.sigmoid(logits)
    losses = torch.nn.functional.softplus(logits) - targets * logits
    values = (weights * losses).sum(0) / len(design) + 0.5 * l2 * parameters.square().sum(1)
    gradient = (weights * (probabilities - targets)).T @ design / len(design) + l2 * parameters
    return values, gradient, probabilities


def label_objective(
    design: Tensor, labels: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor, Tensor]:
    """J_Y: value (), gradient (classes, d), probabilities (n, classes)."""
    log_probabilities = torch.log_softmax(design @ parameters.T, dim=1)
    rows = torch.arange(len(labels))
    value = -(weights * log_probabilities[rows, labels]).sum() / len(design)
    probabilities = log_probabilities.exp()
    residual = probabilities.clone()
    residual[rows, labels] -= 1.0
    gradient = (weights[:, None] * residual).T @ design / len(design) + l2 * parameters
    return value + 0.5 * l2 * parameters.square().sum(), gradient, probabilities


# -- conjugate gradients -----------------------------------------------------------------------------------


class _Product(Protocol):
    def __call__(self, vector: Tensor, active: Tensor) -> Tensor: ...


def _conjugate_gradients(
    multiply: _Product,
    precondition: Callable[[Tensor, Tensor], Tensor],
    target: Tensor,
    tolerance: Tensor,
    together: bool,
) -> tuple[Tensor, int]:
    """Solve H S = target, rows apart (k problems at once) or as one vector, to relative residual ``tolerance``.

    Rows that have reached their tolerance leave the batch.
    """

    def dot(a: Tensor, b: Tensor) -> Tensor:
        products = (a * b).sum(1)
        return products.sum().expand(len(products)) if together else products

    solution = torch.zeros_like(target)
    active = torch.arange(len(target))
    residual = target.clone()
    direction = precondition(residual, active)
    rho = dot(residual, direction)
    limit = tolerance * dot(target, target).sqrt()
    count = 0
    for _ in range(_MAX_CG):
        image = multiply(direction, active)
        count += 1
        step = (rho / dot(direction, image).clamp_min(1e-38))[:, None]
        solution[active] += step * direction
        residual = residual - step * image
        going = dot(residual, residual).sqrt() > limit[active]
        if not bool(going.any()):
            break
        if not bool(going.all()):
            active, residual, direction, rho = active[going], residual[going], direction[going], rho[going]
        preconditioned = precondition(residual, active)
        following = dot(residual, preconditioned)
        direction = preconditioned + (following / rho)[:, None] * direction
        rho = following
    return solution, count


# -- the two solvers ---------------------------------------------------------------------------------------


def _check_reached(what: str, gradient_norm: float, tolerance: float) -> None:
    if not math.isfinite(gradient_norm) or gradient_norm > tolerance:
        raise EcbmError(
            f"the {what} stopped at gradient norm {gradient_norm:.2e}, above the tolerance {tolerance:.1e}; "
            "raise its L2 or the tolerance"
        )


def solve_concept_head(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    l2: float,
    *,
    tolerance: float = 1e-10,
    start: Tensor | None = None,
    basis: FeatureBasis | None = None,
) -> ConvexSolution:
    """Minimise J_C over the concept head: k logistic regressions, batched.

    Parameters
    ----------
    design
        (n, d) float64 features with a column of ones (:func:`with_ones`).
    targets, weights
        (n, k) concept targets in 0..1 and weights; a weight of 0 drops the term, whatever the target holds.
    l2
        α, on weights and bias alike; must be positive.
    tolerance
        Bound on the Frobenius norm of the gradient over all k heads.
    start
        (k, d) parameters to start from; zeros otherwise.
    basis
        A kept :class:`FeatureBasis`; any orthonormal basis is right, a fitting one is fast.
    """
    weights = weights.double()
    targets = torch.where(weights == 0, 0.0, targets.double())
    k = targets.shape[1]
    parameters = design.new_zeros(k, design.shape[1]) if start is None else start.double().clone()
    basis = basis or FeatureBasis.of(design)
    design32 = design.float()
    # Each of k rows may use an equal share of the squared tolerance.
    share = tolerance / math.sqrt(max(k, 1)) * 0.5
    values, gradient, probabilities = concept_objective(design, targets, weights, parameters, l2)
    products = steps = 0
    for steps in range(1, _MAX_NEWTON + 1):  # noqa: B007
        norms = gradient.norm(dim=1)
        rows = (norms > share).nonzero().flatten()
        if len(rows) == 0:
            break
        curvature = weights[:, rows] * probabilities[:, rows] * (1 - probabilities[:, rows]) / len(design)
        diagonal = basis.diagonal(curvature, l2)
        curvature32 = curvature.float()

        def multiply(vector: Tensor, active: Tensor, curvature32: Tensor = curvature32) -> Tensor:
            part = curvature32 if len(active) == curvature32.shape[1] else curvature32[:, active]
            return (part * (design32 @ vector.T)).T @ design32 + l2 * vector

        def precondition(vector: Tensor, active: Tensor, diagonal: Tensor = diagonal) -> Tensor:
            return basis.precondition(diagonal[active], vector)

        # Gradients are scaled to unit size so that float32 keeps its range near the optimum; the forcing term
        # goes down with the gradient, which makes the outer loop superlinear.
        forcing = norms[rows].sqrt().clamp(1e-4, 0.1).float()
        forcing = torch.maximum(forcing, (0.1 * share / norms[rows]).float())
        scaled = (gradient[rows] / norms[rows, None]).float()
        direction, count = _conjugate_gradients(multiply, precondition, scaled, forcing, together=False)
        products += count
        move = -direction.double() * norms[rows, None]
        slope = (move * gradient[rows]).sum(1)
        length = torch.ones(len(rows), dtype=torch.float64)
        part_targets, part_weights = targets[:, rows], weights[:, rows]
        for _ in range(40):
            trial = parameters[rows] + length[:, None] * move
            new_values, new_gradient, new_probabilities = concept_objective(
                design, part_targets, part_weights, trial, l2
            )
            # Near the optimum differences of the objective drown in rounding: there the gradient decides.
            enough = new_values <= values[rows] + _ARMIJO * length * slope
            enough |= new_gradient.norm(dim=1) <= 0.5 * norms[rows]
            if bool(enough.all()):
                break
            length = torch.where(enough, length, length * 0.5)
        better = enough | (new_values <= values[rows])
        parameters[rows[better]] = trial[better]
        values[rows[better]] = new_values[better]
        gradient[rows[better]] = new_gradient[better]
        probabilities[:, rows[better]] = new_probabilities[:, better]
        if not bool(better.any()):
            break
    norm = float(gradient.norm())
    _check_reached("concept head", norm, tolerance)
    return ConvexSolution(parameters, norm, float(values.sum()), steps - 1, products)


def solve_label_head(
    design: Tensor,
    labels: Tensor,
    weights: Tensor,
    classes: int,
    l2: float,
    *,
    tolerance: float = 1e-10,
    start: Tensor | None = None,
    basis: FeatureBasis | None = None,
) -> ConvexSolution:
    """Minimise J_Y over the label head: one multinomial logistic regression.

    Parameters are as in :func:`solve_concept_head`; ``weights`` is (n,) and ``classes`` the number of classes.
    """
    weights = weights.double()
    parameters = design.new_zeros(classes, design.shape[1]) if start is None else start.double().clone()
    basis = basis or FeatureBasis.of(design)
    design32 = design.float()
    value, gradient, probabilities = label_objective(design, labels, weights, parameters, l2)
    products = steps = 0
    for steps in range(1, _MAX_NEWTON + 1):  # noqa: B007
        norm = gradient.norm()
        if float(norm) <= tolerance:
            break
        scale = weights[:, None] / len(design)
        diagonal = basis.diagonal(scale * probabilities * (1 - probabilities), l2)
        scale32, p32 = scale.float(), probabilities.float()

        def multiply(vector: Tensor, active: Tensor, scale32: Tensor = scale32, p32: Tensor = p32) -> Tensor:
            image = p32 * (design32 @ vector.T)
            image -= p32 * image.sum(1, keepdim=True)
            return (scale32 * image).T @ design32 + l2 * vector

        def precondition(vector: Tensor, active: Tensor, diagonal: Tensor = diagonal) -> Tensor:
            return basis.precondition(diagonal, vector)

        forcing = max(min(0.1, math.sqrt(float(norm))), 1e-4, 0.1 * tolerance / float(norm))
        scaled = (gradient / norm).float()
        limit = torch.full((classes,), forcing)
        direction, count = _conjugate_gradients(multiply, precondition, scaled, limit, together=True)
        products += count
        move = -direction.double() * norm
        slope = float((move * gradient).sum())
        length = 1.0
        accepted = False
        for _ in range(40):
            trial = parameters + length * move
            new_value, new_gradient, new_probabilities = label_objective(design, labels, weights, trial, l2)
            accepted = bool(new_value <= value + _ARMIJO * length * slope) or bool(
                new_gradient.norm() <= 0.5 * norm
            )
            if accepted:
                break
            length *= 0.5
        if not accepted:
            break
        parameters, value, gradient, probabilities = trial, new_value, new_gradient, new_probabilities
    reached = float(gradient.norm())
    _check_reached("label head", reached, tolerance)
    return ConvexSolution(parameters, reached, float(value), steps - 1, products)
