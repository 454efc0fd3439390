"""What makes the solves of the heads short: approximate inverses of their Hessians.

Concept heads share their features, so one eigenbasis Q of XᵀX/n serves all of them: in it the diagonal of every
Hessian is one matrix product (EK-FAC of the head). Where the L2 term is weak the exact inverse within the leading
directions joins it. The label head's Hessian is dominated by its diagonal blocks, one a class.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import torch
from torch import Tensor

from ecbm.matrices import add_gram_

__all__ = ["FeatureBasis", "apply_blocks", "class_blocks", "fits_class_blocks", "invert_blocks"]

# Exact class blocks cost d/4 Hessian products; beyond this width the shared eigenbasis is the better buy.
_WIDEST_CLASS_BLOCK = 400
_CLASS_BLOCK_BYTES = 2**30
# A sample whose curvature is below this share of its class's largest one is left out of the block.
_FELT = 1e-3
_MOST_LEADING = 256


@dataclasses.dataclass(frozen=True)
class FeatureBasis:
    """Eigenbasis of the second moment XᵀX/n of a design, which may be that of slightly other samples.

    Attributes
    ----------
    vectors
        (d, d) float32, in ascending order of the eigenvalues.
    design
        (n, d) float32: the design whose curvature is asked for.
    largest
        An upper bound on the largest eigenvalue of the design's own second moment; infinite where none is known.
    """

    vectors: Tensor
    design: Tensor
    largest: float = math.inf

    @classmethod
    def of(cls, design: Tensor) -> FeatureBasis:
        values, vectors = torch.linalg.eigh(design.T @ design / len(design))
        # By rows, as it would be read from a file: products round by how their factors lie in memory.
        return cls(vectors.float().contiguous(), design.float(), float(values[-1]))

    def for_design(self, design: Tensor) -> FeatureBasis:
        """The same basis for other samples: a preconditioner may be off a little."""
        return FeatureBasis(self.vectors, design.float())

    @property
    def work(self) -> int:
        """What finding it takes, in products of one row with the design and back: the Gram matrix in float64, its
        eigenvectors, and the rotated squares.
        """
        rows, width = self.design.shape
        return round(1.5 * width + 4.5 * width**2 / rows)

    @cached_property
    def squares(self) -> Tensor:
        """(XQ)²: from it the Hessian's diagonal in this basis is one matrix product."""
        return (self.design @ self.vectors).square_()

    def diagonal(self, curvature: Tensor, l2: float) -> Tensor:
        """Diagonal of QᵀHQ + l2 for every row: curvature is (n, rows), already divided by n."""
        return (curvature.float().T @ self.squares).add_(l2)

    def precondition(self, diagonal: Tensor, vector: Tensor, leading: Tensor | None = None) -> Tensor:
        """Q D⁻¹ Qᵀ vector, with the exact inverse ``leading`` (rows, m, m) on the m largest directions if given."""
        rotated = vector.float() @ self.vectors
        scaled = rotated / diagonal
        if leading is not None:
            count = leading.shape[1]
            scaled[:, -count:] = apply_blocks(leading, rotated[:, -count:])
        return (scaled @ self.vectors.T).to(vector.dtype)

    def felt(self, l2: float, share: float, most: int) -> int:
        """How many leading directions may have more curvature than a ``share`` of the L2 term."""
        return int((0.25 * self.squares.mean(0) > share * l2).sum().clamp(1, most))

    def leading_inverses(self, curvature: Tensor, l2: float, count: int | None = None) -> Tensor:
        """(k, m, m): inverse of each concept's Hessian within ``count`` directions (or all that feel the L2).

        What is left out is dominated by the L2 term, so with these a warm-started solve needs a few products.
        ``curvature`` is (n, k).
        """
        count = self.felt(l2, 0.1, _MOST_LEADING) if count is None else count
        rotated = self.design @ self.vectors[:, -count:]
        roots = curvature.float().sqrt()
        blocks = torch.zeros(curvature.shape[1], count, count)
        for index in range(len(blocks)):
            add_gram_(blocks[index], rotated * roots[:, index, None])
        # upper triangles are there, and the Cholesky decomposition reads lower ones
        return invert_blocks(blocks.mT, l2).contiguous()


def fits_class_blocks(classes: int, width: int) -> bool:
    """Whether exact class blocks are worth their cost and memory."""
    return width <= _WIDEST_CLASS_BLOCK and 4 * classes * width * width <= _CLASS_BLOCK_BYTES


def class_blocks(design: Tensor, curvature: Tensor) -> Tensor:
    """(classes, d, d): Σ_i c_ic b_i b_iᵀ for every class, float32, without the L2 term.

    A class feels few samples once the model knows most of them; the others are left out of its block.
    """
    felt = curvature > _FELT * curvature.amax(0)
    classes, width = curvature.shape[1], design.shape[1]
    blocks = torch.empty(classes, width, width)
    for index in range(classes):
        rows = felt[:, index].nonzero().flatten()
        part = design[rows]
        torch.mm(part.T * curvature[rows, index], part, out=blocks[index])
    return blocks


def apply_blocks(blocks: Tensor, vectors: Tensor) -> Tensor:
    """Symmetric (rows, d, d) times (rows, d). Vectors stand on the left: on the CPU the other side takes ten times
    as long.
    """
    return torch.bmm(vectors[:, None, :], blocks)[:, 0]


def invert_blocks(blocks: Tensor, l2: float) -> Tensor:
    """(blocks + l2)⁻¹; where rounding leaves one indefinite, a little more of the identity is added."""
    shifted = blocks.clone()
    shifted.diagonal(dim1=1, dim2=2).add_(l2)
    factors, status = torch.linalg.cholesky_ex(shifted)
    if bool((status != 0).any()):
        largest = shifted.diagonal(dim1=1, dim2=2).amax(1)[:, None]
        shifted.diagonal(dim1=1, dim2=2).add_(1e-4 * largest)
        factors = torch.linalg.cholesky(shifted)
    return torch.cholesky_inverse(factors)
