"""How close an edit comes to retraining, and what a user would do instead (docs/method.md, "Honest evaluation")."""

from __future__ import annotations

import math
import time

from torch import Tensor

from ecbm.edit.editor import Editor
from ecbm.edit.heads import SolvedConcepts, rows_of, solve_concepts, solve_label, with_heads
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


def closing_seconds(editor: Editor, situation: Situation, *, exact_heads: bool) -> float:
    """What :func:`fine_tuned` does at its end takes: a pass over the edited data, and the solves on it."""
    if editor.model.recipe.is_linear:
        return 0.0
    model = carry(situation, refit_statistics=True)
    started = time.monotonic()
    _close(model, editor, situation, exact_heads)
    return time.monotonic() - started


def fine_tuned(
    editor: Editor,
    situation: Situation,
    seconds: float,
    learning_rate: float,
    *,
    exact_heads: bool = False,
    closing: float = 0.0,
) -> ConceptBottleneck | None:
    """The control: Adam on the edited data for a given time, from the unedited model.

    The label head is solved on the result, which is a favour, and with ``exact_heads`` (deep backbones only) the
    concept head too, both as ``auto`` does it. Of the ``seconds``, ``closing`` (:func:`closing_seconds`) are left
    for that; where nothing remains there are no gradient steps and no control: ``None``.
    """
    seconds -= closing
    if seconds <= 0:
        return None
    model = carry(situation, refit_statistics=True)
    linear = model.recipe.is_linear
    inputs = situation.after.inputs
    if linear:
        inputs = TensorInputs(edited_design(situation, editor.kept, model)[:, :-1].float())
    part, _ = refine(model, situation, inputs, seconds=max(seconds, 1e-3), learning_rate=learning_rate)
    model.concept_head = part.concept_head.double()
    if not linear:
        model.backbone = part.backbone
    return _close(model, editor, situation, exact_heads)


def _close(model: ConceptBottleneck, editor: Editor, situation: Situation, exact_heads: bool) -> ConceptBottleneck:
    design = with_ones(stages.extract_features(model.backbone, situation.after.inputs))
    if exact_heads:
        tolerance = model.recipe.head_tolerance
        found = solve_concepts(model, situation, design, features_moved=True, tolerance=tolerance)
    else:
        rows = rows_of(model.concept_head)
        logits = design @ rows.T
        low, high = stages.logit_range(logits, situation.after.concepts)
        found = SolvedConcepts(with_heads(model, rows, None, low, high), logits, 0)
    inverses = editor.kept.label_inverses_for(situation.columns, len(model.concept_names))
    return solve_label(found.model, situation, found.logits, inverses, 0).model
