"""Many L2-regularised logistic regressions at once, and their predictions for samples they were not fitted on.

Leaving out a fold is a weight of 0, so the five solves of all concepts are one batch over one design, solved
exactly by the heads' own Newton method (:mod:`ecbm.train.heads.newton`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.train.heads.newton import Product, minimise
from ecbm.train.heads.objectives import ConceptObjective, weighted_product, with_ones
from ecbm.train.heads.precondition import FeatureBasis

__all__ = ["OutOfFold", "fit", "log_likelihood", "out_of_fold", "with_ones"]

# Logits to two digits are enough to rank by (this gives .004 at worst on 7,199 samples); certificates are not made
# here.
_TOLERANCE = 1e-4
# The L2 is chosen on so many held-out samples, or all.
_CHOOSING = 2000


class _MaskedConcepts(ConceptObjective):
    """Independent logistic regressions over one design, each of which may see some of its columns only."""

    together: bool | Tensor = False
    alike = False
    extra_work = 0

    def __init__(
        self, design: Tensor, targets: Tensor, weights: Tensor, l2: float, mask: Tensor | None, basis: FeatureBasis
    ) -> None:
        super().__init__(design, targets, weights, l2)
        self.mask, self.basis = mask, basis

    def _seen(self, vectors: Tensor, rows: Tensor) -> Tensor:
        return vectors if self.mask is None else vectors * self.mask[rows].to(vectors.dtype)

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor | None = None) -> Tensor:
        every = torch.arange(len(parameters)) if rows is None else rows
        return self._seen(super().gradient(logits, parameters, rows), every)

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """The eigenbasis is preconditioner enough at this tolerance."""

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        across = self.curvature(logits, rows).to(dtype)
        diagonal, curvature = self.basis.diagonal(across, self.l2), across.T.contiguous()
        design = self.design if dtype == torch.float64 else self.basis.design

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            product = weighted_product(design, curvature[active], vector)
            return self._seen(product.add_(vector, alpha=self.l2), rows[active])

        def precondition(vector: Tensor, active: Tensor) -> Tensor:
            return self._seen(self.basis.precondition(diagonal[active], vector), rows[active])

        return multiply, precondition


def fit(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    l2: float,
    *,
    mask: Tensor | None = None,
    start: Tensor | None = None,
    basis: FeatureBasis | None = None,
) -> Tensor:
    """Parameters (k, d) of k logistic regressions.

    Parameters
    ----------
    design
        (n, d) float64 with a column of ones.
    targets, weights
        (n, k) float64; targets in 0..1, finite; a weight of 0 leaves a term out.
    l2
        On every parameter; the loss is a mean over n.
    mask
        (k, d): 0 where a regression must not see a column.
    start
        (k, d) parameters to start from.
    basis
        The design's eigenbasis, where it is at hand.
    """
    problem = _MaskedConcepts(design, targets, weights, l2, mask, basis or FeatureBasis.of(design))
    first = design.new_zeros(targets.shape[1], design.shape[1]) if start is None else start
    return minimise(problem, design, first, _TOLERANCE).parameters


def log_likelihood(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Of every column (k,)."""
    return -(weights * (functional.softplus(logits) - targets * logits)).sum(0)


@dataclasses.dataclass(frozen=True)
class OutOfFold:
    """Logits (n, k) of samples by regressions that did not see them.

    ``l2`` (k,) is what was chosen for every column, ``parameters`` (folds, k, d) the regressions themselves.
    """

    logits: Tensor
    l2: Tensor
    parameters: Tensor

    @functools.cached_property
    def probabilities(self) -> Tensor:
        return torch.sigmoid(self.logits)


