"""``ecbm.evaluate``: how well a model predicts concepts and classes. Missing concept labels are ignored."""

from __future__ import annotations

import math
from typing import Any

import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.typed_metrics import typed_metrics

__all__ = [
    "align_concepts",
    "align_labels",
    "concept_metrics",
    "effective_concepts",
    "evaluate",
    "expected_calibration_error",
    "number_metrics",
]


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Mean |confidence − accuracy| over equal-width confidence bins, weighted by their sizes.

    Examples
    --------
    >>> expected_calibration_error(torch.tensor([0.9, 0.9]).double().round(decimals=1), torch.ones(2))
    0.1
    """
    if len(confidence) == 0:
        return math.nan
    confidence, correct = confidence.double(), correct.double()
    index = (confidence * bins).long().clamp(0, bins - 1)
    weight = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, torch.ones_like(confidence))
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, confidence - correct)
    return round(float(gap.abs().sum() / weight.sum()), 12)


def align_concepts(model: ConceptBottleneck, data: Dataset) -> Tensor:
    """The dataset's concept labels in the model's order of concepts."""
    if model.concept_names == data.concept_names:
        return data.concepts
    return data.concepts[:, [data.concept_index(name) for name in model.concept_names]]


def align_labels(model: ConceptBottleneck, data: Dataset) -> Tensor:
    """The dataset's class labels as the model numbers its classes; or its numbers as they are."""
    if model.predicts_number != data.predicts_number:
        has, wants = ("numbers", "classes") if data.predicts_number else ("classes", "a number")
        raise InputError(f"the labels of the data are {has} and the model predicts {wants}; give data like its own")
    if model.predicts_number:
        return data.labels
    for name in data.class_names:
        if name not in model.class_names:
            raise unknown_name("class", name, model.class_names, "the data has a class the model does not know")
    return torch.tensor([model.class_names.index(name) for name in data.class_names])[data.labels]


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def concept_metrics(probabilities: Tensor, truth: Tensor) -> dict[str, float]:
    """Accuracy, F1, AUC and calibration error of one concept over its known labels.

    Soft labels count as present from 0.5 on. F1 and AUC are NaN where they are not defined (no positive, or
    only one of the two values).
    """
    known = ~truth.isnan()
    p, t = probabilities[known].double(), truth[known]
    if len(t) == 0:
        return {"accuracy": math.nan, "f1": math.nan, "auc": math.nan, "ece": math.nan, "count": 0}
    actual, predicted = t >= 0.5, p >= 0.5
    found = int((actual & predicted).sum())
    total = int(actual.sum()) + int(predicted.sum())
    both = bool(actual.any()) and not bool(actual.all())
    return {
        "accuracy": float((actual == predicted).double().mean()),
        "f1": 2 * found / total if total else math.nan,
        "auc": float(roc_auc_score(actual.numpy(), p.numpy())) if both else math.nan,
        "ece": expected_calibration_error(p, t.double()),
        "count": int(known.sum()),
    }


def evaluate(model: ConceptBottleneck, data: Dataset, *, logits: Tensor | None = None) -> dict[str, Any]:
    """Metrics of a model on a dataset (usually one split).

    Parameters
    ----------
    model, data
        The model, and samples with the concepts and classes it knows.
    logits
        The model's concept logits of the data, where they are at hand; computed otherwise.

    Returns
    -------
    dict
        ``class_accuracy``, ``class_f1`` (macro, over the classes that occur), ``ece`` (calibration of the class
        confidence), ``concept_accuracy`` (over all known labels), ``concept_f1`` and ``concept_auc`` (means
        over concepts where defined), ``concept_ece``, ``per_concept`` and ``count``. A categorical or ordinal
        concept is one entry, right or wrong as a whole; with ordinal ones there is ``concept_grade_error`` (mean
        absolute), with continuous ones, which have no accuracy, ``concept_r2``; with a sparse label head
        ``concepts_per_class``. Where a number is predicted ``rmse``, ``mae`` (in its unit) and ``r2`` stand in
        place of ``class_accuracy``, ``class_f1`` and ``ece``.
    """
    _check_kinds(model, data)
    if len(data) == 0:
        raise InputError("the dataset to evaluate on is empty")
    labels = align_labels(model, data)
    logits = (model.concept_logits(data) if logits is None else logits).cpu()
    if len(logits) != len(data):
        raise InputError(f"{len(logits)} rows of logits for {len(data)} samples; give one row a sample")
    probabilities, truth = model.concepts_from(logits.to(model.device)).detach().cpu(), align_concepts(model, data)
    classes = model.classify(logits.to(model.device)).cpu()
    per_concept: dict[str, dict[str, Any]] = {}
    rights = []
    for concept in model.layout.concepts:
        values, labelled = probabilities[:, list(concept.columns)], truth[:, list(concept.columns)]
        if concept.type == "binary":
            per_concept[concept.name] = concept_metrics(values[:, 0], labelled[:, 0])
            rights.append(((values >= 0.5) == (labelled >= 0.5))[~labelled.isnan()])
        else:
            per_concept[concept.name], found = typed_metrics(concept, values, labelled)
            rights.append(found)
    right = torch.cat(rights)
    figures = list(per_concept.values())
    more: dict[str, Any] = {}
    if model.recipe.label_l1:
        more["concepts_per_class"] = effective_concepts(model)
    for name, key in (("concept_grade_error", "grade_error"), ("concept_r2", "r2")):
        if any(key in figure for figure in figures):
            more[name] = _mean([figure[key] for figure in figures if key in figure])
    return {
        **(number_metrics(classes[:, 0], labels) if model.predicts_number else _class_metrics(classes, labels)),
        "concept_accuracy": float(right.double().mean()) if len(right) else math.nan,
        "concept_f1": _mean([f["f1"] for f in figures]),
        "concept_auc": _mean([f["auc"] for f in figures]),
        "concept_ece": _mean([f["ece"] for f in figures]),
        **more,
        "count": len(data),
        "per_concept": per_concept,
    }


def _class_metrics(classes: Tensor, labels: Tensor) -> dict[str, float]:
    confidence, predicted = classes.max(1)
    return {
        "class_accuracy": float((predicted == labels).double().mean()),
        "class_f1": float(f1_score(labels.numpy(), predicted.numpy(), average="macro", zero_division=0)),
        "ece": expected_calibration_error(confidence, (predicted == labels).double()),
    }


def number_metrics(predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """Errors of predicted numbers (n,), and the share of the labels' variance that they explain.

    Examples
    --------
    >>> number_metrics(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 2.0, 3.0]).double())["mae"]
    1.0
    """
    error = predicted.double() - labels
    variance = float(labels.var(correction=0))
    return {
        "rmse": float(error.square().mean().sqrt()),
        "mae": float(error.abs().mean()),
        "r2": 1 - float(error.square().mean()) / variance if variance > 0 else math.nan,
    }


def effective_concepts(model: ConceptBottleneck) -> dict[str, int]:
    """How many concepts each class reads: those with a weight that is not 0 in any of their columns."""
    read = model.label_head.weight.detach() != 0
    columns = [read[:, list(concept.columns)].any(1) for concept in model.layout.concepts]
    return dict(zip(model.class_names, torch.stack(columns, 1).sum(1).tolist(), strict=True))


def _check_kinds(model: Any, data: Any) -> None:
    if not isinstance(model, ConceptBottleneck) or not isinstance(data, Dataset):
        given = f"{type(model).__name__} and {type(data).__name__}"
        raise InputError(f"evaluate: expected a model and a dataset (data.split('test')), got {given}")
