"""An edited model released under a promise of certified removal: within the budget, with fresh noise."""

from __future__ import annotations

import dataclasses

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import with_heads
from ecbm.edit.heads import label_design, solve_label
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.methods.exact import exact_edit
from ecbm.edit.state import EditorState, Facts
from ecbm.train import stages
from ecbm.train.certified import BudgetExceeded, Certified
from ecbm.train.heads.objectives import rows_of
from ecbm.train.release import Release

__all__ = ["released"]


def released(alignment: Alignment, state: EditorState, outcome: Outcome, options: Options) -> Outcome:
    """The outcome of a method with noise on both heads; solved exactly first where the budget does not reach.

    Facts about the heads before the noise are dropped: what is kept must not say more than what is released.
    """
    try:
        return _released(alignment, state, outcome, options, resolved=False)
    except BudgetExceeded:
        return _released(alignment, state, exact_edit(alignment, state, options), options, resolved=True)


def _released(
    alignment: Alignment, state: EditorState, outcome: Outcome, options: Options, *, resolved: bool
) -> Outcome:
    model, after = outcome.model, alignment.after
    recipe = model.recipe
    assert recipe.certified is not None
    release = Release(Certified(**recipe.certified), options.noise)
    # Computed from the edited data alone: kept features carry the rounding of earlier edits.
    design = stages.feature_design(model.backbone, after.inputs)
    concept = release.concept_head(
        design, alignment.terms_after, rows_of(model.concept_head), recipe.concept_regularisation
    )
    logits = design @ concept.T
    low, high = stages.logit_range(logits, after.concepts, alignment.edited.layout)
    inverses = state.label_inverses(alignment)
    solved = solve_label(with_heads(model, concept, None, low, high), alignment, logits, inverses).model
    read = label_design(solved, alignment, logits)
    label = release.label_head(
        read, alignment.labels_after, rows_of(solved.label_head), recipe.label_regularisation
    )
    final = with_heads(solved, concept, label, low, high)
    return dataclasses.replace(
        outcome,
        model=final,
        facts=Facts(design=design),
        certified=release.record() | {"resolved": resolved},
    )
