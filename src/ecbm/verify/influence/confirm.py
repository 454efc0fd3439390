"""What really happens: the edit made, both heads solved again, the target measured."""

from __future__ import annotations

import torch

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.train.extraction import seen_through
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.influence.targets import Target

__all__ = ["actual_change", "measured"]


def measured(model: ConceptBottleneck, target: Target, units: ConceptBottleneck) -> float:
    """T at a model, in the units (of continuous concepts, and of labels that are numbers) of another.

    Where the model lacks concepts of the target, the losses of the class alone are measured.
    """
    logits = model.concept_logits(seen_through(model.front, target.data)).double()
    with torch.no_grad():
        outputs = model.label_head(model.bottleneck_from(logits))
    if units.target_scaling is not None and model.target_scaling is not None:
        (mean, scale), (own_mean, own_scale) = units.target_scaling, model.target_scaling
        outputs = (own_mean + own_scale * outputs - mean) / scale
    if model.concept_names != units.concept_names:
        return float((target.shares * target.class_losses(outputs)).sum())
    columns = model.layout.squared
    if len(columns):
        values = (logits[:, columns] - model.low[columns]) / (model.high - model.low)[columns]
        logits = logits.clone()
        logits[:, columns] = units.low[columns] + (units.high - units.low)[columns] * values
    return target.value(logits, outputs)


def actual_change(editor: Editor, target: Target, edit: Edit) -> float:
    """The change of T by an edit, both heads solved exactly."""
    now = measured(editor.model, target, editor.model)
    if edit.remove_concepts:
        now -= target.value_of_concepts(editor.model.concept_logits(seen_through(editor.model.front, target.data)))
    return measured(editor.apply(edit, "exact").model, target, editor.model) - now
