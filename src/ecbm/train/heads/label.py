"""The label head: one L2-regularised multinomial logistic regression, solved in float64 to a gradient norm.

Where labels are numbers it is one ridge regression, from the normal equations. Otherwise
Newton with conjugate gradients, preconditioned by the exact diagonal block of every class where those are small
enough, by the inputs' eigenbasis otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ecbm.train.heads.mixed import least_squares
from ecbm.train.heads.newton import (
    ConvexSolution,
    NewtonResult,
    Product,
    conjugate_gradients,
    minimise,
    solution_of,
)
from ecbm.train.heads.objectives import LabelObjective
from ecbm.train.heads.precondition import (
    FeatureBasis,
    apply_blocks,
    class_blocks,
    fits_class_blocks,
    invert_blocks,
)

__all__ = ["block_step", "divide_by_hessian", "newton_step", "solve_label_head"]

# What building exact class blocks costs, in Hessian products for each column of the design, and what a digit of the
# residual costs with them.
_BLOCKS_COST, _PRODUCTS_PER_DIGIT = 0.3, 6.0
_ALIKE = 30.0


class _LabelProblem(LabelObjective):
    """One problem for :func:`~ecbm.train.heads.newton.minimise`; its rows belong together.

    Products start with the shared eigenbasis as preconditioner, or with given blocks. Where that takes many of
    them, the exact diagonal block of every class is built at the present point and used from then on.
    """

    together: bool | Tensor = True
    alike = True

    def __init__(self, design: Tensor, labels: Tensor, weights: Tensor | None, classes: int, l2: float) -> None:
        super().__init__(design, labels, weights, l2)
        self.single = design.float()
        self.small = fits_class_blocks(classes, design.shape[1])
        self.inverses: Tensor | None = None
        self.rebuild, self.extra_work = False, 0
        self._basis: FeatureBasis | None = None

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor | None = None) -> Tensor:
        return super().gradient(logits, parameters)

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().slopes(logits, change)

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """Build the blocks afresh where they would cost less than what they save."""
        saved = (products_per_digit - _PRODUCTS_PER_DIGIT) * digits_left
        self.rebuild = saved > _BLOCKS_COST * self.design.shape[1]

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        p = torch.softmax(logits.to(dtype), 1)
        design = self.design if dtype == torch.float64 else self.single
        if self.small and self.rebuild:
            self.extra_work += round(_BLOCKS_COST * self.design.shape[1] * logits.shape[1])
            self.inverses = invert_blocks(class_blocks(self.single, self.curvature(p.float())), self.l2)
            self.rebuild = False

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            return self.product(design, p, vector)

        if self.inverses is not None:
            inverses = self.inverses
            sizes = inverses.diagonal(dim1=1, dim2=2).mean(1)

            def by_blocks(vector: Tensor) -> Tensor:
                return apply_blocks(inverses, vector.float()).to(vector.dtype)

            return multiply, _apart(by_blocks, sizes, dtype)
        if self._basis is None:
            self._basis = FeatureBasis.of(self.design)
            self.extra_work += self._basis.work
        basis, diagonal = self._basis, self._basis.diagonal(self.curvature(p), self.l2)
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


def block_step(gradient: Tensor, inverses: Tensor, l2: float) -> Tensor:
    """H⁻¹ gradient with the classes' own blocks for H; what all classes share is felt by the L2 alone."""
    shared = gradient.mean(0)
    own = apply_blocks(inverses, (gradient - shared).float()).double()
    return own.sub_(own.mean(0)).add_(shared, alpha=1 / l2)


def newton_step(
    design: Tensor,
    labels: Tensor,
    head: Tensor,
    l2: float,
    *,
    inverses: Tensor | None = None,
    residual: float = 1e-4,
) -> tuple[Tensor, int]:
    """H⁻¹ ∇J_Y at ``head`` to a relative ``residual``, by conjugate gradients, and the products it took.

    ``inverses`` are as in :func:`solve_label_head`.
    """
    gradient = LabelObjective(design, labels, None, l2).gradient(design @ head.T, head)
    return divide_by_hessian(design, labels, head, l2, gradient, inverses=inverses, residual=residual)


