"""Models that were trained with some samples of a pool and without others.

On frozen features both heads are convex, and a model without some samples is an exact edit of the one with all of
them, from its kept factors: seconds, and proven to be what training gives. Otherwise each reference is a
training of its own, with a seed of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import torch

from ecbm.edit.alignment import align
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.edit.frozen import FrozenHeads
from ecbm.edit.methods import METHODS, Options
from ecbm.edit.state import EditorState
from ecbm.read.dataset import Dataset
from ecbm.train import stages
from ecbm.train.extraction import extract_missing, pictures_of, seen_through
from ecbm.train.heads.objectives import concept_losses, concept_residual, rows_of
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train

__all__ = ["FrozenTrainer", "Trainer", "TrainingTrainer", "is_frozen", "trainer_of"]


class Trainer(Protocol):
    """Makes models of a dataset without some of its training samples."""

    data: Dataset
    """As the trained part of the models sees it."""

    def without(self, ids: Collection[str], place: int) -> ConceptBottleneck:
        """A model that never saw these; ``place`` tells references apart that need a seed."""
        ...

    def edited(
        self,
        start: ConceptBottleneck,
        gone: Collection[str],
        ids: Collection[str],
        method: str,
        options: Mapping[str, Any],
    ) -> ConceptBottleneck:
        """``start``, a model without ``gone``, after an edit by a method that removes ``ids``."""
        ...

    def retrained(self, ids: Collection[str]) -> ConceptBottleneck:
        """Trained from nothing without these, by the recipe."""
        ...


def is_frozen(recipe: Recipe) -> bool:
    """Whether a recipe's models are convex given their inputs, so that an edit can equal training."""
    return recipe.is_linear and recipe.regime != "joint"


def trainer_of(model: ConceptBottleneck, data: Dataset, state: EditorState | None = None) -> Trainer:
    """A trainer for models like this one on this data.

    ``state`` is that of the model where it was trained on this very data; it saves a training.
    """
    if is_frozen(model.recipe):
        return FrozenTrainer(model, data, state)
    return TrainingTrainer(model, data)


def _left(data: Dataset, ids: Collection[str]) -> Dataset:
    gone = set(ids)
    return data.select([row for row, name in enumerate(data.ids) if name not in gone]) if gone else data


class TrainingTrainer:
    """Every model is trained."""

    def __init__(self, model: ConceptBottleneck, data: Dataset) -> None:
        self._model, self.data = model, seen_through(model.front, data)
        extract_missing(self.data)

    def _trained(self, ids: Collection[str], recipe: Recipe) -> ConceptBottleneck:
        data = pictures_of(_left(self.data, ids))
        return train(data, recipe, front=self._model.front, device=self._model.network_device)

    def without(self, ids: Collection[str], place: int) -> ConceptBottleneck:
        recipe = self._model.recipe
        return self._trained(ids, recipe.replace(seed=recipe.seed + 1000 + place))

    def retrained(self, ids: Collection[str]) -> ConceptBottleneck:
        return self._trained(ids, self._model.recipe)

    def edited(
        self,
        start: ConceptBottleneck,
        gone: Collection[str],
        ids: Collection[str],
        method: str,
        options: Mapping[str, Any],
    ) -> ConceptBottleneck:
        editor = Editor(start, pictures_of(_left(self.data, gone)), device=start.network_device)
        return editor.apply(Edit(remove_samples=sorted(ids)), method, **options).model


class FrozenTrainer(TrainingTrainer):
    """Models are exact edits of the one with all samples."""

    def __init__(self, model: ConceptBottleneck, data: Dataset, state: EditorState | None = None) -> None:
        super().__init__(model, data)
        if state is None:
            full = train(data, model.recipe_for(data.concept_names), front=model.front)
            state = EditorState(full, self.data)
        self._state = state

    def without(self, ids: Collection[str], place: int = 0) -> ConceptBottleneck:
        return self._solved(self._state, ids, "exact", {})

    def edited(
        self,
        start: ConceptBottleneck,
        gone: Collection[str],
        ids: Collection[str],
        method: str,
        options: Mapping[str, Any],
    ) -> ConceptBottleneck:
        data = _left(self.data, gone)
        state = EditorState(start, data)
        # Other methods may read the eigenbasis as curvature, and that must be the model's own.
        if method in ("exact", "auto"):
            self._hand_over(state)
        return self._solved(state, ids, method, options)

    def _solved(
        self, state: EditorState, ids: Collection[str], method: str, options: Mapping[str, Any]
    ) -> ConceptBottleneck:
        edit = Edit(remove_samples=sorted(ids))
        edited = edit.apply_to(state.data) if ids else state.data
        alignment = align(state.model, state.data, edit, edited, state.terms)
        model = METHODS[method](alignment, state, Options(**options)).model
        model.provenance = dataclasses.replace(model.provenance, data_fingerprint="")
        return model

    def _hand_over(self, state: EditorState) -> None:
        """Give the state of a model without some samples the preconditioners of the one with all."""
        full, terms = self._state.frozen, state.terms
        design = stages.feature_design(state.model.backbone, state.train.inputs)
        rows = rows_of(state.model.concept_head)
        logits = rows @ design.T
        sums = concept_residual(logits, terms.targets.T, terms.weights.T, terms.layout, 0) @ design
        losses = concept_losses(logits, terms.targets.T, terms.weights.T, terms.layout, 0).sum(1) / len(design)
        values = losses + 0.5 * full.l2 * rows.square().sum(1)
        basis = full.basis.for_design(design)
        stale = torch.full_like(full.kept_diagonal, torch.nan)
        heads = FrozenHeads(
            design, rows, logits, sums, terms, full.l2, basis, full.leading, stale, design.norm(dim=1), values
        )
        state.__dict__ |= {"design": design, "basis": basis, "frozen": heads}
        state._label_preconditioner = self._state.label_blocks
