"""⟨v, (G + l2) v⟩ with the Gauss–Newton matrix G, by two forward passes."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ecbm.curvature.ekfac import Vector
from ecbm.curvature.losses import Loss
from ecbm.curvature.sources import InputSource, Source

__all__ = ["gauss_newton_quadratic"]

# The difference is taken over this part of the parameters' own length on either side: far above float32's rounding
# and below the network's curvature. Against the dense matrix it is right to a part in a few hundred.
_PART = 1e-4


def gauss_newton_quadratic(
    module: nn.Module,
    inputs: Tensor | InputSource,
    loss: Loss,
    vector: Vector,
    *,
    l2: float = 0.0,
    batch_size: int = 128,
) -> float:
    """The curvature of (1/n) Σ ℓ_i + (l2/2)|θ|² along ``vector``, Gauss–Newton's, at the module's parameters.

    Along v the logits move by u = Jv, and G's part is (1/n) Σ uᵀ∇²ℓ u: only u is needed, a central difference of
    logits. That serves every module. Forward-mode derivatives of a convolution take eight times as long on a
    processor, a product with G more, and neither knows every layer.
    """
    source, length = Source(inputs, module), _norm(vector)
    if length == 0:
        return 0.0
    size = math.sqrt(sum(float(p.detach().double().square().sum()) for p in module.parameters()))
    part = _PART * (size + _PART) / length
    ahead, behind = _moved(module, vector, part), _moved(module, vector, -part)
    total = 0.0
    for start in range(0, len(source), batch_size):
        rows = range(start, min(start + batch_size, len(source)))
        x = source.read(rows)
        with torch.no_grad():
            one, other = ahead(x).double(), behind(x).double()
        along = (one - other) / (2 * part)
        total += _bend(loss, (one + other) / 2, along, torch.arange(rows.start, rows.stop))
    return total / len(source) + l2 * length**2


def _norm(vector: Vector) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in vector.values()))


def _moved(module: nn.Module, vector: Vector, part: float) -> nn.Module:
    there = copy.deepcopy(module).eval()
    with torch.no_grad():
        for name, value in vector.items():
            there.get_parameter(name).add_(value, alpha=part)
    return there


def _bend(loss: Loss, logits: Tensor, along: Tensor, rows: Tensor) -> float:
    """Σ uᵀ∇²ℓ u over a batch."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        slope = torch.autograd.grad(loss.values(leaf, rows).sum(), leaf, create_graph=True)[0]
        turned = torch.autograd.grad((slope * along).sum(), leaf)[0]
    return float((turned * along).sum())
