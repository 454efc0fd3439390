"""The dense routines that a fit and a solve lean on: products, sums of outer products, eigenvectors.

On the CPU they go to SciPy's BLAS and LAPACK. torch has no symmetric rank-k update, so it would compute both
triangles of every sum; its eigensolver takes 10–40 % longer on the sizes of layers, and its products up to 10 %
where a bias makes a size odd.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["add_gram_", "add_product_", "multiply", "symmetric_eigen"]

_SMALL = 1 << 16
"""Numbers in a product below which calling SciPy costs more than it saves."""


@cache
def _scipy() -> Any:
    """SciPy's linear algebra, which takes a while to load, when it is first used."""
    from scipy import linalg

    return linalg


def _transposed(matrix: Tensor) -> tuple[Any, int] | None:
    """A matrix's memory as BLAS wants it, by columns, and whether that is not yet its transpose."""
    array = matrix.detach().numpy()
    if array.flags.c_contiguous:
        return array.T, 0
    return (array, 1) if array.flags.f_contiguous else None


def add_product_(total: Tensor, left: Tensor, right: Tensor, keep: float = 1.0) -> None:
    """total ← keep · total + left right. ``total`` has contiguous rows."""
    if total.device.type == "cpu" and total.is_contiguous():
        first, second = _transposed(right), _transposed(left)
        if first is not None and second is not None:
            blas = _scipy().blas
            gemm = blas.sgemm if total.dtype == torch.float32 else blas.dgemm
            # (left right)ᵀ = rightᵀ leftᵀ: by columns that is total by rows
            gemm(
                1.0,
                first[0],
                second[0],
                beta=keep,
                c=total.numpy().T,
                trans_a=first[1],
                trans_b=second[1],
                overwrite_c=1,
            )
            return
    total.addmm_(left, right, beta=keep)


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """left right, with contiguous rows."""
    if left.shape[0] * right.shape[1] < _SMALL:
        return torch.mm(left, right)
    result = torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
    add_product_(result, left, right, keep=0.0)
    return result


def add_gram_(total: Tensor, rows: Tensor) -> None:
    """Add rowsᵀ rows to the upper triangle of ``total``; what is below the diagonal is left undefined."""
    if total.device.type == "cpu" and total.is_contiguous():
        columns = _transposed(rows)
        if columns is not None:
            blas = _scipy().blas
            update = blas.ssyrk if total.dtype == torch.float32 else blas.dsyrk
            # by columns the upper triangle of the rows is the lower one
            update(1.0, columns[0], beta=1.0, c=total.numpy().T, trans=columns[1], lower=1, overwrite_c=1)
            return
    total.addmm_(rows.T, rows)


def symmetric_eigen(matrices: Tensor, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Eigenvalues (float64, negative rounding errors as 0) and eigenvectors of a batch, computed in ``dtype``.

    Only upper triangles are read. Factors of float32 layers are decomposed in float32: their sums carry float32
    rounding already, so the eigenvectors would not come nearer to the truth, only twice as slowly.
    """
    if matrices.device.type != "cpu":
        values, vectors = torch.linalg.eigh(matrices.to(dtype), UPLO="U")
        return values.double().clamp_min_(0), vectors.contiguous()
    lapack = _scipy().lapack
    solve = lapack.ssyevd if dtype == torch.float32 else lapack.dsyevd
    values = torch.empty(matrices.shape[:-1], dtype=torch.float64)
    rows = torch.empty(matrices.shape, dtype=dtype)
    for matrix, value, row in zip(matrices, values, rows, strict=True):
        row.copy_(matrix)
        found, columns, trouble = solve(row.numpy().T, lower=1, overwrite_a=1)
        if trouble != 0:  # divide and conquer did not converge; torch tries again, or says why it cannot
            again, other = torch.linalg.eigh(matrix.double(), UPLO="U")
            found, columns = again.numpy(), other.to(dtype).numpy()
        value.copy_(torch.from_numpy(found))
        row.copy_(torch.from_numpy(columns).T)  # mostly onto itself
    return values.clamp_min_(0), rows.transpose(-1, -2).contiguous()
