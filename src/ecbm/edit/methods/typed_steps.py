"""EK-FAC's step on frozen features for concepts whose rows belong together, in expectation over the drawn targets.

Rows of binary and continuous concepts are independent, so their Γ is diagonal. Those of a categorical concept have
Γ = (1/n) Σ_i w_i (diag(q_i) − q_i q_iᵀ): with its eigenvectors U the corrected eigenvalues are

    Λ*_ab = (1/n) Σ_i w_i Var_{c ~ q_i}(U_ca) (x̃_i · v_b)²

Rows of an ordinal concept share their slope, which feels the mean of the thresholds' curvatures; each threshold
also feels its own (docs/method.md, "Concepts of other types").
"""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.train.heads.precondition import FeatureBasis

__all__ = ["categorical_step", "ordinal_step"]


def categorical_step(
    rows: Tensor, logits: Tensor, weights: Tensor, basis: FeatureBasis, count: int, l2: float, damping: float
) -> Tensor:
    """The step of one categorical concept: gradient ``rows`` (m, d), logits (m, n), weights (n,)."""
    q = torch.softmax(logits.double(), 0)
    weighted = q * weights / count
    _, axes = torch.linalg.eigh(torch.diag(weighted.sum(1)) - weighted @ q.T)
    spread = axes.square().T @ q - (axes.T @ q).square()
    diagonal = basis.diagonal((spread.clamp_min(0) * weights / count).T, l2)
    step: Tensor = axes @ basis.precondition(diagonal + damping, axes.T @ rows)
    return step


def ordinal_step(rows: Tensor, curvature: Tensor, basis: FeatureBasis, l2: float, damping: float) -> Tensor:
    """The step of one ordinal concept: tied gradient ``rows`` (m, d), curvature of its thresholds (m, n) over n."""
    common = rows.mean(0, keepdim=True)
    diagonal = basis.diagonal(curvature.mean(0)[:, None], l2)
    step = basis.precondition(diagonal + damping, common).expand(len(rows), -1).clone()
    own = curvature.double().sum(1) + l2 + damping
    step[:, -1] += ((rows[:, -1] - common[:, -1]) / own).to(step.dtype)
    return step
