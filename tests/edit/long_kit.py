"""The heads' optimum in extended precision: gradients in long doubles, Newton steps by dense float64 Hessians.

Written out from the objectives (docs/method.md, "The objectives"), concept by concept; thresholds of an ordinal one
share a slope.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

import ecbm
from ecbm.read.concept_types import Concept
from ecbm.train import stages
from ecbm.train.heads.objectives import rows_of
from ecbm.train.terms import concept_scaling, label_targets, terms_of

Long = np.longdouble
Array = np.ndarray


def long(values: torch.Tensor) -> Array:
    return values.detach().double().numpy().astype(Long)


def activated(logits: Array, kind: str) -> Array:
    if kind == "continuous":
        return logits
    if kind == "categorical":
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    return 1 / (1 + np.exp(-logits))


def _derivative(values: Array, kind: str) -> Array:
    """(n, m, m) of the activations by the logits, float64."""
    values = values.astype(float)
    if kind == "continuous":
        return np.ones((len(values), 1, 1))
    if kind == "categorical":
        return values[:, :, None] * np.eye(values.shape[1]) - values[:, :, None] * values[:, None, :]
    return (values * (1 - values))[:, :, None] * np.eye(values.shape[1])


@dataclasses.dataclass
class LongHeads:
    """Both objectives of a model on data: features, targets and weights, α and β, as long doubles."""

    model: ecbm.ConceptBottleneck
    data: ecbm.Dataset

    def __post_init__(self) -> None:
        train, recipe = self.data.split("train"), self.model.recipe
        self.design = long(stages.feature_design(self.model.backbone, train.inputs))
        terms = terms_of(train, self.model.positive_weights, concept_scaling(train))
        self.targets, self.weights = long(terms.targets), long(terms.weights)
        self.alpha, self.beta = Long(recipe.concept_regularisation), Long(recipe.label_regularisation)
        self.labels = label_targets(train, self.model.target_scaling)
        self.concepts = self.model.layout.concepts

    # -- concepts ------------------------------------------------------------------------------------------

    def _gradient(self, concept: Concept, rows: Array) -> tuple[Array, Array]:
        columns = list(concept.columns)
        values = activated(self.design @ rows.T, concept.type)
        residual = self.weights[:, columns] * (values - self.targets[:, columns])
        gradient = residual.T @ self.design / len(self.design) + self.alpha * rows
        if concept.type == "ordinal":
            gradient[:, :-1] = gradient[:, :-1].mean(0)
        return gradient, values

    def concept_gradient(self, rows: Array) -> Array:
        out = np.zeros_like(rows)
        for concept in self.concepts:
            out[list(concept.columns)] = self._gradient(concept, rows[list(concept.columns)])[0]
        return out

    def concept_hessian(self, concept: Concept, values: Array) -> Array:
        """(m d, m d), float64."""
        x, columns = self.design.astype(float), list(concept.columns)
        felt = self.weights[:, columns[:1]].astype(float)[:, :, None] * _derivative(values, concept.type)
        width = len(columns) * x.shape[1]
        found = np.einsum("iab,ic,id->acbd", felt / len(x), x, x, optimize=True).reshape(width, width)
        return found + float(self.alpha) * np.eye(width)

    def concept_optimum(self) -> Array:
        out = long(rows_of(self.model.concept_head))
        for concept in self.concepts:
            rows, width = out[list(concept.columns)], self.design.shape[1]
            basis = np.eye(len(rows) * width)
            if concept.type == "ordinal":
                slope = np.tile(np.eye(width)[:, :-1], (len(rows), 1))
                basis = np.concatenate([slope, np.kron(np.eye(len(rows)), np.eye(width)[:, -1:])], 1)
            for _ in range(12):
                gradient, values = self._gradient(concept, rows)
                hessian = basis.T @ self.concept_hessian(concept, values) @ basis
                move = basis @ np.linalg.solve(hessian, (basis.T @ gradient.ravel()).astype(float))
                rows = rows - move.reshape(rows.shape)
            out[list(concept.columns)] = rows
        return out

    # -- labels --------------------------------------------------------------------------------------------

    def read(self, rows: Array, design: Array | None = None) -> Array:
        """The bottleneck with ones that a concept head gives."""
        logits = (self.design if design is None else design) @ rows.T
        if self.model.bottleneck == "probabilities":
            logits = logits.copy()
            for concept in self.concepts:
                columns = list(concept.columns)
                logits[:, columns] = activated(logits[:, columns], concept.type)
        return np.concatenate([logits, np.ones((len(logits), 1), Long)], 1)

    def label_gradient(self, read: Array, head: Array) -> tuple[Array, Array]:
        logits = read @ head.T
        if self.model.predicts_number:
            values, residual = logits, logits - long(self.labels)[:, None]
        else:
            values = activated(logits, "categorical")
            residual = values - np.eye(len(head), dtype=Long)[self.labels.numpy()]
        return residual.T @ read / len(read) + self.beta * head, values

    def label_optimum(self, read: Array) -> Array:
        head, b = long(rows_of(self.model.label_head)), read.astype(float)
        kind = "continuous" if self.model.predicts_number else "categorical"
        for _ in range(12):
            gradient, values = self.label_gradient(read, head)
            felt = _derivative(values, kind) / len(b)
            hessian = np.einsum("iab,ic,id->acbd", felt, b, b, optimize=True).reshape(head.size, head.size)
            hessian += float(self.beta) * np.eye(head.size)
            head = head - np.linalg.solve(hessian, gradient.ravel().astype(float)).reshape(head.shape)
        return head
