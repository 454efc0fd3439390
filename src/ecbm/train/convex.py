"""The two convex heads, solved to a stated gradient norm in float64.

Given features, the concept head is k independent L2-regularised logistic regressions and the label head one
multinomial logistic regression (method.md, "Two convex heads"); both objectives are strictly convex:

    J_C(W) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|W|²        z = X Wᵀ, X with a column of ones
    J_Y(Φ) = (1/n) Σ_i  v_i CE(b_i Φᵀ, y_i)  + (β/2)|Φ|²

The solver (:mod:`ecbm.train.newton`) is Newton with conjugate gradients. What makes it fast where a general
optimiser is not:

- the preconditioner. For concepts it is EK-FAC of the head: the eigenbasis Q of XᵀX/n, in which the diagonal of
  every Hessian is one matrix product. For labels it is the exact diagonal block of every class;
- Hessian products run in float32 for as long as that helps, gradients in float64;
- concepts that have converged leave the batch, so the cost follows the concepts that are still moving.

scikit-learn's and SciPy's solvers do none of these: no shared preconditioner over k problems, no weights by
(sample, concept), and a gradient tolerance that stops short of what a certificate needs.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import EcbmError
from ecbm.train.newton import NewtonResult, Product, minimise

__all__ = [
    "ConvexSolution",
    "FeatureBasis",
    "class_blocks",
    "concept_objective",
    "label_objective",
    "solve_concept_head",
    "solve_label_head",
    "with_ones",
]

# Exact class blocks cost d/4 Hessian products; beyond this width the shared eigenbasis is the better buy.
_WIDEST_CLASS_BLOCK = 400
_CLASS_BLOCK_BYTES = 2**30
_FELT = 1e-3
_MANY_PRODUCTS = 30
_SATURATED = 30.0


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

    def for_rows(self, rows: tuple[Tensor, Tensor], design: Tensor) -> FeatureBasis:
        """The same basis for other samples: ``rows`` pairs old and new rows of those that stay.

        Where standardisation moved a little with the samples, the kept squares are off by as little: a
        preconditioner may be.
        """
        old, new = rows
        if len(design) == len(self.squared) == len(old) and torch.equal(old, new):
            return self
        squared = self.squared.new_empty(len(design), self.squared.shape[1])
        squared[new] = self.squared[old]
        fresh = torch.ones(len(design), dtype=torch.bool)
        fresh[new] = False
        squared[fresh] = (design[fresh].float() @ self.vectors).square_()
        return FeatureBasis(self.vectors, squared)

    def diagonal(self, curvature: Tensor, l2: float) -> Tensor:
        """Diagonal of QᵀHQ + l2 for every row: curvature is (n, rows), already divided by n."""
        return (curvature.float().T @ self.squared).add_(l2)

    def precondition(self, diagonal: Tensor, vector: Tensor) -> Tensor:
        return (((vector.float() @ self.vectors) / diagonal) @ self.vectors.T).to(vector.dtype)


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


def concept_objective(
    design: Tensor, targets: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """J_C of every concept (k,) and its gradient (k, d). Targets are finite where a weight is not 0."""
    logits = design @ parameters.T
    targets = torch.where(weights == 0, 0.0, targets.double())
    losses = (weights * (functional.softplus(logits) - targets * logits)).sum(0) / len(design)
    gradient = (weights * (torch.sigmoid(logits) - targets)).T @ design / len(design) + l2 * parameters
    return losses + 0.5 * l2 * parameters.square().sum(1), gradient


def label_objective(
    design: Tensor, labels: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """J_Y () and its gradient (classes, d)."""
    logits = design @ parameters.T
    losses = functional.cross_entropy(logits, labels, reduction="none")
    residual = torch.softmax(logits, 1) - functional.one_hot(labels, len(parameters))
    gradient = (weights[:, None] * residual).T @ design / len(design) + l2 * parameters
    return (weights * losses).sum() / len(design) + 0.5 * l2 * parameters.square().sum(), gradient


class _ConceptProblem:
    """k independent logistic regressions."""

    together = False

    def __init__(self, design: Tensor, targets: Tensor, weights: Tensor, l2: float, basis: FeatureBasis) -> None:
        self.design, self.design32, self.l2, self.basis = design, design.float(), l2, basis
        self.weights = weights.double() / len(design)
        self.targets = torch.where(weights == 0, 0.0, targets.double())

    def _part(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if len(rows) == self.weights.shape[1]:
            return self.weights, self.targets
        return self.weights[:, rows], self.targets[:, rows]

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor) -> Tensor:
        weights, targets = self._part(rows)
        return (weights * (torch.sigmoid(logits) - targets)).T @ self.design + self.l2 * parameters

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        weights, targets = self._part(rows)
        p = torch.sigmoid(logits)
        weighted = weights * change
        return (weighted * (p - targets)).sum(0), (weighted * change * p * (1 - p)).sum(0)

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        p = torch.sigmoid(logits)
        curvature = (self._part(rows)[0] * p * (1 - p)).to(dtype)
        design = self.design if dtype == torch.float64 else self.design32
        diagonal = self.basis.diagonal(curvature, self.l2)

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            part = curvature if len(active) == curvature.shape[1] else curvature[:, active]
            return (part * (design @ vector.T)).T @ design + self.l2 * vector

        def precondition(vector: Tensor, active: Tensor) -> Tensor:
            return self.basis.precondition(diagonal[active], vector)

        return multiply, precondition


class _LabelProblem:
    """One multinomial logistic regression; its rows belong together.

    Products start with the shared eigenbasis as preconditioner. Where that takes many of them, the exact diagonal
    block of every class is built (or was given) and used from then on.
    """

    together = True

    def __init__(
        self, design: Tensor, labels: Tensor, weights: Tensor, classes: int, l2: float, blocks: Tensor | None
    ) -> None:
        self.design, self.design32, self.l2 = design, design.float(), l2
        self.weights = weights.double()[:, None] / len(design)
        self.equal = float(self.weights[0, 0]) if bool((weights == weights[0]).all()) else None
        self.truth = functional.one_hot(labels, classes).double()
        width = design.shape[1]
        self.small = width <= _WIDEST_CLASS_BLOCK and 4 * classes * width * width <= _CLASS_BLOCK_BYTES
        self.inverses = invert_blocks(blocks, l2) if blocks is not None and self.small else None
        self.products = 0
        self._basis: FeatureBasis | None = None

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor) -> Tensor:
        residual = self.weights * (torch.softmax(logits, 1) - self.truth)
        return residual.T @ self.design + self.l2 * parameters

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.softmax(logits, 1)
        centred = change - (p * change).sum(1, keepdim=True)
        return (self.weights * change * (p - self.truth)).sum(0), (self.weights * p * centred * change).sum(0)

    def system(self, logits: Tensor, rows: Tensor) -> tuple[Product, Product]:
        p = torch.softmax(logits.float(), 1)
        weights = self.weights.float()
        if self.small and self.products > _MANY_PRODUCTS:
            self.inverses = invert_blocks(class_blocks(self.design32, p, weights), self.l2)
        self.products = 0

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            self.products += 1
            image = (self.design32 @ vector.T).mul_(p)
            image.addcmul_(p, image.sum(1, keepdim=True), value=-1.0)
            if self.equal is None:
                image.mul_(weights)
                return (image.T @ self.design32).add_(vector, alpha=self.l2)
            return (image.T @ self.design32).mul_(self.equal).add_(vector, alpha=self.l2)

        if self.inverses is not None:
            inverses = self.inverses
            return multiply, lambda vector, active: torch.bmm(inverses, vector[:, :, None])[:, :, 0]
        self._basis = self._basis or FeatureBasis.of(self.design)
        basis, diagonal = self._basis, self._basis.diagonal(weights * p * (1 - p), self.l2)
        return multiply, lambda vector, active: basis.precondition(diagonal, vector)


def class_blocks(design: Tensor, probabilities: Tensor, weights: Tensor) -> Tensor:
    """(classes, d, d): Σ_i v_i p_ic (1 − p_ic) b_i b_iᵀ / n for every class, float32, without the L2 term.

    A class feels few samples once the model knows most of them; the others are left out of its block.
    """
    curvature = weights * probabilities * (1 - probabilities)
    felt = curvature > _FELT * curvature.amax(0)
    classes, width = curvature.shape[1], design.shape[1]
    blocks = torch.empty(classes, width, width)
    for index in range(classes):
        rows = felt[:, index].nonzero().flatten()
        part = design[rows]
        torch.mm(part.T * curvature[rows, index], part, out=blocks[index])
    return blocks


def invert_blocks(blocks: Tensor, l2: float) -> Tensor:
    """(blocks + l2)⁻¹; where rounding leaves one indefinite, a little more of the identity is added."""
    shifted = blocks.clone()
    shifted.diagonal(dim1=1, dim2=2).add_(l2)
    factors, status = torch.linalg.cholesky_ex(shifted)
    if bool((status != 0).any()):
        largest = shifted.diagonal(dim1=1, dim2=2).amax(1)[:, None]
        shifted.diagonal(dim1=1, dim2=2).add_(1e-4 * largest)
        factors = torch.linalg.cholesky(shifted)
    return torch.cholesky_inverse(factors)


def _finish(what: str, result: NewtonResult, objective: Tensor, tolerance: float) -> ConvexSolution:
    """Refuse a result that is not as good as asked."""
    norm = float(result.gradient.norm())
    if not math.isfinite(norm) or norm > tolerance:
        raise EcbmError(
            f"the {what} stopped at gradient norm {norm:.2e}, above the tolerance {tolerance:.1e}; "
            "raise its L2 or the tolerance"
        )
    return ConvexSolution(result.parameters, norm, float(objective.sum()), result.steps, result.products)


def _sane_start(design: Tensor, targets: Tensor, weights: Tensor, start: Tensor, l2: float) -> Tensor:
    """Rows of ``start``, or zeros where those are better: where every sigmoid is saturated, Newton crawls."""
    sampled = design[:: max(1, len(design) // 256)]
    if float((sampled @ start.T).abs().max()) < _SATURATED:
        return start
    zero = torch.zeros_like(start)
    at_start, at_zero = (concept_objective(design, targets, weights, at, l2)[0] for at in (start, zero))
    return torch.where((at_start < at_zero)[:, None], start, zero)


def solve_concept_head(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    l2: float,
    *,
    tolerance: float = 1e-10,
    accept: float | None = None,
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
    accept
        Where rounding stops the iteration above ``tolerance``, a gradient norm that is still accepted.
    start
        (k, d) parameters to start from; zeros otherwise.
    basis
        A kept :class:`FeatureBasis`; any orthonormal basis is right, a fitting one is fast.
    """
    problem = _ConceptProblem(design, targets, weights, l2, basis or FeatureBasis.of(design))
    first = design.new_zeros(targets.shape[1], design.shape[1])
    if start is not None:
        # A start that is worse than zero lies where every sigmoid is saturated, and Newton crawls there.
        at_start, at_zero = (
            concept_objective(design, targets, weights, at, l2)[0] for at in (start.double(), first)
        )
        first = torch.where((at_start < at_zero)[:, None], start.double(), first)
    result = minimise(problem, design, first, tolerance)
    objective, _ = concept_objective(design, targets, weights, result.parameters, l2)
    return _finish("concept head", result, objective, accept or tolerance)


def solve_label_head(
    design: Tensor,
    labels: Tensor,
    weights: Tensor,
    classes: int,
    l2: float,
    *,
    tolerance: float = 1e-10,
    accept: float | None = None,
    start: Tensor | None = None,
    blocks: Tensor | None = None,
) -> ConvexSolution:
    """Minimise J_Y over the label head: one multinomial logistic regression.

    Parameters are as in :func:`solve_concept_head`; ``weights`` is (n,), ``classes`` the number of classes, and
    ``blocks`` kept :func:`class_blocks`, which precondition from the first step.
    """
    problem = _LabelProblem(design, labels, weights, classes, l2, blocks)
    first = design.new_zeros(classes, design.shape[1])
    if start is not None:
        at_start, at_zero = (label_objective(design, labels, weights, at, l2)[0] for at in (start.double(), first))
        first = start.double() if at_start < at_zero else first
    result = minimise(problem, design, first, tolerance)
    objective, _ = label_objective(design, labels, weights, result.parameters, l2)
    return _finish("label head", result, objective, accept or tolerance)
