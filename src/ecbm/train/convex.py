"""The two convex heads, solved to a stated gradient norm in float64.

Given features, the concept head is k independent L2-regularised logistic regressions and the label head one
multinomial logistic regression (method.md, "Two convex heads"); both objectives are strictly convex:

    J_C(W) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|W|²        z = X Wᵀ, X with a column of ones
    J_Y(Φ) = (1/n) Σ_i  v_i CE(b_i Φᵀ, y_i)  + (β/2)|Φ|²

The solver (:mod:`ecbm.train.newton`) is Newton with conjugate gradients. What makes it fast where a general
optimiser is not:

- the preconditioner. For concepts it is EK-FAC of the head: the eigenbasis Q of XᵀX/n, in which the diagonal of
  every Hessian is one matrix product; where that takes many products, the exact inverse within the features'
  leading directions joins it. For labels it is the exact diagonal block of every class;
- Hessian products run in float32 for as long as that helps, gradients in float64;
- concepts that have converged leave the batch, so the cost follows the concepts that are still moving.

scikit-learn's and SciPy's solvers do none of these: no shared preconditioner over k problems, no weights by
(sample, concept), and a gradient tolerance that stops short of what a certificate needs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import EcbmError
from ecbm.matrices import add_gram_
from ecbm.train.newton import CACHED_ROWS, NewtonResult, Product, minimise, weighted_product

__all__ = [
    "CLASS_BLOCK_BYTES",
    "WIDEST_CLASS_BLOCK",
    "ConvexSolution",
    "FeatureBasis",
    "apply_blocks",
    "class_blocks",
    "concept_objective",
    "invert_blocks",
    "label_objective",
    "solve_concept_head",
    "solve_label_head",
    "with_ones",
]

# Exact class blocks cost d/4 Hessian products; beyond this width the shared eigenbasis is the better buy.
WIDEST_CLASS_BLOCK = 400
CLASS_BLOCK_BYTES = 2**30
_FELT = 1e-3
# What building exact class blocks costs, in Hessian products for each column of the design, and what a digit of the
# residual costs with them.
_BLOCKS_COST, _PRODUCTS_PER_DIGIT = 0.3, 6.0
_ALIKE = 30.0
_MOST_LEADING = 256
# The same for a concept's Hessian within leading directions where they are built on the way; there fewer pay more.
_LEADING_COST, _PRODUCTS_PER_DIGIT_WITH_LEADING, _MOST_BUILT, _BUILT_IF_FELT = 0.5, 3.0, 96, 0.3


def with_ones(features: Tensor) -> Tensor:
    """Features in float64 with a last column of ones, which folds the bias into the weights."""
    return torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], dim=1)


@dataclasses.dataclass(frozen=True)
class FeatureBasis:
    """Eigenbasis of the second moment XᵀX/n: what preconditions the solves, and can be kept between them."""

    vectors: Tensor
    squared: Tensor
    """(XQ)², float32: from it the Hessian's diagonal in this basis is one matrix product."""
    largest: float = math.inf
    """The largest eigenvalue, where the basis belongs to the design itself."""

    @classmethod
    def of(cls, design: Tensor) -> FeatureBasis:
        values, vectors = torch.linalg.eigh(design.T @ design / len(design))
        return cls(vectors.float(), (design.float() @ vectors.float()).square_(), float(values[-1]))

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

    def precondition(self, diagonal: Tensor, vector: Tensor, leading: Tensor | None = None) -> Tensor:
        """Q D⁻¹ Qᵀ vector, with the exact inverse ``leading`` (rows, m, m) on the m largest directions if given."""
        rotated = vector.float() @ self.vectors
        scaled = rotated / diagonal
        if leading is not None:
            count = leading.shape[1]
            scaled[:, -count:] = apply_blocks(leading, rotated[:, -count:])
        return (scaled @ self.vectors.T).to(vector.dtype)

    def felt(self, l2: float, share: float, most: int) -> int:
        """How many leading directions may have more curvature than a ``share`` of the L2 term."""
        return int((0.25 * self.squared.mean(0) > share * l2).sum().clamp(1, most))

    def leading_inverses(self, design: Tensor, curvature: Tensor, l2: float, count: int | None = None) -> Tensor:
        """(k, m, m): inverse of each concept's Hessian within ``count`` directions (or all that feel the L2).

        What is left out is dominated by the L2 term, so with these a warm-started solve needs a few products.
        ``curvature`` is (n, k).
        """
        count = self.felt(l2, 0.1, _MOST_LEADING) if count is None else count
        rotated = design.float() @ self.vectors[:, -count:]
        roots = curvature.float().sqrt()
        blocks = torch.zeros(curvature.shape[1], count, count)
        for index in range(len(blocks)):
            add_gram_(blocks[index], rotated * roots[:, index, None])
        # upper triangles are there, and the Cholesky decomposition reads lower ones
        return invert_blocks(blocks.mT, l2)


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

    def __init__(
        self,
        design: Tensor,
        targets: Tensor,
        weights: Tensor,
        l2: float,
        basis: FeatureBasis,
        leading: Tensor | None = None,
    ) -> None:
        self.design, self.design32, self.l2, self.basis, self.leading = design, design.float(), l2, basis, leading
        self.weights = weights.double() / len(design)
        self.targets = torch.where(weights == 0, 0.0, targets.double())
        self.rebuild = 0

    def _part(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if len(rows) == self.weights.shape[1]:
            return self.weights, self.targets
        return self.weights[:, rows], self.targets[:, rows]

    def _values(self, parameters: Tensor, logits: Tensor) -> Tensor:
        losses = self.weights * (functional.softplus(logits) - self.targets * logits)
        return losses.sum(0) + 0.5 * self.l2 * parameters.square().sum(1)

    def value(self, at: NewtonResult) -> float:
        return float(self._values(at.parameters, at.logits).sum())

    def better_start(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of ``start`` and their logits, or zeros where those are better.

        A start that is worse than zero lies where every sigmoid is saturated, and Newton crawls there.
        """
        logits = self.design @ start.T
        better = self._values(start, logits) < math.log(2) * self.weights.sum(0)
        return torch.where(better[:, None], start, 0.0), torch.where(better, logits, 0.0)

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor) -> Tensor:
        weights, targets = self._part(rows)
        return (weights * (torch.sigmoid(logits) - targets)).T @ self.design + self.l2 * parameters

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        weights, targets = self._part(rows)
        p = torch.sigmoid(logits)
        weighted = weights * change
        return (weighted * (p - targets)).sum(0), (weighted * change * p * (1 - p)).sum(0)

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """Build inverses within leading directions where they would cost less than what they save."""
        count = self.basis.felt(self.l2, _BUILT_IF_FELT, _MOST_BUILT)
        saved = (products_per_digit - _PRODUCTS_PER_DIGIT_WITH_LEADING) * digits_left
        self.rebuild = count if saved > _LEADING_COST * count**2 / self.design.shape[1] else 0

    def _build(self, curvature: Tensor, rows: Tensor) -> None:
        found = self.basis.leading_inverses(self.design32, curvature.T, self.l2, self.rebuild)
        self.leading = found.new_zeros(self.weights.shape[1], *found.shape[1:])
        self.leading[rows] = found
        self.rebuild = 0

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        p = torch.sigmoid(logits)
        curvature = (self._part(rows)[0] * p * (1 - p)).to(dtype).T.contiguous()
        design = self.design if dtype == torch.float64 else self.design32
        if self.rebuild:
            self._build(curvature, rows)
        diagonal = self.basis.diagonal(curvature.T, self.l2)

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            part = curvature if len(active) == len(curvature) else curvature[active]
            return weighted_product(design, part, vector).add_(vector, alpha=self.l2)

        leading = None if self.leading is None else self.leading[rows]

        def precondition(vector: Tensor, active: Tensor) -> Tensor:
            top = leading
            if top is not None and len(active) < len(top):
                top = top[active]
            return self.basis.precondition(diagonal[active], vector, top)

        return multiply, precondition


class _LabelProblem:
    """One multinomial logistic regression; its rows belong together.

    Products start with the shared eigenbasis as preconditioner, or with given blocks. Where that takes many of
    them, the exact diagonal block of every class is built at the present point and used from then on.
    """

    together = True

    def __init__(
        self, design: Tensor, labels: Tensor, weights: Tensor, classes: int, l2: float, inverses: Tensor | None
    ) -> None:
        self.design, self.design32, self.l2 = design, design.float(), l2
        self.weights = weights.double()[:, None] / len(design)
        self.equal = float(self.weights[0, 0]) if bool((weights == weights[0]).all()) else None
        self.labels, self.all = labels, torch.arange(len(labels))
        width = design.shape[1]
        self.small = width <= WIDEST_CLASS_BLOCK and 4 * classes * width * width <= CLASS_BLOCK_BYTES
        self.inverses = inverses
        self.rebuild = False
        self._basis: FeatureBasis | None = None

    def value(self, at: NewtonResult) -> float:
        return self.value_at(at.parameters, at.logits)

    def value_at(self, parameters: Tensor, logits: Tensor) -> float:
        losses = functional.cross_entropy(logits, self.labels, reduction="none")
        return float((self.weights[:, 0] * losses).sum() + 0.5 * self.l2 * parameters.square().sum())

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor) -> Tensor:
        residual = torch.softmax(logits, 1)
        residual[self.all, self.labels] -= 1
        if self.equal is None:
            return residual.mul_(self.weights).T @ self.design + self.l2 * parameters
        return (residual.T @ self.design).mul_(self.equal).add_(parameters, alpha=self.l2)

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.softmax(logits, 1)
        expected = p * change
        mean = expected.sum(1, keepdim=True)
        second = (self.weights * (change - mean) * expected).sum(0)
        expected[self.all, self.labels] -= change[self.all, self.labels]
        return (self.weights * expected).sum(0), second

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """Build the blocks afresh where they would cost less than what they save."""
        saved = (products_per_digit - _PRODUCTS_PER_DIGIT) * digits_left
        self.rebuild = saved > _BLOCKS_COST * self.design.shape[1]

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        p, weights = torch.softmax(logits.to(dtype), 1), self.weights.to(dtype)
        design = self.design if dtype == torch.float64 else self.design32
        if self.small and self.rebuild:
            self.inverses = invert_blocks(class_blocks(self.design32, p.float(), weights.float()), self.l2)
            self.rebuild = False

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            out = torch.zeros_like(vector)
            for rows, chances, share in zip(*(t.split(CACHED_ROWS) for t in (design, p, weights)), strict=True):
                image = (rows @ vector.T).mul_(chances)
                image.addcmul_(chances, image.sum(1, keepdim=True), value=-1.0)
                out.addmm_(image.T if self.equal is not None else image.mul_(share).T, rows)
            return out.mul_(self.equal or 1.0).add_(vector, alpha=self.l2)

        if self.inverses is not None:
            inverses = self.inverses
            sizes = inverses.diagonal(dim1=1, dim2=2).mean(1)

            def by_blocks(vector: Tensor) -> Tensor:
                return apply_blocks(inverses, vector.float()).to(vector.dtype)

            return multiply, _apart(by_blocks, sizes, dtype)
        self._basis = self._basis or FeatureBasis.of(self.design)
        basis, diagonal = self._basis, self._basis.diagonal(weights * p * (1 - p), self.l2)
        sizes = (1 / diagonal).mean(1)
        return multiply, _apart(lambda vector: basis.precondition(diagonal, vector), sizes, dtype)


def _apart(precondition: Callable[[Tensor], Tensor], sizes: Tensor, dtype: torch.dtype) -> Product:
    """A preconditioner by class, kept to directions in which the classes differ.

    Moving every class alike changes no probability, so there the Hessian is l2 alone and Newton knows its step.
    Blocks of single classes cannot know: these are the directions that slow conjugate gradients most. Where the
    blocks' ``sizes`` are too different, taking the mean off would carry one class's long step into a stiff one; and
    systems that float32 could not solve are such, so in float64 the blocks stand as they are.
    """
    if dtype == torch.float64 or float(sizes.max()) > _ALIKE * float(sizes.min()):
        return lambda vector, active: precondition(vector)

    def apply(vector: Tensor, active: Tensor) -> Tensor:
        own = precondition(vector - vector.mean(0))
        return own.sub_(own.mean(0))

    return apply


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


def apply_blocks(blocks: Tensor, vectors: Tensor) -> Tensor:
    """Symmetric (rows, d, d) times (rows, d). Vectors stand on the left: on the CPU the other side takes ten times
    as long.
    """
    return torch.bmm(vectors[:, None, :], blocks)[:, 0]


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


def _finish(what: str, result: NewtonResult, objective: float, tolerance: float) -> ConvexSolution:
    """Refuse a result that is not as good as asked."""
    norm = float(result.gradient.norm())
    if not math.isfinite(norm) or norm > tolerance:
        raise EcbmError(
            f"the {what} stopped at gradient norm {norm:.2e}, above the tolerance {tolerance:.1e}; "
            "raise its L2 or the tolerance"
        )
    return ConvexSolution(result.parameters, norm, objective, result.steps, result.products)


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
    leading: Tensor | None = None,
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
    leading
        Kept :meth:`FeatureBasis.leading_inverses`, one a concept, for a start that is close.
    """
    problem = _ConceptProblem(design, targets, weights, l2, basis or FeatureBasis.of(design), leading)
    first, logits = design.new_zeros(targets.shape[1], design.shape[1]), None
    if start is not None:
        first, logits = problem.better_start(start.double())
    result = minimise(problem, design, first, tolerance, logits)
    return _finish("concept head", result, problem.value(result), accept or tolerance)


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
    inverses: Tensor | None = None,
) -> ConvexSolution:
    """Minimise J_Y over the label head: one multinomial logistic regression.

    Parameters are as in :func:`solve_concept_head`; ``weights`` is (n,), ``classes`` the number of classes, and
    ``inverses`` kept inverses of :func:`class_blocks`, which precondition from the first step.
    """
    problem = _LabelProblem(design, labels, weights, classes, l2, inverses)
    first = design.new_zeros(classes, design.shape[1])
    logits = None
    if start is not None:
        # What all classes share is 0 at the optimum and moves no probability.
        centred = start.double() - start.double().mean(0)
        logits = design @ centred.T
        better = problem.value_at(centred, logits) < math.log(classes) * float(problem.weights.sum())
        first, logits = (centred, logits) if better else (first, None)
    result = minimise(problem, design, first, tolerance, logits)
    return _finish("label head", result, problem.value(result), accept or tolerance)
