"""A sparse label head: the multinomial objective with an L1 term, certified by the distance of 0 to ∂J_Y.

    J_Y(Φ) = (1/n) Σ_i v_i CE(b_i Φᵀ, y_i) + (β/2)|Φ|² + λ|W|₁        W: Φ without its biases

β-strongly convex, so |Φ − Φ*| ≤ dist(0, ∂J_Y(Φ)) / β (docs/method.md, "The certificate"). Orthant-wise Newton: on
the coordinates that are not 0, or that leave it, the L1 term is linear, so Newton's step is that of a smooth
problem; coordinates that would change their sign stop at 0, where the L1 term decides anew (after Andrew and Gao
2007, with Newton's steps). Once the right coordinates are 0 it converges as Newton does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ecbm.train.heads.newton import ConvexSolution, NewtonResult, conjugate_gradients, solution_of
from ecbm.train.heads.objectives import LabelObjective

__all__ = ["solve_sparse_label_head"]

_MAX_STEPS = 400
_HALVINGS = 40
# Below this norm objectives differ by less than their rounding, and the subgradient itself decides on a step.
_CLOSE = 1e-4
# Steps without progress at the rounding floor after which the iteration stops, whatever the tolerance.
_PATIENCE = 5


def solve_sparse_label_head(
    design: Tensor,
    labels: Tensor,
    classes: int,
    l2: float,
    l1: float,
    *,
    tolerance: float,
    accept: float,
    start: Tensor | None = None,
) -> ConvexSolution:
    """Minimise J_Y with an L1 term; ``gradient_norm`` of the solution is dist(0, ∂J_Y).

    Parameters are those of :func:`~ecbm.train.heads.label.solve_label_head`, and ``l1``, λ.
    """
    objective = LabelObjective(design, labels, None, l2, l1)
    rows = torch.zeros(classes, design.shape[1], dtype=torch.float64) if start is None else start.double().clone()
    logits = design @ rows.T
    slope = objective.gradient(logits, rows)
    steps = products = stalled = 0
    best = float(slope.norm())
    while steps < _MAX_STEPS and stalled < _PATIENCE:
        norm = float(slope.norm())
        if norm <= tolerance or not math.isfinite(norm):
            break
        move, used = _newton_move(objective, logits, rows, slope, norm, tolerance)
        rows, logits = _taken(objective, rows, logits, slope, move, norm)
        slope = objective.gradient(logits, rows)
        steps, products = steps + 1, products + used
        reached = float(slope.norm())
        stalled = 0 if reached < 0.9 * best else stalled + (reached < 1e-8)
        best = min(best, reached)
    work = (products + 2 * steps) * classes
    result = NewtonResult(rows, slope, logits, steps, products, work)
    return solution_of("label head", result, float(objective.value(rows, logits)), accept)


def _newton_move(
    objective: LabelObjective, logits: Tensor, rows: Tensor, slope: Tensor, norm: float, tolerance: float
) -> tuple[Tensor, int]:
    """−H⁻¹ slope over the coordinates that are free to move, and the products it took."""
    free = ((rows != 0) | (slope != 0)).double()
    free[:, -1] = 1.0
    p = torch.softmax(logits, 1)
    design = objective.design
    diagonal = objective.curvature(p).T @ design.square() + objective.l2

    def multiply(vector: Tensor, active: Tensor) -> Tensor:
        return objective.product(design, p, vector) * free

    def precondition(vector: Tensor, active: Tensor) -> Tensor:
        return vector / diagonal

    wanted = min(0.1, math.sqrt(norm), max(norm, 1e-8))
    forcing = torch.full((len(rows),), max(wanted, 0.3 * tolerance / norm), dtype=torch.float64)
    found = conjugate_gradients(multiply, precondition, slope * free / norm, forcing, True)
    return -norm * found.solution, found.products


def _taken(
    objective: LabelObjective, rows: Tensor, logits: Tensor, slope: Tensor, move: Tensor, norm: float
) -> tuple[Tensor, Tensor]:
    """The step, or the longest of its halves that helps, within the orthant of the present signs."""
    orthant = torch.where(rows != 0, rows.sign(), -slope.sign())
    before = float(objective.value(rows, logits))
    length = 1.0
    for _ in range(_HALVINGS):
        trial = rows + length * move
        inside = trial.sign() == orthant
        inside[:, -1] = True
        trial = torch.where(inside, trial, 0.0)
        there = objective.design @ trial.T
        expected = float((slope * (trial - rows)).sum())
        if float(objective.value(trial, there)) <= before + 1e-4 * min(expected, 0.0):
            return trial, there
        if norm < _CLOSE and float(objective.gradient(there, trial).norm()) < norm:
            return trial, there
        length /= 2
    return rows, logits
