"""What an editor computes once about its model and keeps for every edit: features, gradient, curvature."""

from __future__ import annotations

import time
from functools import cached_property

import torch
from torch import Tensor

from ecbm.curvature import EKFAC, ConceptLoss, LabelLoss, Vector
from ecbm.curvature.losses import Fisher
from ecbm.edit.influence import ConceptPart, concept_part, objective_gradient
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs
from ecbm.train import stages
from ecbm.train.convex import FeatureBasis, with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms, concept_terms

__all__ = ["Kept"]


class Kept:
    """Lazily computed facts about a model on its training data; ``seconds`` says what each has cost."""

    def __init__(self, model: ConceptBottleneck, data: Dataset) -> None:
        self.model, self.data = model, data
        self.train = data.split("train")
        self.seconds: dict[str, float] = {}
        self._concept_curvature: dict[str, EKFAC] = {}
        self._label_curvature: dict[str, EKFAC] = {}

    def _timed(self, name: str, started: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    @cached_property
    def design(self) -> Tensor:
        """Training features with a column of ones, float64."""
        started = time.monotonic()
        design = with_ones(stages.extract_features(self.model.backbone, self.train.inputs))
        self._timed("features", started)
        return design

    @cached_property
    def validation(self) -> Tensor:
        """Validation features with a column of ones; the training ones where there is no validation split."""
        if "val" not in self.data.split_sizes:
            return self.design
        return with_ones(stages.extract_features(self.model.backbone, self.data.split("val").inputs))

    @cached_property
    def basis(self) -> FeatureBasis:
        """What preconditions solves on :attr:`design`."""
        design = self.design
        started = time.monotonic()
        basis = FeatureBasis.of(design)
        self._timed("basis", started)
        return basis

    @cached_property
    def terms(self) -> ConceptTerms:
        return concept_terms(self.train.concepts, self.model.positive_weights)

    @property
    def inputs(self) -> Inputs | Tensor:
        """What :attr:`part` reads: features for the linear backbone, inputs otherwise."""
        return self.design[:, :-1] if self.model.recipe.is_linear else self.train.inputs

    @cached_property
    def part(self) -> ConceptPart:
        return concept_part(self.model)

    @cached_property
    def gradient(self) -> Vector:
        """∇J_C at the model, over the data it was trained on."""
        started = time.monotonic()
        gradient = objective_gradient(self.part, self.inputs, self.terms, self.concept_l2)
        self._timed("gradient", started)
        return gradient

    @property
    def concept_l2(self) -> float:
        return self.model.recipe.concept_regularisation

    def concept_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_C at the model."""
        if fisher not in self._concept_curvature:
            started = time.monotonic()
            loss = ConceptLoss(self.terms.targets, self.terms.weights)
            self._concept_curvature[fisher] = EKFAC.fit(
                self.part, self.inputs, loss, l2=self.concept_l2, fisher=fisher, seed=self.model.recipe.seed
            )
            self._timed("concept curvature", started)
        return self._concept_curvature[fisher]

    @cached_property
    def read(self) -> Tensor:
        """What the label head was fitted on."""
        with torch.no_grad():
            logits = self.model.concept_head(self.design[:, :-1])
        model = self.model
        return stages.label_inputs(model.recipe, logits, self.train.concepts, model.low, model.high)

    def label_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_Y at the model."""
        if fisher not in self._label_curvature:
            started = time.monotonic()
            self._label_curvature[fisher] = EKFAC.fit(
                self.model.label_head,
                self.read,
                LabelLoss(self.train.labels),
                l2=self.model.recipe.label_regularisation,
                fisher=fisher,
                seed=self.model.recipe.seed,
            )
            self._timed("label curvature", started)
        return self._label_curvature[fisher]