class _Folds:
    """The regressions of all folds over one design."""

    def __init__(
        self, design: Tensor, targets: Tensor, weights: Tensor, folds: Tensor, mask: Tensor | None
    ) -> None:
        self.design, self.targets, self.weights, self.folds, self.mask = design, targets, weights, folds, mask
        self.basis = FeatureBasis.of(design)
        self.count = int(folds.max()) + 1

    def whole(self, l2: float) -> Tensor:
        """Parameters (folds, k, d) of all samples, the same for every fold: close to those of each."""
        found = fit(self.design, self.targets, self.weights, l2, mask=self.mask, basis=self.basis)
        return found.expand(self.count, -1, -1).clone()

    def solve(self, l2: float, columns: Tensor, folds: Sequence[int], parameters: Tensor, logits: Tensor) -> None:
        """Solve some columns of some folds, from and into ``parameters``; held-out logits go into ``logits``."""
        for fold in folds:
            out = (self.folds == fold).nonzero().flatten()
            kept = (self.folds != fold).nonzero().flatten()
            at = kept[:, None], columns[None, :]
            # The whole design's eigenbasis fits a part of its rows well enough to precondition with.
            basis = FeatureBasis(self.basis.vectors, self.basis.design[kept])
            mask = None if self.mask is None else self.mask[columns]
            found = fit(
                self.design[kept], self.targets[at], self.weights[at], l2,
                mask=mask, start=parameters[fold, columns], basis=basis,
            )  # fmt: skip
            parameters[fold, columns] = found
            logits[out[:, None], columns[None, :]] = self.design[out] @ found.T

    def likelihood(self, logits: Tensor, columns: Tensor, folds: Sequence[int]) -> Tensor:
        """Log-likelihood of the held-out labels of some columns and folds."""
        rows = torch.isin(self.folds, torch.tensor(folds)).nonzero().flatten()
        at = rows[:, None], columns[None, :]
        return log_likelihood(logits[at], self.targets[at], self.weights[at])


def _chosen(problem: _Folds, grid: Sequence[float], folds: Sequence[int], parameters: Tensor) -> Tensor:
    """Place in the grid (k,) of the likeliest L2: from the middle every column walks down or else up.

    ``parameters`` are those of the middle; they are left where the walk ends.
    """
    k, middle = parameters.shape[1], len(grid) // 2
    every, chosen = torch.arange(k), torch.full((k,), middle)
    logits = torch.zeros_like(problem.targets)
    problem.solve(grid[middle], every, folds, parameters, logits)
    best = problem.likelihood(logits, every, folds)
    for way in (1, -1):
        columns, place = (chosen == middle).nonzero().flatten(), middle + way
        while len(columns) and 0 <= place < len(grid):
            trial = parameters.clone()
            problem.solve(grid[place], columns, folds, trial, logits)
            gained = problem.likelihood(logits, columns, folds)
            better = gained > best[columns]
            columns = columns[better]
            best[columns], chosen[columns] = gained[better], place
            parameters[:, columns] = trial[:, columns]
            place += way
    return chosen


def out_of_fold(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    folds: Tensor,
    l2: Sequence[float],
    *,
    mask: Tensor | None = None,
    like: OutOfFold | None = None,
) -> OutOfFold:
    """Out-of-fold logits (n, k), each column at the L2 under which held-out labels are likeliest.

    Given the answer to a problem that is ``like`` this one, its L2 are taken and its parameters are the start.
    """
    problem = _Folds(design, targets, weights, folds, mask)
    logits = torch.zeros_like(targets)
    if like is None:
        grid = sorted(l2, reverse=True)
        parameters = problem.whole(grid[len(grid) // 2])
        some = range(min(problem.count, -(-_CHOOSING * problem.count // max(len(design), 1))))
        places = _chosen(problem, grid, some, parameters)
        # The first fold's walk brings the others near to where they end.
        for fold in range(len(some), problem.count):
            parameters[fold] = parameters[0]
        strengths = torch.tensor(grid, dtype=torch.float64)[places]
    else:
        parameters, strengths = like.parameters.clone(), like.l2
    for strength in strengths.unique().tolist():
        columns = (strengths == strength).nonzero().flatten()
        problem.solve(strength, columns, range(problem.count), parameters, logits)
    return OutOfFold(logits, strengths, parameters)
