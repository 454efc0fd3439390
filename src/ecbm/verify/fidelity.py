"""How close an edit comes to retraining, and what a user would do instead (method.md, honest evaluation)."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ecbm.edit.editor import Editor
from ecbm.edit.heads import solve_heads
from ecbm.edit.paper import edited_design
from ecbm.edit.refine import refine
from ecbm.edit.situation import Situation, carry
from ecbm.read.inputs import TensorInputs
from ecbm.train import stages
from ecbm.train.convex import with_ones
from ecbm.train.model import ConceptBottleneck

__all__ = ["closing_seconds", "closure", "fine_tuned", "recovery"]


def closure(edited: Tensor, original: Tensor, retrained: Tensor) -> float | None:
    """1 − d(edited, retrained) / d(original, retrained) over predicted probabilities.

    0 is no edit, 1 is retraining; below 0 the edit moved away. ``None`` where retraining changes nothing.
    """
    scale = float((original - retrained).norm())
    if scale <= 1e-9 * math.sqrt(original.numel()):
        return None
    return 1 - float((edited - retrained).norm()) / scale


def recovery(edited: float, original: float, retrained: float, spread: float = 0.0) -> float | None:
    """The share of retraining's gain in a metric that an edit has; ``None`` where it is not above seed noise."""
    gain = retrained - original
    return (edited - original) / gain if gain > 2 * spread else None


def closing_seconds(editor: Editor, situation: Situation) -> float:
    """What :func:`fine_tuned` does at its end takes: a pass over the edited data, and solving both heads on it."""
    if editor.model.recipe.is_linear:
        return 0.0
    model = carry(situation, refit_statistics=True)
    started = time.monotonic()
    design = with_ones(stages.extract_features(model.backbone, situation.after.inputs))
    solve_heads(model, situation, design, features_moved=True)
    return time.monotonic() - started


def fine_tuned(
    editor: Editor, situation: Situation, seconds: float, learning_rate: float, closing: float = 0.0
) -> dict[str, ConceptBottleneck]:
    """The control: Adam on the edited data for a given time, from the unedited model.

    ``"fine-tuning"`` has its label head solved on the result, which is a favour; ``"fine-tuning, heads exactly"``
    (deep backbones only) both heads. Of the ``seconds``, ``closing`` (:func:`closing_seconds`) are left for that;
    where nothing remains there are no gradient steps and no control: the result is empty.
    """
    seconds -= closing
    if seconds <= 0:
        return {}
    model = carry(situation, refit_statistics=True)
    linear = model.recipe.is_linear
    inputs = situation.after.inputs
    if linear:
        inputs = TensorInputs(edited_design(situation, editor.kept, model)[:, :-1].float())
    part, _ = refine(model, situation, inputs, seconds=max(seconds, 1e-3), learning_rate=learning_rate)
    model.concept_head = part.concept_head.double()
    if not linear:
        model.backbone = part.backbone
    design = with_ones(stages.extract_features(model.backbone, situation.after.inputs))
    out = {"fine-tuning": _with_label_head(model, situation, design)}
    if not linear:
        out["fine-tuning, heads exactly"] = solve_heads(model, situation, design, features_moved=True).model
    return out


def _with_label_head(model: ConceptBottleneck, situation: Situation, design: Tensor) -> ConceptBottleneck:
    logits = model.concept_logits_from(design[:, :-1]).detach()
    low, high = stages.logit_range(logits, situation.after.concepts)
    read = with_ones(stages.label_inputs(model.recipe, logits, situation.after.concepts, low, high))
    beta = model.recipe.label_regularisation
    solved = stages.fit_label_head(read, situation.after.labels, len(model.class_names), beta, 1e-8)
    with torch.no_grad():
        model.label_head.weight.copy_(solved.weight)
        model.label_head.bias.copy_(solved.bias)
        model.low.copy_(low)
        model.high.copy_(high)
    return model
