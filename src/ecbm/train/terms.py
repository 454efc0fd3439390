"""The terms of the two objectives (docs/method.md, "The objectives"): targets and weights, derived from a dataset.

    J_C(θ) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|θ|²
    J_Y(φ) = (1/n) Σ_i  v_i  CE(f(b_i), y_i) + (β/2)|φ|²

A missing concept label has w_ij = 0. A positive weight turns the pair (1, t) into
w = p·t + 1 − t and target p·t / w: the same loss, written as one weighted BCE.

Concepts of other types (docs/method.md, "Concepts of other types"): a categorical one with a weight p_c for
each value has w = Σ_c p_c t_c on all its columns and targets p_c t_c / w; an ordinal one has one positive
weight for all its thresholds, without which they might not stay in order; a continuous one has targets (t −
mean) / scale with the training split's statistics. So have labels that are numbers, in J_Y.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import Concept, ConceptLayout
from ecbm.read.dataset import Dataset
from ecbm.train.heads.objectives import concept_losses
from ecbm.train.recipe import Recipe

__all__ = [
    "ConceptTerms",
    "Scaling",
    "concept_scaling",
    "concept_terms",
    "label_targets",
    "percentiles_of",
    "positive_weights",
    "standardisation",
    "target_scaling",
    "terms_of",
]

_LARGEST_BALANCED_WEIGHT = 20.0


@dataclasses.dataclass(frozen=True)
class ConceptTerms:
    """Targets and weights, (n, k) float32 each; targets are finite everywhere.

    ``layout`` says the concepts' types; ``None``: all are binary.
    """

    targets: Tensor
    weights: Tensor
    layout: ConceptLayout | None = None

    def __getitem__(self, rows: Tensor) -> ConceptTerms:
        return ConceptTerms(self.targets[rows], self.weights[rows], self.layout)

    def part(self, rows: Tensor | slice, columns: Tensor) -> ConceptTerms:
        """The terms of some samples and columns; columns are all those of their concepts."""
        layout = None if self.layout is None else self.layout.select(columns)
        return ConceptTerms(self.targets[rows][:, columns], self.weights[rows][:, columns], layout)

    def loss(self, logits: Tensor) -> Tensor:
        """Σ_ij w_ij BCE(z_ij, t_ij), differentiable in the logits; other losses for other types."""
        if self.layout is not None:
            return concept_losses(logits, self.targets, self.weights, self.layout).sum()
        return functional.binary_cross_entropy_with_logits(
            logits, self.targets, weight=self.weights, reduction="sum"
        )


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Mean and scale (k,) of continuous concepts in the training split, float64; 0 and 1 for all others."""

    mean: Tensor
    scale: Tensor


def concept_scaling(train: Dataset) -> Scaling | None:
    """What standardises continuous concepts, from the training samples; ``None`` where there are none."""
    columns = train.layout.squared
    if not len(columns):
        return None
    mean = torch.zeros(train.layout.width, dtype=torch.float64)
    scale = torch.ones_like(mean)
    for column in columns.tolist():
        mean[column], scale[column] = standardisation(train.concepts[:, column])
    return Scaling(mean, scale)


def standardisation(labels: Tensor) -> tuple[float, float]:
    """Mean and scale of a continuous concept's labels (n,), NaN where missing; a constant one keeps scale 1."""
    values = labels.double()
    values = values[~values.isnan()]
    if not len(values):
        return 0.0, 1.0
    mean, spread = float(values.mean()), float(values.std(correction=0))
    # Labels are float32: what is below their rounding is no spread.
    return mean, spread if spread > 1e-6 * abs(mean) else 1.0


def target_scaling(train: Dataset) -> Tensor | None:
    """Mean and scale (2,) of labels that are numbers, over the training samples; ``None`` of classes."""
    if not train.predicts_number:
        return None
    mean, spread = float(train.labels.mean()), float(train.labels.std(correction=0))
    # What is below the rounding of float64 is no spread.
    scale = spread if spread > 1e-12 * abs(mean) else 1.0
    return torch.tensor([mean, scale], dtype=torch.float64)


def label_targets(data: Dataset, scaling: Tensor | None = None) -> Tensor:
    """What J_Y is over: classes (n,), or numbers standardised by ``scaling``, which is by default their own."""
    scaling = target_scaling(data) if scaling is None else scaling
    return data.labels if scaling is None else (data.labels - scaling[0]) / scaling[1]


def percentiles_of(train: Dataset) -> Tensor | None:
    """(continuous concepts, 99) the first to the 99th percentile of the training labels; ``None`` without any."""
    columns = train.layout.squared
    if not len(columns):
        return None
    shares = torch.arange(1, 100, dtype=torch.float64) / 100
    labels = [train.concepts[:, column].double() for column in columns.tolist()]
    known = [values[~values.isnan()] for values in labels]
    return torch.stack(
        [torch.quantile(values, shares) if len(values) else torch.zeros(99).double() for values in known]
    )