def divide_by_hessian(
    design: Tensor,
    labels: Tensor,
    head: Tensor,
    l2: float,
    vector: Tensor,
    *,
    inverses: Tensor | None = None,
    residual: float = 1e-4,
) -> tuple[Tensor, int]:
    """H⁻¹ ``vector`` (classes, d) with the Hessian of J_Y at ``head``; as :func:`newton_step`."""
    problem = _LabelProblem(design, labels, None, len(head), l2)
    problem.inverses = inverses
    logits, every = design @ head.T, torch.arange(len(head))
    size = float(vector.norm())
    if size == 0:
        return torch.zeros_like(vector), 0
    for dtype in (torch.float32, torch.float64):
        multiply, precondition = problem.system(logits, every, dtype)
        limit = torch.full((len(head),), residual, dtype=dtype)
        found = conjugate_gradients(multiply, precondition, (vector / size).to(dtype), limit, together=True)
        if found.sound:
            break
    step = found.solution.double() * size
    # What the classes share is felt by the L2 alone, so its step is known exactly.
    return step - step.mean(0) + vector.mean(0) / l2, found.products


def solve_label_head(
    design: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    classes: int,
    l2: float,
    *,
    tolerance: float = 1e-10,
    accept: float | None = None,
    start: Tensor | None = None,
    inverses: Tensor | None = None,
    l1: float = 0.0,
) -> ConvexSolution:
    """Minimise J_Y over the label head: one multinomial logistic regression.

    Parameters are as in :func:`~ecbm.train.heads.concept.solve_concept_head`; ``weights`` is (n,) or ``None`` for
    ones, ``classes`` the number of classes, and ``inverses`` kept inverses of
    :func:`~ecbm.train.heads.precondition.class_blocks`, which precondition from the first step. With ``l1`` the
    head is sparse (:mod:`ecbm.train.heads.sparse`). Labels of floating point are standardised numbers; the head
    then has one output, and a closed form.
    """
    if l1:
        from ecbm.train.heads.sparse import solve_sparse_label_head

        wanted = {"tolerance": tolerance, "accept": accept or tolerance}
        return solve_sparse_label_head(design, labels, classes, l2, l1, start=start, **wanted)
    if labels.is_floating_point():
        return _solve_number_head(design, labels, weights, l2, accept or tolerance)
    problem = _LabelProblem(design, labels, weights, classes, l2)
    problem.inverses = inverses
    first = design.new_zeros(classes, design.shape[1])
    logits = None
    if start is not None:
        # What all classes share is 0 at the optimum and moves no probability.
        centred = start.double() - start.double().mean(0)
        logits = design @ centred.T
        better = float(problem.value(centred, logits)) < math.log(classes) * float(problem.shares.sum())
        first, logits = (centred, logits) if better else (first, None)
    result = minimise(problem, design, first, tolerance, logits)
    objective = float(problem.value(result.parameters, result.logits))
    return solution_of("label head", result, objective, accept or tolerance)


def _solve_number_head(
    design: Tensor, labels: Tensor, weights: Tensor | None, l2: float, accept: float
) -> ConvexSolution:
    """The head of a number (1, d): (Bᵀ diag(v) B / n + β) φ = Bᵀ diag(v) y / n, by Cholesky."""
    objective = LabelObjective(design, labels, weights, l2)
    ones = torch.ones(len(design)) if weights is None else weights
    rows = least_squares(design, labels[:, None], ones[:, None], l2)
    logits = design @ rows.T
    gradient = objective.gradient(logits, rows)
    # The normal equations cost half as many products as the design has columns.
    result = NewtonResult(rows, gradient, logits, 1, 0, round(0.5 * design.shape[1]))
    return solution_of("label head", result, float(objective.value(rows, logits)), accept)
