"""How close an edit comes to retraining, and what a user would do instead (docs/method.md, "Honest evaluation")."""

from __future__ import annotations

import math

from torch import Tensor

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry, with_heads
from ecbm.edit.editor import Editor
from ecbm.edit.heads import solve_concepts, solve_label
from ecbm.edit.methods.auto.cost import CostModel
from ecbm.edit.methods.auto.refine import refine
from ecbm.read.inputs import TensorInputs
from ecbm.train import stages
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["affordable_steps", "closure", "fine_tuned", "recovery"]


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


def affordable_steps(alignment: Alignment, budget: float, *, exact_heads: bool) -> int:
    """Gradient steps that a share of retraining's work buys beside what :func:`fine_tuned` does at its end."""
    cost = CostModel.of(alignment)
    closing = cost.closing + cost.labels if exact_heads else cost.passes(cost.samples) + cost.labels
    return max(0, int((budget * cost.retraining - closing) / cost.step))


def fine_tuned(
    editor: Editor, alignment: Alignment, steps: int, learning_rate: float, *, exact_heads: bool = False
) -> ConceptBottleneck | None:
    """The control: Adam on the edited data for a number of steps, from the unedited model; ``None`` without steps.

    The label head is solved on the result, which is a favour, and with ``exact_heads`` (deep backbones only) the
    concept head too, both as ``auto`` does it.
    """
    if steps <= 0:
        return None
    model = carry(alignment)
    linear, inputs = model.recipe.is_linear, alignment.after.inputs
    if linear:
        inputs = TensorInputs(editor.state.edited_design(alignment, model)[:, :-1].float())
    part, _ = refine(model, alignment, inputs, steps=steps, learning_rate=learning_rate)
    model.concept_head = part.concept_head.cpu().double()
    if not linear:
        model.backbone = part.backbone
    design = stages.feature_design(model.backbone, alignment.after.inputs)
    if exact_heads:
        tolerance = model.recipe.head_tolerance
        solved = solve_concepts(model, alignment, design, features_moved=True, tolerance=tolerance)
        model, logits = solved.model, solved.logits
    else:
        rows = rows_of(model.concept_head)
        logits = design @ rows.T
        model = with_heads(model, rows, None, *stages.logit_range(logits, alignment.after.concepts))
    return solve_label(model, alignment, logits, editor.state.label_inverses(alignment)).model
