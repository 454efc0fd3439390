"""How far a concept head is from the retrained one, and what that does to the label head's gradient
(docs/method.md, "The certificate").

The distance Δ of a concept's rows to their optimum is H̄⁻¹∇, with H̄ = (1/n) Σ_i w_i M̄_i ⊗ x̃_i x̃_iᵀ + α the mean
Hessian on the way and M the derivative of the activations by the logits. So with δ_i = x̃_i Δ, which is what its
logits are off by on training samples,

    (1/n) Σ_i w_i δ_iᵀ M̄_i δ_i + α|Δ|²  =  ∇ᵀ H̄⁻¹ ∇  ≤  E²,        E = |∇| / √α

and, because (1/n) Σ_i |δ_i|² ≤ (|X̃|₂² / n) |Δ|²,

    (1/n) Σ_i (c_i + τ) |δ_i|² ≤ E²,        τ = α n / |X̃|₂²,  c_i the least eigenvalue of w_i M̄_i.

Where a concept is in doubt its error cannot be large on many samples: |Δ| ≤ |∇| / α alone does not see that.
Rounding η_i of a computed logit reaches the gradient as X̃ᵀ(w M η)/n, and |H̄^-½ X̃ᵀ(w M)^½| ≤ √n: it adds
√(Σ_i w_i η_iᵀ M η_i / n) to E, not its own norm over √α.

Moving b_i by δ_i moves ∇J_Y by the mean of δ_i ⊗ (p_i − e_y) + b̃_i ⊗ S_i Φ δ_i, S = diag(p) − p pᵀ, and terms of
second order. By Cauchy's inequality that is at most, summed over the concepts c,

    Σ_c E_c √( (1/n) Σ_i (|p_i − e_y| + |S_i Φ_c| |b̃_i|)² / (c_i + τ) )
        + (1/n) Σ_i |δ_i|² |Φ|₂ ( ½ + ½ |Φ|₂ (|b̃_i| + |δ_i|) )

A sample whose class is certain has no S_i, and one whose concept is in doubt has a large c_i.

Between two points whose logits differ by t (range of the difference) M is within e^±t of M at either, since for
third cumulants |E[(u − Eu)(v − Ev)²]| ≤ range(u) Var(v).
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.edit.rounding import UNIT, gamma, sum_rounding
from ecbm.read.concept_types import Concept
from ecbm.train.heads.activations import activate, activation_curvature
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

__all__ = ["ConceptError", "concept_error", "label_gradient_change"]

_ROWS_AT_ONCE = 8192
# The largest eigenvalue of M: a sigmoid's, a softmax's, and that of values which are read as they are.
_STEEPEST = {"binary": 0.25, "ordinal": 0.25, "categorical": 0.5, "continuous": 1.0}
# Sums of positive numbers that make a bound are themselves rounded; this is more than they can lose.
_SLACK = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class ConceptError:
    """Bounds for every concept.

    Attributes
    ----------
    distance
        |Δ| of its rows.
    energy
        E.
    rounding
        η_i / |x̃_i|: by how much a computed logit can be off.
    turn
        e^t: how much the curvature of a sample can differ between the head, its optimum, and computed logits.
        Infinite where the head is so far off that this says nothing.
    """

    distance: Tensor
    energy: Tensor
    rounding: Tensor
    turn: Tensor


def _turn(apart: Tensor) -> Tensor:
    return torch.where(apart <= 1, apart.exp(), math.inf)


def _by_concept(columns: Tensor, concepts: tuple[Concept, ...]) -> Tensor:
    """Norms over the columns of each concept: (…, k) becomes (…, concepts)."""
    if all(len(concept.columns) == 1 for concept in concepts):
        return columns[..., [concept.columns[0] for concept in concepts]].abs()
    return torch.stack([columns[..., list(concept.columns)].norm(dim=-1) for concept in concepts], -1)


def _highest(columns: Tensor, concepts: tuple[Concept, ...]) -> Tensor:
    return torch.stack([columns[:, list(concept.columns)].amax(1) for concept in concepts], 1)


def _felt(curvature: Tensor, weights: Tensor, concepts: tuple[Concept, ...]) -> Tensor:
    """(rows, concepts): the least eigenvalue of w M. A softmax does not feel what its logits share."""
    own = curvature * weights
    return torch.stack(
        [
            own.new_zeros(len(own))
            if concept.type == "categorical"
            else own[:, concept.columns[0]]
            if len(concept.columns) == 1
            else own[:, list(concept.columns)].amin(1)
            for concept in concepts
        ],
        1,
    )


def concept_error(
    model: ConceptBottleneck,
    sizes: Tensor,
    logits: Tensor,
    terms: ConceptTerms,
    gradient: Tensor,
    fixed: bool = False,
) -> ConceptError:
    """Bound a concept head's distance to its optimum, rounding included.

    Parameters
    ----------
    model
        With the head.
    sizes
        (n,) norms of the training features with ones.
    logits, terms
        (n, k) the head's logits there, as they were computed, and targets and weights.
    gradient
        (k, d) ∇J_C, computed from these logits.
    fixed
        True where the head is given and not solved (the joint regime): then only its logits' rounding is left.
    """
    concepts, alpha, count = model.layout.concepts, model.recipe.concept_regularisation, max(len(sizes), 1)
    largest = float(sizes.max()) if len(sizes) else 0.0
    head = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach().double()
    head_size = _by_concept(head.norm(dim=1), concepts)
    off = gamma(head.shape[1] + 1) * head_size
    if fixed:
        zero = torch.zeros_like(off)
        return ConceptError(zero, zero, off, _turn(2 * largest * off))
    steepest = torch.tensor([_STEEPEST[concept.type] for concept in concepts], dtype=torch.float64)
    residuals = torch.zeros(logits.shape[1], dtype=torch.float64)
    weights = torch.zeros_like(residuals)
    through, roughly = torch.zeros_like(off), torch.zeros_like(off)
    for rows in _pieces(len(sizes)):
        size, weight = sizes[rows], terms.weights[rows].double()
        values = activate(logits[rows], terms.layout)
        residuals += size @ (values - terms.targets[rows]).mul_(weight).abs_()
        weights += size @ weight
        through += size.square() @ _highest(weight * activation_curvature(values, terms.layout), concepts)
        roughly += size.square() @ _highest(weight, concepts)
    # The largest eigenvalue of diag(a) − a aᵀ is at most twice its largest a(1 − a).
    twice = torch.tensor([2.0 if concept.type == "categorical" else 1.0 for concept in concepts])
    steepest = torch.tensor([_STEEPEST[concept.type] for concept in concepts], dtype=torch.float64)
    own = _by_concept(gradient.norm(dim=1), concepts)
    known = own + _by_concept(sum_rounding(residuals, weights, count), concepts)
    known += 16 * UNIT * (own + alpha * head_size)
    distance = (known + off * steepest * roughly / count) / alpha * _SLACK
    turn = _turn(2 * largest * (distance + off))
    rounded = turn.square() * off * (twice * through / count).sqrt()
    energy = torch.where(turn.isfinite(), (known / math.sqrt(alpha) + rounded) * _SLACK, math.inf)
    return ConceptError(torch.minimum(distance, energy / math.sqrt(alpha)), energy, off, turn)


def label_gradient_change(
    model: ConceptBottleneck,
    error: ConceptError,
    sizes: Tensor,
    logits: Tensor,
    weights: Tensor,
    bottleneck: Tensor,
    residual: Tensor,
    design_norm: float,
) -> float:
    """Bound on |∇J_Y(φ; b*) − ∇J_Y(φ; b)|, where b are given and b* is what the retrained concept head gives.

    For label heads that read predicted concepts.

    Parameters
    ----------
    error
        Of the concept head.
    sizes, logits, weights
        As in :func:`concept_error`.
    bottleneck, residual
        b̃ (n, k + 1), and softmax minus class (n, classes), or number minus label.
    design_norm
        An upper bound on |X̃|₂, or infinite.
    """
    if not bool(error.turn.isfinite().all()):
        return math.inf
    concepts, alpha, count = model.layout.concepts, model.recipe.concept_regularisation, max(len(sizes), 1)
    tau = alpha * count / min(design_norm, float(sizes.norm()) * _SLACK) ** 2
    head = model.label_head.weight.detach().double()
    spectral = float(torch.linalg.matrix_norm(head, 2))
    reads = model.bottleneck == "probabilities"
    slopes = torch.tensor([_STEEPEST[concept.type] for concept in concepts]).double()
    shared = torch.tensor([concept.type == "categorical" for concept in concepts])
    gains, rounded = torch.zeros_like(error.energy), torch.zeros_like(error.energy)
    second, farthest = 0.0, error.distance + error.rounding
    for rows in _pieces(len(sizes)):
        size, lengths = sizes[rows], bottleneck[rows].norm(dim=1)
        curvature = activation_curvature(activate(logits[rows], model.layout), model.layout)
        felt = _felt(curvature, weights[rows].double(), concepts).add_(tau)
        rounded += size.square() @ felt
        turned = _by_concept(_turned(bottleneck[rows], residual[rows], model), concepts)
        gain = (turned * lengths[:, None]).add_(residual[rows].norm(dim=1)[:, None])
        off = size[:, None] * farthest
        if reads:
            slope = torch.minimum(_highest(curvature, concepts) * error.turn, slopes)
            slope = torch.where(shared, 0.5, slope)
            gain, off = gain * slope, off * slope
        gains += gain.square_().div_(felt).sum(0)
        off = off.norm(dim=1)
        turning = 1.0 if model.predicts_number else 0.5 + 0.5 * spectral * (lengths + off)
        second += spectral * float((off.square() * turning).sum())
    energy = error.turn.sqrt() * error.energy + error.rounding * (rounded / count).sqrt()
    return float((energy * (gains / count).sqrt()).sum() + second / count) * _SLACK


def _turned(bottleneck: Tensor, residual: Tensor, model: ConceptBottleneck) -> Tensor:
    """(rows, k) |S_i Φ_j|, rounded up: how far a change of bottleneck value j turns a sample's residual."""
    head = model.label_head.weight.detach().double()
    if model.predicts_number:
        sizes: Tensor = head.norm(dim=0)
        return sizes.expand(len(residual), -1)
    head_rows = torch.cat([head, model.label_head.bias.detach().double()[:, None]], 1)
    p = torch.softmax(bottleneck @ head_rows.T, 1)
    # S has no part along the ones: the mean over classes drops out, and with it most of what would cancel.
    apart = head - head.mean(0)
    squares, means = p.square(), p @ apart
    turned = squares @ apart.square() - 2 * means * (squares @ apart)
    turned += means.square() * squares.sum(1, keepdim=True)
    lost = 64 * gamma(len(head) + 8) * squares.sum(1, keepdim=True) * apart.abs().amax(0).square()
    return turned.clamp_min_(0.0).add_(lost).sqrt_()


def _pieces(count: int) -> list[slice]:
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, count, _ROWS_AT_ONCE)]
