"""The terms of the two objectives (docs/method.md, "The objectives"): targets and weights, derived from a dataset.

    J_C(θ) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|θ|²
    J_Y(φ) = (1/n) Σ_i  v_i  CE(f(b_i), y_i) + (β/2)|φ|²

A missing concept label has w_ij = 0. A positive weight turns the pair (1, t) into
w = p·t + 1 − t and target p·t / w: the same loss, written as one weighted BCE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train.recipe import Recipe

__all__ = ["ConceptTerms", "concept_terms", "positive_weights"]

_LARGEST_BALANCED_WEIGHT = 20.0


@dataclasses.dataclass(frozen=True)
class ConceptTerms:
    """Targets and weights, (n, k) float32 each; targets are finite everywhere."""

    targets: Tensor
    weights: Tensor

    def __getitem__(self, rows: Tensor) -> ConceptTerms:
        return ConceptTerms(self.targets[rows], self.weights[rows])

    def loss(self, logits: Tensor) -> Tensor:
        """Σ_ij w_ij BCE(z_ij, t_ij), differentiable in the logits."""
        return functional.binary_cross_entropy_with_logits(
            logits, self.targets, weight=self.weights, reduction="sum"
        )


def positive_weights(data: Dataset, recipe: Recipe) -> Tensor:
    """The positive weight of every concept (k,), float64. ``"balanced"`` is fitted on ``data`` itself."""
    setting = recipe.pos_weight
    ones = torch.ones(len(data.concept_names), dtype=torch.float64)
    if setting is None:
        return ones
    if isinstance(setting, Mapping):
        for name, value in setting.items():
            if name not in data.concept_names:
                raise unknown_name("concept", name, data.concept_names, "Recipe: pos_weight")
            ones[data.concept_index(name)] = float(value)
        return ones
    if setting == "balanced":
        known = ~data.concepts.isnan()
        positive = data.concepts.nan_to_num(0.0).double().sum(0)
        negative = known.double().sum(0) - positive
        balanced = negative / positive.clamp_min(1e-12)
        return balanced.clamp(1 / _LARGEST_BALANCED_WEIGHT, _LARGEST_BALANCED_WEIGHT)
    return ones * float(setting)


def concept_terms(concepts: Tensor, positive: Tensor) -> ConceptTerms:
    """Terms of J_C from concept labels (n, k) with NaN where missing, and positive weights (k,).

    Examples
    --------
    >>> terms = concept_terms(torch.tensor([[1.0, float("nan")]]), torch.tensor([3.0, 1.0]))
    >>> terms.weights.tolist(), terms.targets.tolist()
    ([[3.0, 0.0]], [[1.0, 0.0]])
    """
    known = ~concepts.isnan()
    if bool((positive == 1).all()):
        return ConceptTerms(concepts.float().nan_to_num(0.0), known.float())
    targets = concepts.nan_to_num(0.0).double()
    scale = positive * targets + (1 - targets)
    weighted = torch.where(known, positive * targets / scale, 0.0)
    return ConceptTerms(weighted.float(), torch.where(known, scale, 0.0).float())