def positive_weights(data: Dataset, recipe: Recipe) -> Tensor:
    """The positive weight of every concept (k,), float64. ``"balanced"`` is fitted on ``data`` itself."""
    setting, layout = recipe.pos_weight, data.layout
    ones = torch.ones(len(data.concept_names), dtype=torch.float64)
    if setting is None:
        return ones
    if isinstance(setting, Mapping):
        for name, value in setting.items():
            ones[_weighted_columns(name, data)] = float(value)
        return ones
    if setting == "balanced":
        known = ~data.concepts.isnan()
        positive = data.concepts.nan_to_num(0.0).double().sum(0)
        negative = known.double().sum(0) - positive
        for columns in layout.tied:
            positive[columns], negative[columns] = positive[columns].sum(), negative[columns].sum()
        balanced = negative / positive.clamp_min(1e-12)
        for columns in layout.softmax:
            balanced[columns] = positive[columns].sum() / (len(columns) * positive[columns].clamp_min(1e-12))
        balanced = balanced.clamp(1 / _LARGEST_BALANCED_WEIGHT, _LARGEST_BALANCED_WEIGHT)
        balanced[layout.squared] = 1.0
        return balanced
    # One number weighs presence against absence. One value of a categorical concept is always present, and a
    # continuous one is neither.
    weights = ones * float(setting)
    weights[layout.squared] = 1.0
    for columns in layout.softmax:
        weights[columns] = 1.0
    return weights


def _weighted_columns(name: str, data: Dataset) -> list[int]:
    """The columns that a positive weight given by name is for."""
    layout = data.layout
    owner: Concept | None = layout.by_name.get(name)
    if owner is None:
        if name not in data.concept_names:
            raise unknown_name("concept", name, data.concept_names, "Recipe: pos_weight")
        owner = layout.concepts[layout.owner[data.concept_index(name)]]
        if owner.type == "ordinal":
            raise InputError(
                f"Recipe: pos_weight: {name!r} is a threshold; give one weight to {owner.name!r}, or thresholds "
                "lose their order"
            )
        return [data.concept_index(name)]
    if owner.type == "continuous":
        raise InputError(f"Recipe: pos_weight: {name!r} is continuous and has no positive labels; leave it out")
    if owner.type == "categorical":
        raise InputError(
            f"Recipe: pos_weight: {name!r} is categorical; weigh its values, such as "
            f"{data.concept_names[owner.columns[0]]!r}"
        )
    return list(owner.columns)


def terms_of(data: Dataset, positive: Tensor, scaling: Scaling | None) -> ConceptTerms:
    """Terms of J_C over all samples of a dataset; ``scaling`` is that of its training split."""
    return concept_terms(data.concepts, positive, data.layout, scaling)


def concept_terms(
    concepts: Tensor,
    positive: Tensor,
    layout: ConceptLayout | None = None,
    scaling: Scaling | None = None,
) -> ConceptTerms:
    """Terms of J_C from concept labels (n, k) with NaN where missing, and positive weights (k,).

    Examples
    --------
    >>> terms = concept_terms(torch.tensor([[1.0, float("nan")]]), torch.tensor([3.0, 1.0]))
    >>> terms.weights.tolist(), terms.targets.tolist()
    ([[3.0, 0.0]], [[1.0, 0.0]])
    """
    layout = None if layout is None or layout.plain else layout
    known = ~concepts.isnan()
    if layout is None and bool((positive == 1).all()):
        return ConceptTerms(concepts.float().nan_to_num(0.0), known.float())
    targets = concepts.nan_to_num(0.0).double()
    scale = positive * targets + (1 - targets)
    weighted = positive * targets / scale
    if layout is not None:
        for columns in layout.softmax:
            part = positive[columns] * targets[:, columns]
            total = part.sum(1, keepdim=True)
            # Distributions as people type them sum to 1 nearly; the loss takes them to do so.
            weighted[:, columns] = part / torch.where(total > 0, total, 1.0)
            scale[:, columns] = (total / targets[:, columns].sum(1, keepdim=True).clamp_min(1e-12)).expand_as(part)
        if len(layout.squared):
            assert scaling is not None
            columns = layout.squared
            weighted[:, columns] = (targets[:, columns] - scaling.mean[columns]) / scaling.scale[columns]
            scale[:, columns] = 1.0
    weighted = torch.where(known, weighted, 0.0)
    return ConceptTerms(weighted.float(), torch.where(known, scale, 0.0).float(), layout)
