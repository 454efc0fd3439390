"""Σ_i (Q_Γᵀ G_i Q_Ω)², the eigenvalue correction, by the cheapest of three exact ways.

With S_t = Q_Γᵀ s_t and A_t = Q_Ωᵀ a_t at the positions t of a sample, the rotated gradient is Σ_t S_t A_tᵀ.

- ``pairs``: multiplying out the square,
      Σ_i (Σ_t S_ta A_tb)² = Σ_{t ≤ u} (2 − [t = u]) Σ_i (S_ta S_ua)(A_tb A_ub),
  which is one matrix product over samples and pairs of positions; no sample's own matrix is formed. With one
  position it is the product of squares that linear layers have.
- ``positions``: rotate inputs and gradients, form every sample's matrix, square and add.
- ``gradients``: form every sample's gradient first (for convolutions without unfolding) and rotate that.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ecbm.matrices import add_product_

__all__ = ["Way", "add_pairs_", "add_products_", "cheapest_way"]

Way = Literal["pairs", "positions", "gradients"]

_TOUCH = 40
"""Writing a number of a sample's matrix, squaring and adding it, in multiplications of a matrix product."""


_CACHED_ELEMENTS = 1 << 20


def cheapest_way(positions: int, outputs: int, columns: int) -> Way:
    """The least arithmetic for a sample with so many positions and a gradient of outputs × columns."""
    size = outputs * columns
    rotations = positions * (columns**2 + outputs**2)
    own = (positions + _TOUCH) * size
    costs: dict[Way, int] = {
        "pairs": rotations + positions * (positions + 1) // 2 * size,
        "positions": rotations + own,
        "gradients": own + size * (outputs + columns),
    }
    return min(costs, key=costs.__getitem__)


def add_pairs_(total: Tensor, outputs: Tensor, inputs: Tensor) -> None:
    """Add to ``total``, groups × outputs × columns; the arguments are groups × samples × positions × size.

    With one position ``outputs`` and ``inputs`` are squared in place.
    """
    positions = outputs.shape[2]
    if positions == 1:
        left, right = outputs.square_(), inputs.square_()
    else:
        first, second = torch.triu_indices(positions, positions, device=outputs.device)
        left, right = outputs[:, :, first] * outputs[:, :, second], inputs[:, :, first] * inputs[:, :, second]
        left *= (1.0 + (first != second).to(left.dtype))[:, None]
    left, right = left.flatten(1, 2), right.flatten(1, 2)
    if len(total) == 1:
        add_product_(total[0], left[0].T, right[0])
    else:
        total.baddbmm_(left.transpose(1, 2), right)


def add_products_(total: Tensor, outputs: Tensor, inputs: Tensor) -> None:
    """:func:`add_pairs_` by every sample's own matrix, as many at once as stay in the processor's cache."""
    step = max(1, _CACHED_ELEMENTS // total.numel())
    for left, right in zip(outputs.split(step, 1), inputs.split(step, 1), strict=True):
        total += torch.matmul(left.transpose(2, 3), right).square_().sum(1)
