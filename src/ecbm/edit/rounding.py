"""What rounding can add to a gradient that was computed in float64, proven (docs/method.md, "The certificate").

A sum of m products is off by at most γ_m = m u / (1 − m u) times the sum of their sizes, in whatever order it is
made (Higham 2002, section 3.1); u is 2⁻⁵³. Sums over samples are made in pieces
(:func:`~ecbm.train.heads.objectives.add_up`), so that m is hundreds and not the number of samples.
"""

from __future__ import annotations

import math

from torch import Tensor

from ecbm.train.heads.objectives import longest_sum

__all__ = ["UNIT", "gamma", "label_rounding", "sum_rounding"]

UNIT = 2.0**-53
# A sigmoid or softmax of given logits is off by a few units: one each for the exponential, sum and quotient, and
# what a difference to the largest logit is off by, times the probability. This is twice that or more.
_ACTIVATION = 16.0


def gamma(operations: float) -> float:
    """γ_m: how far, relative to the sum of sizes, a sum of so many products can be off."""
    share = operations * UNIT
    return share / (1 - share) if share < 0.5 else float("inf")


def sum_rounding(residuals: Tensor, weights: Tensor, count: int) -> Tensor:
    """(k,): bound on the error of Σ_i r_ij x̃_i / n for given logits: of the sum, and of the residuals themselves.

    Parameters
    ----------
    residuals, weights
        (k,) Σ_i |r_ij| |x̃_i| of residuals as they were computed, and Σ_i w_ij |x̃_i| of the weights of their terms.
    count
        n.
    """
    return (gamma(longest_sum(count) + 4) * residuals + _ACTIVATION * UNIT * (residuals + weights)) / count


def label_rounding(residual: Tensor, lengths: Tensor, head_size: float, width: int, turning: float) -> float:
    """Bound on the error of ∇J_Y as computed from the bottleneck: of its logits, residuals and sums.

    Parameters
    ----------
    residual
        (n, classes) softmax minus class, or number minus label.
    lengths
        (n,) norms of b̃_i.
    head_size, width
        |Φ| (Frobenius, with biases) and the number of bottleneck values, with the one.
    turning
        How fast a residual turns with its logits.
    """
    count = max(len(lengths), 1)
    size = residual.norm(dim=1)
    summed = float(lengths @ size) * (gamma(longest_sum(count) + 4) + _ACTIVATION * UNIT)
    own = _ACTIVATION * UNIT * math.sqrt(residual.shape[1]) * float(lengths.sum())
    logits = turning * gamma(width + 1) * head_size * float(lengths.square().sum())
    return (summed + own + logits) / count + 4 * UNIT * head_size
