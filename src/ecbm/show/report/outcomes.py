"""What a model says about each sample of a split, beside the labels: right, wrong, or how far off."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.read.concept_types import Concept
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck

__all__ = ["Outcomes", "constant_outcomes", "outcomes"]

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """One model on one set of samples.

    ``labels`` and ``concepts`` hold one entry a sample, NaN where there is no label: 1 for right and 0 for wrong,
    or the distance to the label where a number is predicted or measured.
    """

    said: list[str] | list[float]
    confidence: list[float]
    labels: Array
    concepts: dict[str, Array]
    concept_said: dict[str, list[str]]


def outcomes(model: ConceptBottleneck, data: Dataset) -> Outcomes:
    """A model's outcomes on a dataset, over the concepts that both have."""
    logits = model.concept_logits(data).to(model.device)
    values, classes = model.concepts_from(logits).detach().cpu(), model.classify(logits).detach().cpu()
    concepts, spoken = {}, {}
    for name, concept in model.layout.by_name.items():
        if name not in data.layout.by_name:
            continue
        truth = data.concepts[:, list(data.layout.by_name[name].columns)]
        own = values[:, list(concept.columns)]
        concepts[name] = _compared(concept, own, truth)
        spoken[name] = [said(concept, row) for row in own.tolist()]
    if model.predicts_number:
        numbers = classes[:, 0].double()
        off = (numbers - data.labels.double()).abs()
        return Outcomes(numbers.tolist(), [], off.numpy(), concepts, spoken)
    best = classes.max(1)
    names = [model.class_names[index] for index in best.indices.tolist()]
    right = [float(name == data.label_of(row)) for row, name in enumerate(names)]
    return Outcomes(names, best.values.tolist(), np.array(right), concepts, spoken)


def constant_outcomes(train: Dataset, data: Dataset) -> Outcomes:
    """A control that looks at nothing: the commonest class and value, or the median, of the training labels."""
    concepts = {}
    for name, concept in data.layout.by_name.items():
        if name in train.layout.by_name:
            own = train.concepts[:, list(train.layout.by_name[name].columns)]
            known = own[~own[:, 0].isnan()]
            constant = _commonest(concept, known) if len(known) else own[:1].nan_to_num()
            truth = data.concepts[:, list(concept.columns)]
            concepts[name] = _compared(concept, constant.expand(len(data), -1), truth)
    if data.predicts_number:
        middle = train.labels.double().median()
        return Outcomes([float(middle)], [], (data.labels.double() - middle).abs().numpy(), concepts, {})
    counts = torch.bincount(train.labels, minlength=len(train.class_names))
    name = train.class_names[int(counts.argmax())]
    right = [float(data.label_of(row) == name) for row in range(len(data))]
    return Outcomes([name], [], np.array(right), concepts, {})


def said(concept: Concept, labels: list[float]) -> str:
    """A prediction or label of a concept in words: present or absent, a value, a grade, a number with its unit."""
    value = concept.value_of(labels)
    if concept.type != "binary" or value is None or isinstance(value, str):
        return concept.said(round(value, 4) if isinstance(value, float) else value)
    return "present" if value >= 0.5 else "absent"


def _compared(concept: Concept, values: Tensor, truth: Tensor) -> Array:
    known = ~truth[:, 0].isnan()
    if concept.type == "continuous":
        found = (values[:, 0].double() - truth[:, 0].double()).abs()
    elif concept.type == "categorical":
        found = (values.argmax(1) == truth.argmax(1)).double()
    else:
        found = ((values >= 0.5).sum(1) == (truth >= 0.5).sum(1)).double()
    return found.masked_fill(~known, torch.nan).numpy()


def _commonest(concept: Concept, known: Tensor) -> Tensor:
    """Labels (1, columns) of the commonest value, grade or answer; the median of a measurement."""
    if concept.type == "continuous":
        return known.median(0).values[None]
    if concept.type == "categorical":
        counts = torch.bincount(known.argmax(1), minlength=known.shape[1])
        return torch.nn.functional.one_hot(counts.argmax(), known.shape[1])[None].to(known.dtype)
    grades = (known >= 0.5).sum(1)
    grade = int(torch.bincount(grades, minlength=known.shape[1] + 1).argmax())
    return (torch.arange(known.shape[1]) < grade).to(known.dtype)[None]
