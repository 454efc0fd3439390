"""Categorical and ordinal concepts, all at once: rows of one concept are one problem, and concepts are independent.

Newton with conjugate gradients (:mod:`ecbm.train.heads.newton`) over the rows of all of them, so that the features
are multiplied by many rows at a time. A concept that has converged leaves the batch as a whole. Sums over the rows
of a concept are products with small 0/1 matrices, which are faster than scattered additions.

    softmax   H v = Xᵀ w q ∘ (Xv − Σ_c q_c (Xv)_c) + α v, for each sample's q over the concept's rows
    ordinal   the rows' own logistic Hessians, projected onto rows with one slope (:func:`~.activations.tie`)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import activate, tie
from ecbm.train.heads.newton import Product
from ecbm.train.heads.objectives import ConceptObjective
from ecbm.train.heads.precondition import FeatureBasis

__all__ = ["GroupedProblem"]

_CACHED_ROWS = 512
_ALIKE = 30.0
_SAFE = 60.0
"""Logits up to this size have exponentials that float32 can sum."""


class GroupedProblem(ConceptObjective):
    """J_C of categorical and ordinal concepts, for :func:`~ecbm.train.heads.newton.minimise`."""

    alike = False

    def __init__(
        self,
        design: Tensor,
        targets: Tensor,
        weights: Tensor,
        l2: float,
        layout: ConceptLayout,
        basis: FeatureBasis,
    ) -> None:
        super().__init__(design, targets, weights, l2, layout)
        self.types, self.basis, self.extra_work = layout, basis, 0
        self.together: bool | Tensor = torch.tensor(layout.owner)

    def better_start(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of ``start`` and their logits, or zeros for concepts that zeros are better for."""
        logits = self.design @ start.T
        zero = self.values(torch.zeros_like(start), torch.zeros_like(logits))
        members = _members(self.types).double()
        better = ((zero - self.values(start, logits)) @ members @ members.T) > 0
        return torch.where(better[:, None], start, 0.0), torch.where(better, logits, 0.0)

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        pass

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        layout, (targets, shares) = self._layout(rows), self._of(rows)
        assert layout is not None
        values = _activations(logits, layout)
        first = (change * shares * (values - targets)).sum(0)
        return first, (change * _Curvature(values, shares, layout).rows(slice(None), change)).sum(0)

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor | None = None) -> Tensor:
        layout, (targets, shares) = self._layout(rows), self._of(rows)
        assert layout is not None
        residual = (_activations(logits, layout) - targets).mul_(shares)
        return tie((residual.T @ self.design).add_(parameters, alpha=self.l2), layout)

    def levelled(self, move: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        """What the rows of a softmax share is felt by the L2 alone, so its step is known exactly; and slopes that
        are shared are so but for float32's rounding.
        """
        layout = self._layout(rows)
        assert layout is not None
        for columns in layout.softmax:
            shared = gradient[columns].mean(0) / self.l2
            move[columns] -= move[columns].mean(0) + shared
        return tie(move, layout)

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        layout = self._layout(rows)
        assert layout is not None
        shares = self._of(rows)[1].to(dtype)
        values = _activations(logits.to(dtype), layout)
        design = self.design if dtype == torch.float64 else self.basis.design
        diagonal = self.basis.diagonal(self._slope_curvature(values, shares, layout), self.l2)
        own = (values * (1 - values) * shares).sum(0) + self.l2
        parts: dict[int, _Part] = {}

        def part(active: Tensor) -> _Part:
            # What belongs to a row is copied once for every set of rows that are still in the batch.
            if len(active) not in parts:
                parts[len(active)] = _Part(active, values, shares, layout, diagonal, own)
            return parts[len(active)]

        def multiply(vector: Tensor, active: Tensor) -> Tensor:
            return part(active).product(design, vector).add_(vector, alpha=self.l2)

        def precondition(vector: Tensor, active: Tensor) -> Tensor:
            return part(active).precondition(self.basis, vector)

        return multiply, precondition

    @staticmethod
    def _slope_curvature(values: Tensor, shares: Tensor, layout: ConceptLayout) -> Tensor:
        """Curvature of every row; a shared slope feels the mean of its thresholds'."""
        curvature = values * (1 - values) * shares
        for columns in layout.tied:
            curvature[:, columns] = curvature[:, columns].mean(1, keepdim=True)
        return curvature


def _activations(logits: Tensor, layout: ConceptLayout) -> Tensor:
    """:func:`~ecbm.train.heads.activations.activate`, faster where no exponential overflows."""
    if not len(logits) or not float(logits.abs().max()) < _SAFE:
        return activate(logits, layout)
    raised, members = logits.exp(), _members(layout).to(logits.dtype)
    softmax = torch.tensor([layout.concepts[number].type == "categorical" for number in layout.owner])
    total = raised @ members @ members.T if bool(softmax.any()) else raised
    return raised / torch.where(softmax, total, 1 + raised)


def _members(layout: ConceptLayout) -> Tensor:
    """(columns, concepts) with a one where a column belongs to a concept."""
    members = torch.zeros(layout.width, len(layout.concepts))
    members[torch.arange(layout.width), torch.tensor(layout.owner)] = 1.0
    return members


class _Curvature:
    """The second derivative of every sample's loss by its logits, as something to multiply changes (n, k) by."""

    def __init__(self, values: Tensor, shares: Tensor, layout: ConceptLayout) -> None:
        self.weighted, self.values = values * shares, values
        self.members = _members(layout).to(values.dtype)
        # Of each row either its own value is taken off (a threshold) or its concept's mean (a softmax).
        self.softmax = torch.tensor([layout.concepts[number].type == "categorical" for number in layout.owner])
        self.mixed = bool(self.softmax.any()) and not bool(self.softmax.all())

    def rows(self, rows: slice, change: Tensor) -> Tensor:
        values, weighted = self.values[rows], self.weighted[rows]
        if not bool(self.softmax.any()):
            return weighted * (1 - values) * change
        mean = (values * change) @ self.members @ self.members.T
        if not self.mixed:
            return weighted * (change - mean)
        return weighted * (change - torch.where(self.softmax, mean, values * change))


class _Part:
    """Some concepts of a system."""

    def __init__(
        self, active: Tensor, values: Tensor, shares: Tensor, layout: ConceptLayout, diagonal: Tensor, own: Tensor
    ) -> None:
        whole = len(active) == layout.width
        self.layout = layout if whole else layout.select(active)
        picked = (values, shares) if whole else (values[:, active], shares[:, active])
        self.curvature = _Curvature(*picked, self.layout)
        self.diagonal, self.own = (diagonal, own) if whole else (diagonal[active], own[active])
        concepts = self.layout.concepts
        tied = [one.type == "ordinal" for one in concepts]
        self.tied = torch.tensor([tied[number] for number in self.layout.owner])
        # One row of products serves all thresholds of a concept.
        firsts = [[one.columns[0]] if one.type == "ordinal" else list(one.columns) for one in concepts]
        order = {column: place for place, column in enumerate(column for some in firsts for column in some)}
        self.firsts = torch.tensor(list(order))
        owners = self.layout.owner
        self.expand = torch.zeros(len(order), self.layout.width, dtype=values.dtype)
        for column, owner in enumerate(owners):
            self.expand[order[concepts[owner].columns[0] if tied[owner] else column], column] = 1.0
        sizes = torch.tensor([len(concepts[number].columns) for number in owners])
        self.sizes = sizes.to(values.dtype)
        self.members = _members(self.layout)
        spread = (1 / self.diagonal).mean(1)
        self.apart = torch.tensor([False] * self.layout.width)
        for columns in self.layout.softmax:
            self.apart[columns] = bool(spread[columns].max() <= _ALIKE * spread[columns].min())
        self.any_tied, self.any_apart = bool(self.tied.any()), bool(self.apart.any())

    def product(self, design: Tensor, vector: Tensor) -> Tensor:
        """The Hessian of the data term times (k, d) rows."""
        reduced = vector[self.firsts].clone()
        if self.any_tied:
            reduced[self.tied[self.firsts], -1] = 0.0
        out = torch.zeros_like(reduced)
        biases = torch.zeros_like(vector[:, 0])
        extra = torch.where(self.tied, vector[:, -1], 0.0)
        for start in range(0, len(design), _CACHED_ROWS):
            rows = design[start : start + _CACHED_ROWS]
            change = rows @ reduced.T
            if self.any_tied:
                change = torch.addmm(extra, change, self.expand)
            image = self.curvature.rows(slice(start, start + len(rows)), change)
            if self.any_tied:
                biases += image.sum(0)
                image = image @ self.expand.T
            out.addmm_(image.T, rows)
        if not self.any_tied:
            return out
        whole = self.expand.T @ out
        whole[self.tied] /= self.sizes[self.tied, None]
        whole[self.tied, -1] = biases[self.tied]
        return whole

    def precondition(self, basis: FeatureBasis, vector: Tensor) -> Tensor:
        mean = self._mean(vector) if self.any_tied or self.any_apart else vector
        inner = vector
        if self.any_apart:
            inner = torch.where(self.apart[:, None], vector - mean, inner)
        if self.any_tied:
            inner = torch.where(self.tied[:, None], mean, inner)
        moved = basis.precondition(self.diagonal, inner)
        if self.any_apart:
            moved = torch.where(self.apart[:, None], moved - self._mean(moved), moved)
        if self.any_tied:
            moved[:, -1] += torch.where(self.tied, (vector[:, -1] - mean[:, -1]) / self.own, 0.0)
        return moved

    def _mean(self, rows: Tensor) -> Tensor:
        """(k, d) the mean of each concept's rows."""
        members = self.members.to(rows.dtype)
        return members @ (members.T @ rows) / self.sizes[:, None].to(rows.dtype)
