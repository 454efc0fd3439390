"""What preconditions concept heads near their optimum: their own Hessian where it is large, a number elsewhere.

In the eigenbasis of the features most directions are felt less than the L2 term. The inverse Hessian within the
others, the leading ones, is kept for every concept; orthogonal to them a head's Hessian is about the L2 plus the
mean curvature that is left. When samples go or come, the kept inverses follow by a low-rank correction (Woodbury),
for a group of samples may be most of what a direction feels.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.train.convex import apply_blocks

__all__ = ["LeadingInverses"]

# A correction costs as much as building the inverses anew when it has as many rows as they have.
_MOST_ROWS = 256


@dataclasses.dataclass(frozen=True)
class LeadingInverses:
    """Approximate inverse Hessians of k concepts.

    Attributes
    ----------
    vectors
        (d, m) leading eigenvectors of the features, float32.
    inverses
        (k, m, m) inverse Hessians within them, L2 included.
    rest
        (k,) what stands for the Hessian orthogonal to them.
    """

    vectors: Tensor
    inverses: Tensor
    rest: Tensor

    def of(self, concepts: Tensor) -> LeadingInverses:
        """Those of some concepts."""
        if torch.equal(concepts, torch.arange(len(self.rest))):
            return self
        return LeadingInverses(self.vectors, self.inverses[concepts], self.rest[concepts])

    def apply(self, gradients: Tensor) -> Tensor:
        """H⁻¹ gradients, (k, d) float32."""
        leading = gradients @ self.vectors
        scale = 1 / self.rest[:, None]
        own = apply_blocks(self.inverses, leading).addcmul_(leading, scale, value=-1.0)
        return torch.addcmul(own @ self.vectors.T, gradients, scale)

    def after(self, rows: Tensor, curvature: Tensor, sign: int) -> LeadingInverses:
        """The inverses when samples with these feature rows (r, d) and curvature (k, r) come or go.

        H' = H ± V Vᵀ  ⇒  H'⁻¹ = H⁻¹ ∓ H⁻¹V (I ± VᵀH⁻¹V)⁻¹ VᵀH⁻¹. Left as they are where that is not worth its cost
        or rounding makes it indefinite: a preconditioner may be off.
        """
        count = len(rows)
        if count == 0 or count > _MOST_ROWS:
            return self
        factors = (rows @ self.vectors).T * curvature.sqrt()[:, None, :]
        moved = torch.bmm(self.inverses, factors)
        inner = (
            torch.eye(count)
            .expand(len(curvature), -1, -1)
            .baddbmm(factors.transpose(1, 2), moved, alpha=float(sign))
        )
        root, trouble = torch.linalg.cholesky_ex(inner)
        if bool((trouble != 0).any()):
            return self
        half = torch.linalg.solve_triangular(root, moved.transpose(1, 2), upper=False)
        inverses = torch.baddbmm(self.inverses, half.transpose(1, 2), half, alpha=-float(sign))
        return dataclasses.replace(self, inverses=inverses)
