"""``exact``: both convex heads solved again on the present features; the backbone stays."""

from __future__ import annotations

import torch

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry, with_heads
from ecbm.edit.frozen import kept_rows, move_heads
from ecbm.edit.heads import EXACT_TOLERANCE, solve_concepts, solve_label
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.state import EditorState, Facts
from ecbm.train import stages

__all__ = ["exact_edit"]


def exact_edit(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """Solve touched concepts and the label head to a gradient that a certificate can be given for."""
    recipe = state.model.recipe
    if recipe.is_linear and recipe.regime != "joint" and not len(alignment.concepts.come):
        outcome = _from_kept_heads(alignment, state)
        if outcome is not None:
            return outcome
    carried = carry(alignment)
    design = state.edited_design(alignment, carried)
    solved = solve_concepts(
        carried, alignment, design, basis=state.basis.for_design(design), leading=state.leading_for(alignment)
    )
    labels = solve_label(solved.model, alignment, solved.logits, state.label_inverses(alignment))
    settings = {"why": _why(alignment), "newton_steps": solved.newton_steps + labels.newton_steps}
    return Outcome(labels.model, settings, facts=Facts(design=design), solved=True)


def _why(alignment: Alignment) -> str:
    recipe = alignment.model.recipe
    if recipe.regime == "joint":
        return "both heads together, to the nearest minimum of the joint objective, which is not convex"
    if recipe.is_linear:
        return "frozen backbone: both heads are convex, so the edit can equal retraining"
    return "heads only: both re-solved exactly on the present backbone's features"


def _from_kept_heads(alignment: Alignment, state: EditorState) -> Outcome | None:
    """Edits on frozen features, from the solved heads before them; ``None`` where plain Newton steps do not
    converge, or where concepts that are not binary move.
    """
    heads, concepts = state.frozen, alignment.concepts
    rows = kept_rows(alignment, heads)
    touched = torch.cat(
        [alignment.touched_concepts(), heads.unsolved[concepts.origin].nonzero().flatten()]
    ).unique()
    layout = alignment.edited.layout
    if not layout.plain and not bool(torch.isin(touched, layout.binary).all()):
        return None  # rows of other concepts belong together, and their scale may have moved
    parameters, logits = rows.design.to_new(heads.parameters[concepts.origin]), rows.logits[concepts.origin]
    steps = 0
    if len(touched):
        solved = move_heads(alignment, heads, rows, touched, EXACT_TOLERANCE)
        if solved is None:
            return None
        parameters[touched], logits[touched], steps = solved.parameters, solved.logits, solved.newton_steps
    carried = carry(alignment, refit_statistics=False)
    if rows.statistics is not None:
        carried.backbone = rows.statistics
    facts = Facts()
    if alignment.samples.unchanged:
        following = heads.moved(concepts, touched, parameters, alignment.terms_after)
        facts, logits = Facts(design=state.design, heads=following), following.logits
    low, high = carried.low.clone(), carried.high.clone()
    read = rows.gather(logits).T
    low[touched], high[touched] = stages.logit_range(read[:, touched], alignment.after.concepts[:, touched])
    model = with_heads(carried, parameters, None, low, high)
    labels = solve_label(model, alignment, read, state.label_inverses(alignment))
    settings = {"why": _why(alignment), "newton_steps": steps + labels.newton_steps}
    return Outcome(labels.model, settings, facts=facts, solved=True)
