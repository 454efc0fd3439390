"""The concept head where concepts are of several types: each concept is a convex problem of its own.

- binary concepts: logistic regressions, all at once (:mod:`ecbm.train.heads.concept`);
- categorical: one multinomial regression each, the label head's problem on features; ordinal: logistic regressions
  of all thresholds with one shared slope; all of them at once (:mod:`ecbm.train.heads.grouped`);
- continuous: least squares, in closed form where the features are narrow enough for their normal equations, by
  the same conjugate gradients as the others where they are not.

All have the L2 of the rows, so all are α-strongly convex in them and one gradient norm bounds the distance to
the optimum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ecbm.errors import EcbmError
from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import tie
from ecbm.train.heads.concept import solve_concept_head
from ecbm.train.heads.grouped import GroupedProblem
from ecbm.train.heads.newton import ConvexSolution, minimise, solution_of
from ecbm.train.heads.objectives import ConceptObjective
from ecbm.train.heads.precondition import FeatureBasis

__all__ = ["least_squares", "solve_heads"]

# The normal equations cost half as many Hessian products as the design has columns.
_WIDEST_NORMAL = 300


def least_squares(design: Tensor, targets: Tensor, weights: Tensor, l2: float) -> Tensor:
    """Rows W (k, d) that minimise (1/n) Σ_i w_ij ½(w_j · x_i − t_ij)² + (l2/2)|W|², from the normal equations.

    One factorisation serves all columns with the same weights; the residual is fed back once, which leaves a
    gradient at the rounding floor.
    """
    out = design.new_zeros(targets.shape[1], design.shape[1])
    patterns, which = torch.unique(weights, dim=1, return_inverse=True)
    for pattern in range(patterns.shape[1]):
        columns = (which == pattern).nonzero().flatten()
        shares = patterns[:, pattern, None].double() / len(design)
        matrix = design.T @ (shares * design)
        matrix.diagonal().add_(l2)
        factor = torch.linalg.cholesky(matrix)
        goal = targets[:, columns].double()
        found = torch.zeros(design.shape[1], len(columns), dtype=torch.float64)
        for _ in range(2):
            gradient = design.T @ (shares * (design @ found - goal)) + l2 * found
            found -= torch.cholesky_solve(gradient, factor)
        out[columns] = found.T
    return out


def solve_heads(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    l2: float,
    layout: ConceptLayout | None = None,
    *,
    tolerance: float = 1e-10,
    accept: float | None = None,
    start: Tensor | None = None,
    basis: FeatureBasis | None = None,
    leading: Tensor | None = None,
) -> ConvexSolution:
    """Minimise J_C over the concept head, whatever the types of its concepts.

    Parameters are those of :func:`~ecbm.train.heads.concept.solve_concept_head`, which solves it where all concepts
    are binary, and ``layout``.
    """
    accept = accept or tolerance
    if layout is None or layout.plain:
        return solve_concept_head(
            design,
            targets,
            weights,
            l2,
            tolerance=tolerance,
            accept=accept,
            start=start,
            basis=basis,
            leading=leading,
        )
    made = basis is None
    basis = basis or FeatureBasis.of(design)
    solver = _Mixed(design, targets, weights, l2, layout, tolerance, accept, start, basis, leading)
    solver.work = basis.work if made else 0
    return solver.solve()


class _Mixed:
    """The parts of one mixed head, solved one after another into the same rows."""

    def __init__(
        self,
        design: Tensor,
        targets: Tensor,
        weights: Tensor,
        l2: float,
        layout: ConceptLayout,
        tolerance: float,
        accept: float,
        start: Tensor | None,
        basis: FeatureBasis,
        leading: Tensor | None,
    ) -> None:
        self.design, self.targets, self.weights, self.l2, self.layout = design, targets, weights, l2, layout
        self.tolerance, self.accept, self.basis, self.leading = tolerance, accept, basis, leading
        self.start = None if start is None else tie(start.double(), layout)
        self.rows = design.new_zeros(layout.width, design.shape[1])
        self.logits = design.new_zeros(len(design), layout.width)
        self.steps = self.products = self.work = 0
        self.squares = self.objective = 0.0

    def solve(self) -> ConvexSolution:
        layout = self.layout
        if len(layout.binary):
            self._binary(layout.binary)
        grouped = [column for one in layout.of_type("categorical", "ordinal") for column in one.columns]
        if grouped:
            self._grouped(torch.tensor(sorted(grouped)))
        if len(layout.squared):
            self._continuous(layout.squared)
        norm = math.sqrt(self.squares)
        return ConvexSolution(self.rows, self.logits, norm, self.objective, self.steps, self.products, self.work)

    def _share(self, columns: Tensor) -> float:
        """Parts may each use their share of the squared tolerance."""
        return math.sqrt(len(columns) / self.layout.width)

    def _put(self, columns: Tensor, solved: ConvexSolution) -> None:
        self.rows[columns], self.logits[:, columns] = solved.parameters, solved.logits
        self.squares += solved.gradient_norm**2
        self.objective += solved.objective
        self.steps, self.products = self.steps + solved.newton_steps, self.products + solved.hessian_products
        self.work += solved.work

    def _from(self, columns: Tensor) -> Tensor | None:
        return None if self.start is None else self.start[columns]

    def _binary(self, columns: Tensor) -> None:
        share = self._share(columns)
        solved = solve_concept_head(
            self.design,
            self.targets[:, columns],
            self.weights[:, columns],
            self.l2,
            tolerance=share * self.tolerance,
            accept=share * self.accept,
            start=self._from(columns),
            basis=self.basis,
            leading=None if self.leading is None else self.leading[columns],
        )
        self._put(columns, solved)

    def _grouped(self, columns: Tensor) -> None:
        share, layout = self._share(columns), self.layout.select(columns)
        targets, weights = self.targets[:, columns], self.weights[:, columns]
        problem = GroupedProblem(self.design, targets, weights, self.l2, layout, self.basis)
        start = self._from(columns)
        first, logits = self.design.new_zeros(len(columns), self.design.shape[1]), None
        if start is not None:
            first, logits = problem.better_start(start)
        result = minimise(problem, self.design, first, share * self.tolerance, logits)
        objective = float(problem.values(result.parameters, result.logits).sum())
        self._put(columns, solution_of("concept head", result, objective, share * self.accept))

    def _continuous(self, columns: Tensor) -> None:
        share, layout = self._share(columns), self.layout.select(columns)
        targets, weights = self.targets[:, columns], self.weights[:, columns]
        if self.design.shape[1] > _WIDEST_NORMAL:
            solved = solve_concept_head(
                self.design,
                targets,
                weights,
                self.l2,
                tolerance=share * self.tolerance,
                accept=share * self.accept,
                start=self._from(columns),
                basis=self.basis,
                layout=layout,
            )
            self._put(columns, solved)
            return
        own = ConceptObjective(self.design, targets, weights, self.l2, layout)
        rows = least_squares(self.design, own.targets, weights, self.l2)
        logits = self.design @ rows.T
        norm = float(own.gradient(logits, rows).norm())
        if not norm <= share * self.accept:
            raise EcbmError(
                f"the head of a continuous concept stopped at gradient norm {norm:.2e}, above the tolerance "
                f"{share * self.accept:.1e}; raise its L2 or the tolerance"
            )
        work = round(0.5 * self.design.shape[1])
        value = float(own.values(rows, logits).sum())
        self._put(columns, ConvexSolution(rows, logits, norm, value, 1, 0, work))
