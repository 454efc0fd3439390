"""Both convex heads, solved again on edited data for given features: the part of an edit that is exact."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import with_heads
from ecbm.train import stages
from ecbm.train.heads.activations import tie
from ecbm.train.heads.joint import solve_joint_heads
from ecbm.train.heads.label import block_step, solve_label_head
from ecbm.train.heads.mixed import solve_heads
from ecbm.train.heads.objectives import ConceptObjective, LabelObjective, rows_of, with_ones
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.model import ConceptBottleneck

__all__ = [
    "EXACT_TOLERANCE",
    "SolvedConcepts",
    "SolvedLabels",
    "label_design",
    "solve_concepts",
    "solve_label",
    "step_label",
    "unsolved_concepts",
]

# Far below what training asks for: the label head's inputs are only known up to the concept head's error divided by
# α, and that error is divided by β once more. Newton gets there in one more step.
EXACT_TOLERANCE = 5e-12
_LABEL_TOLERANCE = 1e-10
_ACCEPTABLE = 1e-9


@dataclasses.dataclass(frozen=True)
class SolvedConcepts:
    """A model with a solved concept head and its logits (n, k) on the edited training samples.

    ``work`` counts products of one row with the design and back, as the solvers do.
    """

    model: ConceptBottleneck
    logits: Tensor
    newton_steps: int
    gradient_norm: float
    work: int


@dataclasses.dataclass(frozen=True)
class SolvedLabels:
    """A model with both heads solved; ``work`` and steps are the label head's."""

    model: ConceptBottleneck
    newton_steps: int
    work: int


def label_design(model: ConceptBottleneck, alignment: Alignment, logits: Tensor) -> Tensor:
    """What the label head is fitted on after the edit, with a column of ones."""
    concepts, layout = alignment.after.concepts, model.layout
    return with_ones(stages.label_inputs(model.recipe, logits, concepts, model.low, model.high, layout))


def solve_concepts(
    carried: ConceptBottleneck,
    alignment: Alignment,
    design: Tensor,
    *,
    basis: FeatureBasis | None = None,
    leading: Tensor | None = None,
    features_moved: bool = False,
    tolerance: float = EXACT_TOLERANCE,
) -> SolvedConcepts:
    """Solve the concept head (touched concepts only) on the edited training samples; the label head is left.

    Parameters
    ----------
    carried
        The model under the new names (:func:`~ecbm.edit.carry.carry`); its heads are the warm start.
    design
        Features of the edited training samples with a column of ones.
    basis, leading
        Kept preconditioners.
    features_moved
        True if the features are not those the heads were solved on: then every concept is touched.
    tolerance
        Bound on the gradient norm.
    """
    recipe, terms = carried.recipe, alignment.terms_after
    start = tie(rows_of(carried.concept_head), terms.layout)
    if recipe.regime == "joint":
        # The joint objective couples the heads: both are moved to its nearest minimum.
        both = solve_joint_heads(design, terms, alignment.labels_after, recipe, start, rows_of(carried.label_head))
        parameters, steps, norm, work = both.concept, both.iterations, both.gradient_norm, 0
        logits = design @ parameters.T
    else:
        parameters, logits = start.clone(), design @ start.T
        touched, norm = _to_solve(start, logits, design, alignment, features_moved)
        steps, work = 0, 0 if features_moved else 2 * len(start)
        if len(touched):
            part = terms.part(slice(None), touched)
            solved = solve_heads(
                design,
                part.targets,
                part.weights,
                recipe.concept_regularisation,
                part.layout,
                tolerance=tolerance,
                accept=max(tolerance, _ACCEPTABLE),
                start=start[touched],
                basis=basis,
                leading=None if leading is None else leading[touched],
            )
            parameters[touched], logits[:, touched] = solved.parameters, solved.logits
            steps, work = solved.newton_steps, work + solved.work
            norm = (norm**2 + solved.gradient_norm**2) ** 0.5
    low, high = stages.logit_range(logits, alignment.after.concepts, alignment.edited.layout)
    return SolvedConcepts(with_heads(carried, parameters, None, low, high), logits, steps, norm, work)


