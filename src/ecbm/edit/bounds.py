"""The paper's error bounds for influence steps, corrected, for the two convex heads.

Notation. J is the objective before the edit and J' the one after, each a mean over its samples with its L2 in it;
θ is the minimiser of J, θ* that of J', and at θ

    A = ∇²J'(θ) ⪰ σ' = λ_min(A)        B = ∇²J(θ) ⪰ σ = λ_min(B)        v = ∇J'(θ) − ∇J(θ)

    Newton     θ_N = θ − (A + δ)⁻¹ v
    influence  θ_I = θ − (B + δ)⁻¹ v

The paper (appendix, "Theoretical Bound for the Influence Function") bounds |θ* − θ_I| by |θ* − θ_N| + |θ_N − θ_I|.
What is different here (docs/method.md, "Bounds for influence steps"):

- the second part is |(A + δ)⁻¹ − (B + δ)⁻¹|, a difference and not a sum;
- J and J' contain the L2, so the eigenvalues do too; δ is damping on top of it, 0 unless asked for, counted once;
- the gradient in the bound is v, that of the terms that changed. Over the whole data it is 0 at the optimum;
- J' is strongly convex, so a distance is |∇J'| / μ with no factor 2, and μ is the L2 (λ_min at θ is not λ_min on
  the way to θ*);
- the Lipschitz constant of the Hessian is known: |σ''| ≤ 1/(6√3) for a logistic term, so |x̃|³/(6√3) with weight 1.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.train.heads.objectives import ConceptObjective, LabelObjective

__all__ = [
    "InfluenceBound",
    "concept_bound",
    "concept_hessian_lipschitz",
    "concept_pieces",
    "influence_bound",
    "label_bound",
    "label_hessian_lipschitz",
    "label_pieces",
]

LOGISTIC = 1 / (6 * math.sqrt(3))
"""max |σ''|, the largest third derivative of the logistic loss."""

SOFTMAX = 1 / math.sqrt(2)
"""Bound on the third derivative of log-sum-exp: |D³[u, w, w]| ≤ |u| |w|² / √2."""


@dataclasses.dataclass(frozen=True)
class InfluenceBound:
    """Bounds on Euclidean distances of parameters.

    ``newton_to_retrained`` bounds |θ* − θ_N|, ``newton_to_influence`` |θ_N − θ_I|, and their sum
    ``influence_to_retrained`` |θ* − θ_I|.
    """

    newton_to_retrained: float
    newton_to_influence: float

    @property
    def influence_to_retrained(self) -> float:
        return self.newton_to_retrained + self.newton_to_influence


def influence_bound(
    change: Tensor, before: Tensor, after: Tensor, lipschitz: float, l2: float, damping: float = 0.0
) -> InfluenceBound:
    """The two parts of the error of an influence step, from gradient, Hessians and Lipschitz constant.

        |θ* − θ_N| ≤ ( L/2 · |Δ|² + δ |Δ| ) / μ          Δ = (A + δ)⁻¹ v,  |Δ| ≤ |v| / (σ' + δ)
        |θ_N − θ_I| ≤ |A − B|₂ · |v| / ( (σ' + δ)(σ + δ) )

    The first: ∇J'(θ_N) = ∇J'(θ) − AΔ + r with |r| ≤ L/2 |Δ|², and ∇J'(θ) − AΔ = v − (A + δ)Δ + δΔ = δΔ; then
    |θ* − θ_N| ≤ |∇J'(θ_N)| / μ with μ ≥ l2. The second: (A + δ)⁻¹ − (B + δ)⁻¹ = (A + δ)⁻¹ (B − A) (B + δ)⁻¹.

    Parameters
    ----------
    change
        v: the gradient of the terms that changed, ∇J'(θ) − ∇J(θ), with ∇J(θ) = 0.
    before, after
        B and A, L2 included.
    lipschitz
        L of ∇²J'.
    l2
        The L2 of J', a lower bound of its strong convexity everywhere.
    damping
        δ, beside the L2.
    """
    low_after = float(torch.linalg.eigvalsh(after)[0]) + damping
    low_before = float(torch.linalg.eigvalsh(before)[0]) + damping
    norm = float(change.norm())
    length = norm / low_after
    gap = float(torch.linalg.matrix_norm(after - before, 2))
    return InfluenceBound(
        (0.5 * lipschitz * length**2 + damping * length) / l2, gap * norm / (low_after * low_before)
    )


def concept_hessian_lipschitz(design: Tensor, weights: Tensor) -> float:
    """L of one concept's Hessian: |∇²J(θ₁) − ∇²J(θ₂)|₂ ≤ L |θ₁ − θ₂| with L = (1/n) Σ_i w_i |x̃_i|³ / (6√3).

    Parameters
    ----------
    design
        (n, d) features with a column of ones.
    weights
        (n,) weights of the concept's terms.
    """
    return LOGISTIC * float((weights * design.norm(dim=1) ** 3).sum()) / len(design)


def label_hessian_lipschitz(design: Tensor) -> float:
    """L of the label head's Hessian: (1/n) Σ_i |b̃_i|³ / √2.

    The third derivative of log-sum-exp is E[(U − EU)(W − EW)²] for U = u_c, W = w_c with c drawn from the softmax.
    No two entries of u lie more than √2 |u| apart, so |U − EU| ≤ √2 |u| and Var W ≤ (√2 |w|)² / 4.
    """
    return SOFTMAX * float((design.norm(dim=1) ** 3).sum()) / len(design)


def concept_pieces(
    parameters: Tensor, design: Tensor, targets: Tensor, weights: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """Gradient (d,) and Hessian (d, d) of one concept's objective, L2 included."""
    objective, rows = ConceptObjective(design, targets[:, None], weights[:, None], l2), parameters[None]
    logits = design @ rows.T
    matrix = design.T @ (objective.curvature(logits) * design) + l2 * torch.eye(len(parameters)).to(design)
    return objective.gradient(logits, rows)[0], matrix


def concept_bound(
    parameters: Tensor,
    before: tuple[Tensor, Tensor, Tensor],
    after: tuple[Tensor, Tensor, Tensor],
    l2: float,
    damping: float = 0.0,
) -> InfluenceBound:
    """The bounds for one concept's head, at any level of edit.

    Parameters
    ----------
    parameters
        (d,) the concept's row at the optimum before the edit, bias last.
    before, after
        Design (n, d) with ones, targets (n,) and weights (n,) of the concept's terms. A corrected label changes a
        target, a removed sample a row, a missing label has weight 0.
    l2
        α.
    damping
        δ of the step.

    Examples
    --------
    >>> design = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    >>> terms = design, torch.tensor([1.0, 0.0]).double(), torch.ones(2).double()
    >>> concept_bound(torch.zeros(2).double(), terms, terms, 0.1).influence_to_retrained
    0.0
    """
    old, b = concept_pieces(parameters, *before, l2)
    new, a = concept_pieces(parameters, *after, l2)
    return influence_bound(new - old, b, a, concept_hessian_lipschitz(after[0], after[2]), l2, damping)


def label_pieces(parameters: Tensor, design: Tensor, labels: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Gradient and whole Hessian of the label head's objective, L2 included, classes one after another."""
    classes, width = parameters.shape
    logits = design @ parameters.T
    gradient, p = LabelObjective(design, labels, None, l2).gradient(logits, parameters), torch.softmax(logits, 1)
    if labels.is_floating_point():
        return gradient.flatten(), design.T @ design / len(design) + l2 * torch.eye(width).to(design)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    matrix = torch.einsum("ncd,ni,nj->cidj", inner, design, design).reshape(classes * width, -1) / len(design)
    return gradient.flatten(), matrix + l2 * torch.eye(classes * width).to(design)


def label_bound(
    parameters: Tensor,
    before: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    l2: float,
    damping: float = 0.0,
) -> InfluenceBound:
    """The bounds for the label head, given what it reads before and after.

    Parameters
    ----------
    parameters
        (classes, d) at the optimum before the edit, bias last.
    before, after
        Bottleneck values (n, d) with ones, and class labels (n,), or standardised numbers, whose Hessian does not
        turn. It is dense: small heads only.
    l2
        β.
    damping
        δ of the step.
    """
    old, b = label_pieces(parameters, *before, l2)
    new, a = label_pieces(parameters, *after, l2)
    lipschitz = 0.0 if after[1].is_floating_point() else label_hessian_lipschitz(after[0])
    return influence_bound(new - old, b, a, lipschitz, l2, damping)
