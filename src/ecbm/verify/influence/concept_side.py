"""The concept head on its training features: division by its exact Hessian, for concepts of every type."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.train.heads.activations import activate, activation_gradient, tie
from ecbm.train.heads.newton import conjugate_gradients
from ecbm.train.heads.objectives import concept_curvature, concept_residual, rows_of, weighted_product

__all__ = ["ConceptSide"]

# A round is made in float32; what it leaves of the residual, computed in float64, is the next round's.
_ROUND, _ROUNDS = 3e-5, 3
# Hessians of independent concepts are factored once where building them takes at most so many multiplications
# (about a second) and they hold at most so many numbers: questions then take no iterations.
_DENSE_WORK, _DENSE_SIZE = 3e9, 4e6


class ConceptSide:
    """J_C at the model, given features. Everything is computed on first use and kept.

    Attributes
    ----------
    head
        (k, d) parameters, bias last.
    l2
        α.

    Parameters
    ----------
    state
        The model on its data.
    like
        The same on nearly the same samples: what preconditions it, preconditions this.
    """

    def __init__(self, state: EditorState, like: ConceptSide | None = None) -> None:
        self._state, self._like = state, like
        self.head, self.l2 = rows_of(state.model.concept_head), state.concept_l2
        self.layout = None if state.model.layout.plain else state.model.layout

    @property
    def design(self) -> Tensor:
        return self._state.design

    @cached_property
    def residual(self) -> Tensor:
        """(n, k) ∂ℓ_ij/∂z_ij."""
        terms = self._state.terms
        return concept_residual(self._state.logits, terms.targets.double(), terms.weights.double(), terms.layout)

    @cached_property
    def _curvature(self) -> Tensor:
        """(k, n), divided by n."""
        curvature = concept_curvature(self._state.logits, self._state.terms.weights.double(), self.layout)
        return curvature.T.div_(len(self.design)).contiguous()

    @cached_property
    def _single(self) -> Tensor:
        return self._curvature.float()

    @cached_property
    def _diagonal(self) -> Tensor:
        if self._like is not None:
            return self._like._diagonal
        return self._state.basis.diagonal(self._single.T, self.l2)

    @cached_property
    def _values(self) -> Tensor:
        return activate(self._state.logits, self.layout)

    @cached_property
    def _owners(self) -> bool | Tensor:
        return False if self.layout is None else torch.tensor(self.layout.owner)

    @cached_property
    def _factors(self) -> Tensor | None:
        """(k, d, d) Cholesky factors of all Hessians, where they are independent and small."""
        (rows, width), count = self.design.shape, len(self.head)
        size = count * width * width
        if self.layout is not None or size > _DENSE_SIZE or rows * size > _DENSE_WORK:
            return None
        blocks = torch.stack([(self.design.T * part) @ self.design for part in self._curvature])
        blocks.diagonal(dim1=1, dim2=2).add_(self.l2)
        factors: Tensor = torch.linalg.cholesky(blocks)
        return factors

    def multiply(self, vector: Tensor, active: Tensor | None = None) -> Tensor:
        """H vector, in its precision; ``active`` are the rows it has, all by default."""
        single = vector.dtype == torch.float32
        design = self._state.basis.design if single else self.design
        if self.layout is None:
            curvature = self._single if single else self._curvature
            curvature = curvature if active is None or len(active) == len(curvature) else curvature[active]
            return weighted_product(design, curvature, vector).add_(vector, alpha=self.l2)
        whole = vector
        if active is not None and len(active) < len(self.head):
            whole = vector.new_zeros(len(self.head), vector.shape[1])
            whole[active] = vector
        shares = (self._state.terms.weights / len(design)).to(vector.dtype)
        back = activation_gradient(self._values.to(vector.dtype), design @ whole.T, self.layout).mul_(shares)
        product = tie((back.T @ design).add_(whole, alpha=self.l2), self.layout)
        return product if active is None else product[active]

    def solve(self, vector: Tensor, tolerance: float = 1e-6) -> Tensor:
        """H⁻¹ vector (k, d) to a relative residual for every concept; rows of an ordinal one stay tied."""
        if self._factors is not None:
            return torch.cholesky_solve(vector[:, :, None], self._factors)[:, :, 0]
        vector = tie(vector, self.layout)
        sizes = vector.norm(dim=1).clamp_min(1e-300)
        basis, leading = self._state.basis, self._state.leading

        def precondition(part: Tensor, active: Tensor) -> Tensor:
            if self.layout is None:
                return basis.precondition(self._diagonal[active], part, leading[active])
            whole = part.new_zeros(len(self.head), part.shape[1])
            whole[active] = part
            return tie(basis.precondition(self._diagonal, whole), self.layout)[active]

        solution, left = torch.zeros_like(vector), vector
        for _ in range(_ROUNDS):
            norms = left.norm(dim=1)
            if not bool((norms > tolerance * sizes).any()):
                break
            scale = norms.clamp_min(1e-300)[:, None]
            # A row is solved no better than is asked of it in all; what has arrived leaves at once.
            limit = (tolerance * sizes / scale[:, 0]).clamp(_ROUND, 1.0).float()
            found = conjugate_gradients(self.multiply, precondition, (left / scale).float(), limit, self._owners)
            solution = solution + found.solution.double() * scale
            if tolerance >= _ROUND:
                break
            left = vector - self.multiply(solution)
        return solution
