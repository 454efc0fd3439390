"""How close an edit comes to retraining, and what a user would do instead (docs/method.md, "Honest evaluation")."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment, align
from ecbm.edit.carry import carry, with_heads
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.edit.heads import solve_concepts, solve_label
from ecbm.edit.methods.auto.cost import CostModel
from ecbm.edit.methods.auto.ladder import Ladder
from ecbm.edit.methods.auto.refine import Forget, refine
from ecbm.edit.methods.auto.tail import LiveTail
from ecbm.edit.methods.base import Options
from ecbm.read.inputs import TensorInputs
from ecbm.train import stages
from ecbm.train.heads.activations import tie
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

__all__ = [
    "Interval", "affordable_steps", "closure", "fine_tuned", "mean_interval", "more_training", "recovery",
    "recovery_interval",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean and the half width of its 95 % interval; without one where there is a single value."""

    mean: float
    half: float | None


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's interval of the mean of independent values, one an original seed.

    Examples
    --------
    >>> mean_interval([1.0, 2.0, 3.0]).mean
    2.0
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None)
    from scipy.stats import t

    spread = statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, float(t.ppf(0.975, len(values) - 1)) * spread)


def recovery_interval(gained: Sequence[float], to_gain: Sequence[float]) -> Interval:
    """Σ gained / Σ to_gain over original seeds, with the interval of that ratio (by linearisation).

    A ratio of sums and not the mean of ratios: a seed on which retraining gains little would otherwise decide.
    """
    whole = statistics.fmean(to_gain)
    ratio = statistics.fmean(gained) / whole
    parts = [(g - ratio * t) / whole for g, t in zip(gained, to_gain, strict=True)]
    return Interval(ratio, mean_interval(parts).half)


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
    editor: Editor,
    alignment: Alignment,
    steps: int,
    learning_rate: float,
    *,
    exact_heads: bool = False,
    ascent: float = 0.0,
) -> ConceptBottleneck | None:
    """The control: Adam on the edited data for a number of steps, from the unedited model; ``None`` without steps.

    The label head is solved on the result, which is a favour, and with ``exact_heads`` (deep backbones only) the
    concept head too, both as ``auto`` does it. With ``ascent`` the loss of removed samples is climbed at the same
    time, (1 − a) J_kept − a J_removed: NegGrad+ of Kurmanji et al. (2023).
    """
    if steps <= 0:
        return None
    model = carry(alignment)
    linear, inputs = model.recipe.is_linear, alignment.after.inputs
    if linear:
        inputs = TensorInputs(editor.state.edited_design(alignment, model)[:, :-1].float())
    forget = None
    if ascent and len(alignment.samples.gone):
        forget = _forget(editor, alignment, ascent, linear)
    part, _ = refine(model, alignment, inputs, steps=steps, learning_rate=learning_rate, forget=forget)
    model.concept_head = part.concept_head.cpu().double()
    if not linear:
        model.backbone = part.backbone
    if exact_heads:
        return _with_exact_heads(model, editor, alignment)
    design = stages.feature_design(model.backbone, alignment.after.inputs)
    rows = tie(rows_of(model.concept_head), model.layout)
    logits = design @ rows.T
    found = stages.logit_range(logits, alignment.after.concepts, model.layout)
    model = with_heads(model, rows, None, *found)
    return solve_label(model, alignment, logits, editor.state.label_inverses(alignment)).model


def more_training(editor: Editor, alignment: Alignment, budget: float) -> ConceptBottleneck | None:
    """The control for a live tail: its steps on the *unedited* data, and the heads on the edited data.

    What it gains over the heads alone is what any further training would, whatever the labels. ``None`` where the
    budget leaves no room for a live tail.
    """
    state = editor.state
    unedited = align(state.model, state.data, Edit(), state.data, state.terms)
    ladder = Ladder(unedited, state, Options(budget=budget), CostModel.of(unedited))
    ladder.start()
    tail = LiveTail()
    moved = tail.run(ladder, ladder.left) if tail.worth_it(ladder) else None
    if moved is None:
        return None
    model = carry(alignment)
    model.backbone = moved.part.backbone.eval()
    return _with_exact_heads(model, editor, alignment)


def _with_exact_heads(model: ConceptBottleneck, editor: Editor, alignment: Alignment) -> ConceptBottleneck:
    design = stages.feature_design(model.backbone, alignment.after.inputs)
    tolerance = model.recipe.head_tolerance
    solved = solve_concepts(model, alignment, design, features_moved=True, tolerance=tolerance)
    return solve_label(solved.model, alignment, solved.logits, editor.state.label_inverses(alignment)).model


def _forget(editor: Editor, alignment: Alignment, ascent: float, linear: bool) -> Forget:
    """The removed samples under the concepts that stay."""
    gone, concepts = alignment.samples.gone, alignment.concepts
    shape = (len(gone), concepts.after)
    targets, weights = torch.zeros(shape), torch.zeros(shape)
    targets[:, concepts.new] = alignment.terms_before.targets[gone][:, concepts.old]
    weights[:, concepts.new] = alignment.terms_before.weights[gone][:, concepts.old]
    inputs = alignment.before.inputs.subset(gone.tolist())
    if linear:
        inputs = TensorInputs(editor.state.design[gone, :-1].float())
    return Forget(inputs, ConceptTerms(targets, weights, alignment.terms_after.layout), ascent)
