"""The report of an edit: plain values, ready for JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ecbm.edit.situation import Situation
from ecbm.train.convex import label_objective, with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.train.stages import label_inputs

__all__ = [
    "EditedObjectives",
    "drift_between",
    "edited_concept_objective",
    "edited_objectives",
    "head_gradient",
    "json_ready",
    "refitted_statistics",
]


def json_ready(value: Any) -> Any:
    """The same with ``None`` for numbers that JSON does not have: an unguarded step may end beyond all numbers."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass(frozen=True)
class EditedObjectives:
    """J'_C and J'_Y of a model over the edited training samples, and what computing J'_Y left behind.

    ``read`` is what the label head reads (with ones) and ``label_gradient`` the gradient over it.
    """

    values: dict[str, float]
    read: Tensor
    label_gradient: Tensor


def edited_objectives(model: ConceptBottleneck, situation: Situation, logits: Tensor) -> EditedObjectives:
    """J'_C and J'_Y of a model under the new names, over the edited training samples."""
    recipe, after = model.recipe, situation.after
    read = with_ones(label_inputs(recipe, logits, after.concepts, model.low, model.high))
    ones = torch.ones(len(read), dtype=torch.float64)
    head = torch.cat([model.label_head.weight, model.label_head.bias[:, None]], 1).detach()
    label, gradient = label_objective(read, after.labels, ones, head, recipe.label_regularisation)
    values = {"concepts": edited_concept_objective(model, situation, logits), "labels": float(label)}
    return EditedObjectives(values, read, gradient)


def edited_concept_objective(model: ConceptBottleneck, situation: Situation, logits: Tensor) -> float:
    """J'_C over the edited training samples, from their concept logits: the L2 counts every parameter of g."""
    terms = situation.terms_after
    losses = torch.nn.functional.softplus(logits) - terms.targets.double() * logits
    data_term = float((terms.weights.double() * losses).sum()) / len(situation.after)
    predictor = [*model.backbone.parameters(), *model.concept_head.parameters()]
    squares = sum(float(p.detach().double().square().sum()) for p in predictor)
    return data_term + 0.5 * model.recipe.concept_regularisation * squares


def head_gradient(design: Tensor, logits: Tensor, situation: Situation, model: ConceptBottleneck) -> Tensor:
    """∇J'_C over the concept head (k, d), at given features and the logits of the head on them."""
    head = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach()
    terms = situation.terms_after
    residual = torch.sigmoid(logits).sub_(terms.targets).mul_(terms.weights)
    return (residual.T @ design).div_(len(design)).add_(head, alpha=model.recipe.concept_regularisation)


def drift_between(
    before: ConceptBottleneck, after: ConceptBottleneck, logits_before: Tensor, logits_after: Tensor, where: str
) -> dict[str, Any]:
    """How far predictions moved on the same samples: concepts that both models have, and classes."""
    shared = [name for name in before.concept_names if name in after.concept_names]
    old = [before.concept_names.index(name) for name in shared]
    new = [after.concept_names.index(name) for name in shared]
    p, q = torch.sigmoid(logits_before[:, old]), torch.sigmoid(logits_after[:, new])
    a, b = before.classify(logits_before), after.classify(logits_after)
    gap, class_gap = (p - q).abs(), (a - b).abs()
    flipped = ((p >= 0.5) != (q >= 0.5)).sum(0)
    order = flipped.argsort(descending=True)[:10].tolist()
    return {
        "split": where,
        "samples": len(logits_before),
        "concept_probability_mean_change": float(gap.mean()) if gap.numel() else 0.0,
        "concept_probability_largest_change": float(gap.max()) if gap.numel() else 0.0,
        "concept_predictions_changed": int(flipped.sum()),
        "class_probability_mean_change": float(class_gap.mean()),
        "class_probability_largest_change": float(class_gap.max()) if class_gap.numel() else 0.0,
        "class_predictions_changed": int((a.argmax(1) != b.argmax(1)).sum()),
        "most_changed_concepts": {shared[j]: int(flipped[j]) for j in order if int(flipped[j])},
    }


def refitted_statistics(before: ConceptBottleneck, after: ConceptBottleneck) -> list[str]:
    """In words, which statistics outside the objectives were fitted again on the edited data."""
    words = []
    for name, buffer in after.backbone.named_buffers():
        old = dict(before.backbone.named_buffers()).get(name)
        fitted = name.endswith(("mean", "scale")) and "running" not in name
        if fitted and old is not None and old.shape == buffer.shape and not torch.equal(old, buffer):
            words.append(f"standardisation ({name})")
    shared = [name for name in before.concept_names if name in after.concept_names]
    old_columns = [before.concept_names.index(name) for name in shared]
    new_columns = [after.concept_names.index(name) for name in shared]
    if not torch.equal(before.positive_weights[old_columns], after.positive_weights[new_columns]):
        words.append("positive weights")
    if not torch.equal(before.low[old_columns], after.low[new_columns]):
        words.append("intervention logits")
    return words
