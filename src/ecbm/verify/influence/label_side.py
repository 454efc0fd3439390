"""The label head on its training inputs: division by its Hessian, and how its optimum follows its inputs."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.train.heads.label import divide_by_hessian
from ecbm.train.heads.newton import conjugate_gradients
from ecbm.train.heads.objectives import LabelObjective, label_residual, rows_of, with_ones
from ecbm.train.heads.precondition import invert_blocks
from ecbm.train.terms import label_targets

__all__ = ["LabelSide"]

_RESIDUAL = 1e-5
# The largest Hessian that is inverted as a whole.
_WHOLE = 1500


class LabelSide:
    """J_Y at the model. Everything is computed on first use and kept.

    Attributes
    ----------
    design, labels
        (n, k + 1) inputs of the label head with ones, and what J_Y is over.
    head
        (classes, k + 1).
    residual
        (n, classes) ∂ℓ_i/∂l_i.

    Parameters
    ----------
    state
        The model on its data.
    head
        Another head than the model's.
    """

    def __init__(self, state: EditorState, head: Tensor | None = None) -> None:
        self._state, recipe = state, state.model.recipe
        self.head = rows_of(state.model.label_head) if head is None else head
        self.l2, self.l1 = recipe.label_regularisation, recipe.label_l1 or 0.0
        self.labels = label_targets(state.train, state.model.target_scaling)

    @cached_property
    def design(self) -> Tensor:
        return with_ones(self._state.bottleneck)

    @cached_property
    def residual(self) -> Tensor:
        return label_residual(self.design @ self.head.T, self.labels)

    @cached_property
    def chances(self) -> Tensor:
        """(n, classes) probabilities; of numbers, their outputs."""
        outputs = self.design @ self.head.T
        return outputs if self.labels.is_floating_point() else torch.softmax(outputs, 1)

    @cached_property
    def _inverses(self) -> Tensor | None:
        blocks = self._state.label_blocks
        return None if blocks is None else invert_blocks(blocks, self.l2)

    @cached_property
    def _ridge(self) -> Tensor:
        matrix = self.design.T @ self.design / len(self.design)
        matrix.diagonal().add_(self.l2)
        root: Tensor = torch.linalg.cholesky(matrix)
        return root

    @cached_property
    def support(self) -> Tensor:
        """(classes, k + 1) which parameters move: all, or of a sparse head those that are not 0, and biases."""
        support = torch.ones_like(self.head, dtype=torch.bool)
        if self.l1:
            support[:, :-1] = self.head[:, :-1] != 0
        return support

    @cached_property
    def whole_inverse(self) -> Tensor | None:
        """H⁻¹ over all classes at once, where it is small; weights outside :attr:`support` are left out of it."""
        size, count = self.head.numel(), len(self.design)
        if size > _WHOLE:
            return None
        classes, width = self.head.shape
        rows = torch.zeros(classes, width, classes, width, dtype=torch.float64)
        for c in range(classes):
            turn = torch.ones_like(self.chances)
            if not self.labels.is_floating_point():
                turn = -self.chances[:, c : c + 1] * self.chances
                turn[:, c] += self.chances[:, c]
            for d in range(c, classes):
                rows[c, :, d] = (self.design * (turn[:, d : d + 1] / count)).T @ self.design
                rows[d, :, c] = rows[c, :, d]  # both are symmetric
        matrix = rows.view(size, size)
        matrix.diagonal().add_(self.l2)
        still = (~self.support).flatten().nonzero().flatten()
        matrix[still] = matrix[:, still] = 0.0
        matrix[still, still] = 1.0
        inverse: Tensor = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        return inverse

    def solve(self, vector: Tensor) -> Tensor:
        """H⁻¹ vector (classes, k + 1). A sparse head has the Hessian of the weights that are not 0."""
        if self.whole_inverse is not None:
            moved = self.whole_inverse @ (vector * self.support).flatten()
            return moved.view_as(vector)
        if self.l1:
            return self._solve_on_support(vector)
        if self.labels.is_floating_point():
            return torch.cholesky_solve(vector.T, self._ridge).T
        return divide_by_hessian(
            self.design, self.labels, self.head, self.l2, vector, inverses=self._inverses, residual=_RESIDUAL
        )[0]

    def _solve_on_support(self, vector: Tensor) -> Tensor:
        objective, mask = LabelObjective(self.design, self.labels, None, self.l2), self.support.double()
        diagonal = objective.curvature(self.chances).T.expand(len(self.head), -1) @ self.design.square() + self.l2
        found = conjugate_gradients(
            lambda part, _: objective.product(self.design, self.chances, part * mask) * mask,
            lambda part, _: part * mask / diagonal,
            vector * mask,
            torch.full((len(vector),), 1e-8, dtype=torch.float64),
            together=True,
        )
        return found.solution

    def turned(self, moves: Tensor) -> Tensor:
        """(n, classes): the change of ∂ℓ_i/∂l_i along changes of the outputs, the second derivative times them."""
        if self.labels.is_floating_point():
            return moves
        weighted = self.chances * moves
        return weighted - self.chances * weighted.sum(1, keepdim=True)

    def by_inputs(self, solved: Tensor) -> Tensor:
        """(n, k) n ∂⟨u, ∇J_Y⟩/∂b_i for u = ``solved``: how the optimum turns with the inputs it is fitted on."""
        weights, along = self.head[:, :-1], solved[:, :-1]
        return self.residual @ along + self.turned(self.design @ solved.T) @ weights
