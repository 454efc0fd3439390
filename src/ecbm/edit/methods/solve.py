"""(H + δ)⁻¹ times a vector with an exact operator: by factoring a small H, by conjugate gradients otherwise."""

from __future__ import annotations

from typing import Any

import torch

from ecbm.curvature import EKFAC, ExactOperator, Vector
from ecbm.errors import InputError

__all__ = ["DENSE", "mean_eigenvalue", "size_of", "solve_exactly"]

# Up to this many parameters the whole matrix is built; it costs as many Hessian products.
DENSE = 400
_CG_ITERATIONS = 50
_CG_TOLERANCE = 1e-4


def solve_exactly(
    operator: ExactOperator, change: Vector, damping: float, preconditioner: EKFAC | None
) -> tuple[Vector, dict[str, Any]]:
    """The solution, and how it was found; a matrix that is not positive definite is refused."""
    if size_of(change) <= DENSE:
        shifted = operator.dense().double()
        shifted.diagonal().add_(damping)
        factor, trouble = torch.linalg.cholesky_ex(shifted)
        if int(trouble) != 0:
            raise InputError(f"the Hessian with damping {damping:g} is not positive definite")
        flat = torch.cat([change[name].reshape(-1) for name in operator.names]).double()
        parts = torch.cholesky_solve(flat[:, None], factor)[:, 0].split([change[n].numel() for n in operator.names])
        named = zip(operator.names, parts, strict=True)
        return {n: part.view_as(change[n]).to(change[n].dtype) for n, part in named}, {"solver": "dense"}
    solution = operator.solve(
        change, damping, preconditioner=preconditioner, tolerance=_CG_TOLERANCE, iterations=_CG_ITERATIONS
    )
    figures = {"cg iterations": solution.iterations, "cg residual": solution.residual}
    return solution.vector, {"solver": "conjugate gradients", **figures}


def size_of(change: Vector) -> int:
    """The number of parameters."""
    return sum(value.numel() for value in change.values())


def mean_eigenvalue(curvature: EKFAC) -> float:
    """Over the layers, each counted once."""
    means = curvature.mean_eigenvalues()
    return sum(means.values()) / len(means)
