"""The algebra of a fitted block: a symmetric matrix known by its eigenvectors and eigenvalues.

K = (Q_Γ ⊗ Q_Ω) diag(Λ*) (Q_Γ ⊗ Q_Ω)ᵀ       (K + c)⁻¹V = Q_Γ [(Q_Γᵀ V Q_Ω) / (Λ* + c)] Q_Ωᵀ
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ecbm.curvature.layers import Layer
from ecbm.curvature.normalisation import NormalisationLayer
from ecbm.matrices import multiply, symmetric_eigen

__all__ = ["Block", "DenseBlock", "KroneckerBlock", "overlap"]


def _spread(values: Tensor) -> tuple[float, float, float]:
    low, high = values.aminmax()
    return float(low), float(values.double().mean()), float(high)


@dataclass(frozen=True)
class KroneckerBlock:
    """EK-FAC block of one layer.

    Attributes
    ----------
    left, right
        Q_Γ and Q_Ω, groups × size × size, in the layer's type.
    left_values, right_values
        Eigenvalues of Γ and Ω, float64; they give the factors back when those are to be updated.
    sums
        n Λ*, groups × outputs × columns, float64. A sum, so that samples can be added and subtracted.
    count
        n.
    positions
        T, mean number of positions a sample.
    """

    layer: Layer
    left: Tensor
    right: Tensor
    left_values: Tensor
    right_values: Tensor
    sums: Tensor
    count: int
    positions: float

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def parameters(self) -> list[str]:
        return self.layer.parameters

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Λ*, in the layer's type."""
        return (self.sums / self.count).clamp_min_(0).to(self.layer.dtype)

    @cached_property
    def spread(self) -> tuple[float, float, float]:
        """Least, mean and greatest eigenvalue."""
        return _spread(self.eigenvalues)

    @cached_property
    def rounding(self) -> float:
        """Relative size below which an eigenvalue is rounding error of the largest one.

        A direction with no curvature gets gradient components of about √d·ε of the largest, squared.
        """
        size = max(self.layer.columns, self.layer.outputs)
        return 16 * size * torch.finfo(self.layer.dtype).eps ** 2

    @cached_property
    def _plain(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Q_Γ, Q_Γᵀ, Q_Ω, Q_Ωᵀ of a layer without groups: taking views costs as much as a small product."""
        return self.left[0], self.left[0].T, self.right[0], self.right[0].T

    def rotate(self, vector: dict[str, Tensor]) -> Tensor:
        matrix = self.layer.to_matrix(vector)
        if self.layer.groups == 1:
            _, turn, right, _ = self._plain
            return multiply(multiply(turn, matrix[0]), right)[None]
        return self.left.transpose(1, 2) @ matrix @ self.right

    def rotate_back(self, matrix: Tensor) -> dict[str, Tensor]:
        if self.layer.groups == 1:
            left, _, _, back = self._plain
            return self.layer.from_matrix(multiply(multiply(left, matrix[0]), back))
        return self.layer.from_matrix(self.left @ matrix @ self.right.transpose(1, 2))

    def factor_matrices(self) -> tuple[Tensor, Tensor]:
        """(Γ, Ω), float64."""
        left, right = self.left.double(), self.right.double()
        gamma = (left * self.left_values[:, None, :]) @ left.transpose(1, 2)
        omega = (right * self.right_values[:, None, :]) @ right.transpose(1, 2)
        return gamma, omega

    def in_basis(self, left: Tensor, right: Tensor) -> Tensor:
        """n times the diagonal of this block in another Kronecker eigenbasis, float64."""
        across = (left.double().transpose(1, 2) @ self.left.double()).square()
        along = (self.right.double().transpose(1, 2) @ right.double()).square()
        return across @ self.sums @ along

    def dense(self) -> Tensor:
        """The whole matrix, parameters in the order of ``parameters``, float64. Small layers only."""
        size = math.prod(self.layer.shape) + (self.layer.shape[0] if self.layer.bias else 0)
        columns = []
        for index in range(size):
            unit = torch.zeros(size, dtype=self.layer.dtype, device=self.layer.device)
            unit[index] = 1
            split = math.prod(self.layer.shape)
            vector = {self.layer.weight: unit[:split].view(self.layer.shape)}
            if self.layer.bias is not None:
                vector[self.layer.bias] = unit[split:]
            back = self.rotate_back(self.rotate(vector) * self.eigenvalues)
            columns.append(torch.cat([back[name].reshape(-1) for name in self.parameters]).double())
        return torch.stack(columns, 1)

    def with_sums(self, sums: Tensor, count: int) -> KroneckerBlock:
        return replace(self, sums=sums, count=count)


@dataclass(frozen=True)
class DenseBlock:
    """Exact Fisher block of a normalisation layer: ``vectors`` diag(``values``) ``vectors``ᵀ, float64."""

    layer: NormalisationLayer
    vectors: Tensor
    values: Tensor
    count: int

    @staticmethod
    def from_sum(layer: NormalisationLayer, total: Tensor, count: int) -> DenseBlock:
        values, vectors = symmetric_eigen(total.double()[None] / count)
        return DenseBlock(layer, vectors[0], values[0], count)

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def parameters(self) -> list[str]:
        return self.layer.parameters

    @property
    def eigenvalues(self) -> Tensor:
        return self.values

    @cached_property
    def spread(self) -> tuple[float, float, float]:
        return _spread(self.values)

    @property
    def rounding(self) -> float:
        # formed as a matrix, not as squares in an eigenbasis: its zero eigenvalues are of size ε, not ε²
        return 4 * torch.finfo(self.layer.dtype).eps

    def sum_matrix(self) -> Tensor:
        return (self.vectors * (self.values * self.count)) @ self.vectors.T

    def rotate(self, vector: dict[str, Tensor]) -> Tensor:
        return self.vectors.T @ self.layer.to_row(vector).double()

    def rotate_back(self, row: Tensor) -> dict[str, Tensor]:
        return self.layer.from_row((self.vectors @ row.double()).to(self.layer.dtype))

    def dense(self) -> Tensor:
        return (self.vectors * self.values) @ self.vectors.T


Block = KroneckerBlock | DenseBlock


def overlap(first: Block, second: Block) -> tuple[float, float, float]:
    """(|A|², ⟨A, B⟩, |B|²) in the Frobenius norm, without forming the matrices A and B.

    ⟨QΛQᵀ, PMPᵀ⟩ = Σ Λ_ab (Q_Γᵀ P_Γ)²_ac (Q_Ωᵀ P_Ω)²_bd M_cd.
    """
    if isinstance(first, KroneckerBlock) and isinstance(second, KroneckerBlock):
        mine = first.sums / first.count
        other = second.sums / second.count
        moved = second.in_basis(first.left, first.right) / second.count
        inner = (mine * moved).sum()
        return float(mine.square().sum()), float(inner), float(other.square().sum())
    one, two = first.dense(), second.dense()
    return float(one.square().sum()), float((one * two).sum()), float(two.square().sum())
