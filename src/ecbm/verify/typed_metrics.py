"""Metrics of concepts that are not binary: values by name, grades, and numbers in their unit."""

from __future__ import annotations

import math
from typing import Any

import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor

from ecbm.read.concept_types import Concept

__all__ = ["typed_metrics"]


def typed_metrics(concept: Concept, values: Tensor, truth: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Figures of one concept over its known labels, and which of them were predicted right.

    Parameters
    ----------
    concept
        Categorical, ordinal or continuous.
    values, truth
        (n, columns) predictions and labels; values of a continuous concept are in its unit.

    Returns
    -------
    dict
        ``type``, ``accuracy``, ``f1`` (macro over the values or grades that occur), ``auc`` (mean over values
        or thresholds), ``count``; of an ordinal concept also ``grade_error`` (mean absolute), of a continuous
        one ``rmse``, ``mae``, ``r2`` and ``unit`` and no accuracy. What is not defined is NaN.
    Tensor
        (known,) whether each label was predicted right; none of a continuous concept.
    """
    known = ~truth[:, 0].isnan()
    p, t = values[known].double(), truth[known].double()
    figures: dict[str, Any] = {"type": concept.type, "accuracy": math.nan, "f1": math.nan, "auc": math.nan}
    figures |= {"ece": math.nan, "count": len(t)}
    right = torch.zeros(0, dtype=torch.bool)
    if concept.type == "continuous":
        return figures | _continuous(concept, p[:, 0], t[:, 0]), right
    if not len(t):
        return figures, right
    if concept.type == "categorical":
        predicted, actual = p.argmax(1), t.argmax(1)
    else:
        predicted, actual = (p >= 0.5).sum(1), (t >= 0.5).sum(1)
        figures["grade_error"] = float((predicted - actual).abs().double().mean())
    right = predicted == actual
    figures["accuracy"] = float(right.double().mean())
    figures["f1"] = float(f1_score(actual.numpy(), predicted.numpy(), average="macro", zero_division=0))
    areas = [
        float(roc_auc_score((t[:, column] >= 0.5).numpy(), p[:, column].numpy()))
        for column in range(t.shape[1])
        if 0 < int((t[:, column] >= 0.5).sum()) < len(t)
    ]
    figures["auc"] = sum(areas) / len(areas) if areas else math.nan
    return figures, right


def _continuous(concept: Concept, values: Tensor, truth: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {"rmse": math.nan, "mae": math.nan, "r2": math.nan, "unit": concept.unit}
    if len(truth):
        gap = values - truth
        found |= {"rmse": float(gap.square().mean().sqrt()), "mae": float(gap.abs().mean())}
        spread = float((truth - truth.mean()).square().sum())
        found["r2"] = 1 - float(gap.square().sum()) / spread if spread > 0 else math.nan
    return found