def unsolved_concepts(model: ConceptBottleneck, alignment: Alignment, design: Tensor) -> SolvedConcepts:
    """The concept head as it is, on given features of the edited training samples."""
    terms = alignment.terms_after
    head = tie(rows_of(model.concept_head), terms.layout)
    logits = design @ head.T
    l2 = model.recipe.concept_regularisation
    objective = ConceptObjective(design, terms.targets, terms.weights, l2, terms.layout)
    norm = float(objective.gradient(logits, head).norm())
    low, high = stages.logit_range(logits, alignment.after.concepts, alignment.edited.layout)
    return SolvedConcepts(with_heads(model, head, None, low, high), logits, 0, norm, 2 * len(head))


def _to_solve(
    start: Tensor, logits: Tensor, design: Tensor, alignment: Alignment, features_moved: bool
) -> tuple[Tensor, float]:
    """Concepts whose terms changed, and those that an earlier influence step left off their optimum; and the norm
    of
    the gradient of the others.
    """
    if features_moved:
        return torch.arange(len(start)), 0.0
    terms, recipe = alignment.terms_after, alignment.model.recipe
    l2 = recipe.concept_regularisation
    objective = ConceptObjective(design, terms.targets, terms.weights, l2, terms.layout)
    norms = objective.gradient(logits, start).norm(dim=1)
    moving = norms > recipe.head_tolerance
    moving[alignment.touched_concepts()] = True
    moving[alignment.edited.layout.closed(moving.nonzero().flatten())] = True
    return moving.nonzero().flatten(), float(norms[~moving].norm())


def solve_label(
    model: ConceptBottleneck, alignment: Alignment, logits: Tensor, inverses: Tensor | None
) -> SolvedLabels:
    """Solve the label head of ``model`` on the edited training samples' concept logits, from where it is.

    ``inverses`` are kept ones (:func:`~ecbm.train.heads.precondition.invert_blocks`).
    """
    solved = solve_label_head(
        label_design(model, alignment, logits),
        alignment.labels_after,
        None,
        len(model.class_names),
        model.recipe.label_regularisation,
        tolerance=_LABEL_TOLERANCE,
        accept=_ACCEPTABLE,
        start=rows_of(model.label_head),
        inverses=inverses,
        l1=model.recipe.label_l1 or 0.0,
    )
    final = with_heads(model, rows_of(model.concept_head), solved.parameters, model.low, model.high)
    return SolvedLabels(final, solved.newton_steps, solved.work)


def step_label(
    model: ConceptBottleneck, alignment: Alignment, logits: Tensor, inverses: Tensor, steps: int = 2
) -> SolvedLabels:
    """A few Newton steps of the label head with the classes' own blocks, where a solve costs too much.

    A step that does not lower the objective is halved until it does; ``inverses`` must be at hand. A sparse head
    has no such steps and is solved.
    """
    if model.recipe.label_l1:
        return solve_label(model, alignment, logits, None)
    design = label_design(model, alignment, logits)
    beta = model.recipe.label_regularisation
    objective = LabelObjective(design, alignment.labels_after, None, beta)
    parameters = rows_of(model.label_head)
    now = design @ parameters.T
    value, done = float(objective.value(parameters, now)), 0
    for _ in range(steps):
        direction = block_step(objective.gradient(now, parameters), inverses, beta)
        change, length = design @ direction.T, 1.0
        while length > 1e-3:
            there = float(objective.value(parameters - length * direction, now - length * change))
            if there < value:
                parameters, now, value, done = (
                    parameters - length * direction,
                    now - length * change,
                    there,
                    done + 1,
                )
                break
            length /= 2
    final = with_heads(model, rows_of(model.concept_head), parameters, model.low, model.high)
    return SolvedLabels(final, done, 4 * len(parameters) * steps)
