"""The concept head: k L2-regularised logistic regressions on shared features, solved in float64 to a gradient norm.

Newton with conjugate gradients (:mod:`ecbm.train.heads.newton`). What makes it fast where a general optimiser is
not: one preconditioner for all concepts, Hessian products in float32 for as long as that helps, and concepts that
have converged leave the batch, so that the cost follows those that still move. scikit-learn's and SciPy's solvers
do none of these: no shared preconditioner, no weights by (sample, concept), and a gradient tolerance that stops
short of what a certificate needs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.newton import ConvexSolution, Product, minimise, solution_of
from ecbm.train.heads.objectives import ConceptObjective, weighted_product
from ecbm.train.heads.precondition import FeatureBasis

__all__ = ["solve_concept_head"]

# Inverses within leading directions that are built on the way: what building costs, in Hessian products for each
# column of the design, what a digit of the residual costs with them, and how many directions that feel the L2 to a
# share are taken at most.
_LEADING_COST, _PRODUCTS_PER_DIGIT_WITH_LEADING, _MOST_BUILT, _BUILT_IF_FELT = 0.5, 3.0, 96, 0.3


class _ConceptProblem(ConceptObjective):
    """k independent problems for :func:`~ecbm.train.heads.newton.minimise`."""

    together: bool | Tensor = False
    alike = False

    def __init__(
        self,
        design: Tensor,
        targets: Tensor,
        weights: Tensor,
        l2: float,
        basis: FeatureBasis,
        leading: Tensor | None,
        layout: ConceptLayout | None = None,
    ) -> None:
        super().__init__(design, targets, weights, l2, layout)
        self.basis, self.leading = basis, leading
        self.rebuild = self.extra_work = 0

    def better_start(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of ``start`` and their logits, or zeros where those are better.

        A start that is worse than zero lies where every sigmoid is saturated, and Newton crawls there.
        """
        logits = self.design @ start.T
        if self.layout is None:
            zero = math.log(2) * self.shares.sum(0)
        else:
            zero = self.values(torch.zeros_like(start), torch.zeros_like(logits))
        better = self.values(start, logits) < zero
        return torch.where(better[:, None], start, 0.0), torch.where(better, logits, 0.0)

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """Build inverses within leading directions where they would cost less than what they save."""
        count = self.basis.felt(self.l2, _BUILT_IF_FELT, _MOST_BUILT)
        saved = (products_per_digit - _PRODUCTS_PER_DIGIT_WITH_LEADING) * digits_left
        self.rebuild = count if saved > self._price(count) else 0

    def _price(self, count: int) -> float:
        """What inverses within so many directions cost, in Hessian products."""
        return _LEADING_COST * count**2 / self.design.shape[1]

    def _build(self, curvature: Tensor, rows: Tensor) -> None:
        self.extra_work += round(self._price(self.rebuild) * len(rows))
        found = self.basis.leading_inverses(curvature, self.l2, self.rebuild)
        self.leading = found.new_zeros(self.shares.shape[1], *found.shape[1:])
        self.leading[rows] = found
        self.rebuild = 0

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        across = self.curvature(logits, rows).to(dtype)
        if self.rebuild:
            self._build(across, rows)
        diagonal = self.basis.diagonal(across, self.l2)
        curvature = across.T.contiguous()
        design = self.design if dtype == torch.float64 else self.basis.design

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
    layout: ConceptLayout | None = None,
) -> ConvexSolution:
    """Minimise J_C over the concept head: k logistic regressions, batched.

    Parameters
    ----------
    design
        (n, d) float64 features with a column of ones (:func:`~ecbm.train.heads.objectives.with_ones`).
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
        A kept :class:`FeatureBasis` for this design; any orthonormal basis is right, a fitting one is fast.
    leading
        Kept :meth:`FeatureBasis.leading_inverses`, one a concept, for a start that is close.
    layout
        Types of the concepts, if some are continuous. Others have rows that belong together
        (:mod:`ecbm.train.heads.mixed`).
    """
    problem = _ConceptProblem(design, targets, weights, l2, basis or FeatureBasis.of(design), leading, layout)
    problem.extra_work = problem.basis.work if basis is None else 0
    first, logits = design.new_zeros(targets.shape[1], design.shape[1]), None
    if start is not None:
        first, logits = problem.better_start(start.double())
    result = minimise(problem, design, first, tolerance, logits)
    objective = float(problem.values(result.parameters, result.logits).sum())
    return solution_of("concept head", result, objective, accept or tolerance)
