"""Influence along a training: exact influence through both heads, on the features of every epoch that was kept.

A network that has been trained to the end has learnt its training samples by heart: their features carry their
labels, and what a sample would change can hardly be seen any more. Backbones from earlier epochs have seen less
of them. On each the convex heads are solved on the present data and asked exactly; the mean is the answer.
(TracIn and SOURCE sum over checkpoints, too, with steps of gradient descent in place of solved heads.)
"""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.progress import progress
from ecbm.train import stages
from ecbm.train.heads.objectives import with_ones
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.model import ConceptBottleneck, linear_from
from ecbm.train.terms import label_targets
from ecbm.train.trajectory import backbone_at
from ecbm.verify.influence.heads import Heads

__all__ = ["heads_along"]

_MOST = 8
# Influence to three digits needs no heads to machine precision.
_TOLERANCE = 1e-8


def heads_along(state: EditorState, epochs: list[Path]) -> list[Heads]:
    """Both heads solved on the features of epochs, evenly chosen where there are many; the last is among them."""
    count = min(len(epochs), _MOST)
    chosen = [epochs[round((place + 1) * len(epochs) / count) - 1] for place in range(count)]
    found = []
    with progress("Epochs", count) as bar:
        for path in chosen:
            found.append(Heads(_state_at(state, path)))
            bar.advance()
    return found


def _state_at(state: EditorState, path: Path) -> EditorState:
    """What is known of the model with the backbone of an epoch."""
    model = copy.copy(state.model)
    # The modules of a shallow copy are in a dictionary that both would share.
    model._modules, model._buffers = dict(state.model._modules), dict(state.model._buffers)
    model.backbone = backbone_at(path, state.model.backbone)
    design = stages.feature_design(model.backbone, state.train.inputs)
    basis = FeatureBasis.of(design)
    _solve_heads(model, state, design, basis)
    other = EditorState(model, state.data)
    other.__dict__["design"], other.__dict__["basis"] = design, basis
    return other


def _solve_heads(model: ConceptBottleneck, state: EditorState, design: Tensor, basis: FeatureBasis) -> None:
    """Put the heads into the model that training would have ended with on these features."""
    recipe, train, layout = model.recipe, state.train, model.layout
    solved = stages.fit_concept_head(design, state.terms, recipe.concept_regularisation, _TOLERANCE, None, basis)
    model.concept_head = linear_from(solved.parameters)
    low, high = stages.logit_range(solved.logits, train.concepts, layout)
    model._buffers["low"], model._buffers["high"] = low, high
    read = with_ones(stages.label_inputs(recipe, solved.logits, train.concepts, low, high, layout))
    labels, classes = label_targets(train, model.target_scaling), len(model.class_names)
    beta, l1 = recipe.label_regularisation, recipe.label_l1 or 0.0
    model.label_head = linear_from(
        stages.fit_label_head(read, labels, classes, beta, _TOLERANCE, None, l1).parameters
    )
