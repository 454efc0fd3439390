"""Both convex heads, re-solved on edited data for given features: the part of an edit that is exact."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.edit.situation import Situation
from ecbm.train import stages
from ecbm.train.convex import FeatureBasis, concept_objective, solve_concept_head, solve_label_head, with_ones
from ecbm.train.joint import solve_joint_heads
from ecbm.train.model import ConceptBottleneck, linear_from
from ecbm.train.terms import ConceptTerms

__all__ = [
    "EXACT_TOLERANCE",
    "SolvedConcepts",
    "SolvedHeads",
    "label_design",
    "rows_of",
    "solve_concepts",
    "solve_heads",
    "solve_label",
    "with_heads",
]

# Far below what training asks for: the label head's inputs are only known up to the concept head's error divided by
# α, and that error is divided by β once more. Newton gets there in one more step.
EXACT_TOLERANCE = 5e-12
_LABEL_TOLERANCE = 1e-10
_ACCEPTABLE = 1e-9


@dataclasses.dataclass(frozen=True)
class SolvedHeads:
    """A model with re-solved heads."""

    model: ConceptBottleneck
    newton_steps: int


@dataclasses.dataclass(frozen=True)
class SolvedConcepts:
    """A model with a re-solved concept head, and its logits on the edited training samples."""

    model: ConceptBottleneck
    logits: Tensor
    newton_steps: int


def rows_of(layer: torch.nn.Linear) -> Tensor:
    """A head's parameters as rows with the bias in the last column."""
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().double()


def label_design(model: ConceptBottleneck, situation: Situation, logits: Tensor) -> Tensor:
    """What the label head is fitted on after the edit, with a column of ones."""
    concepts = situation.after.concepts
    return with_ones(stages.label_inputs(model.recipe, logits, concepts, model.low, model.high))


def _concepts(
    start: Tensor,
    design: Tensor,
    terms: ConceptTerms,
    l2: float,
    touched: Tensor,
    basis: FeatureBasis | None,
    leading: Tensor | None,
    tolerance: float,
) -> tuple[Tensor, int]:
    if len(touched) == 0:
        return start, 0
    solved = solve_concept_head(
        design,
        terms.targets[:, touched],
        terms.weights[:, touched],
        l2,
        tolerance=tolerance,
        accept=max(tolerance, _ACCEPTABLE),
        start=start[touched],
        basis=basis,
        leading=None if leading is None else leading[touched],
    )
    parameters = start.clone()
    parameters[touched] = solved.parameters
    return parameters, solved.newton_steps


def _to_solve(start: Tensor, design: Tensor, situation: Situation, l2: float, solved: float) -> Tensor:
    """Concepts whose terms changed, and those that an earlier influence step left off their optimum."""
    terms = situation.terms_after
    gradient = concept_objective(design, terms.targets.double(), terms.weights.double(), start, l2)[1]
    moving: Tensor = gradient.norm(dim=1) > solved
    moving[situation.touched_columns()] = True
    return moving.nonzero().flatten()


def solve_heads(
    carried: ConceptBottleneck,
    situation: Situation,
    design: Tensor,
    *,
    basis: FeatureBasis | None = None,
    leading: Tensor | None = None,
    inverses: Tensor | None = None,
    features_moved: bool = False,
) -> SolvedHeads:
    """Solve the concept head (touched concepts only) and the label head on the edited training samples.

    Parameters
    ----------
    carried
        The model under the new names (:func:`~ecbm.edit.situation.carry`); its heads are the warm start.
    design
        Features of the edited training samples with a column of ones.
    basis, leading, inverses
        Kept preconditioners of the two heads.
    features_moved
        True if the features are not those the heads were solved on: then every concept is touched.
    """
    solved = solve_concepts(carried, situation, design, basis=basis, leading=leading, features_moved=features_moved)
    return solve_label(solved.model, situation, solved.logits, inverses, solved.newton_steps)


def solve_concepts(
    carried: ConceptBottleneck,
    situation: Situation,
    design: Tensor,
    *,
    basis: FeatureBasis | None = None,
    leading: Tensor | None = None,
    features_moved: bool = False,
    tolerance: float = EXACT_TOLERANCE,
) -> SolvedConcepts:
    """The first half of :func:`solve_heads`; the label head is left as it is."""
    recipe, terms = carried.recipe, situation.terms_after
    alpha = recipe.concept_regularisation
    if recipe.regime == "joint":
        parameters, steps = _jointly(carried, situation, design)
    else:
        start = rows_of(carried.concept_head)
        if features_moved:
            touched = torch.arange(terms.targets.shape[1])
        else:
            touched = _to_solve(start, design, situation, alpha, recipe.head_tolerance)
        parameters, steps = _concepts(start, design, terms, alpha, touched, basis, leading, tolerance)
    logits = design @ parameters.T
    low, high = stages.logit_range(logits, situation.after.concepts)
    return SolvedConcepts(with_heads(carried, parameters, None, low, high), logits, steps)


def solve_label(
    model: ConceptBottleneck, situation: Situation, logits: Tensor, inverses: Tensor | None, steps: int
) -> SolvedHeads:
    """Solve the label head of ``model`` on the edited training samples' concept logits, from where it is.

    ``steps`` is what the concept head took; ``inverses`` are kept ones (:func:`~ecbm.train.convex.invert_blocks`).
    """
    read = label_design(model, situation, logits)
    solved = solve_label_head(
        read,
        situation.after.labels,
        torch.ones(len(read), dtype=torch.float64),
        len(model.class_names),
        model.recipe.label_regularisation,
        tolerance=_LABEL_TOLERANCE,
        accept=_ACCEPTABLE,
        start=rows_of(model.label_head),
        inverses=inverses,
    )
    final = with_heads(model, rows_of(model.concept_head), solved.parameters, model.low, model.high)
    return SolvedHeads(final, steps + solved.newton_steps)


def _jointly(carried: ConceptBottleneck, situation: Situation, design: Tensor) -> tuple[Tensor, int]:
    """The joint objective couples the heads: both are moved to its nearest minimum."""
    solved = solve_joint_heads(
        design,
        situation.terms_after,
        situation.after.labels,
        carried.recipe,
        rows_of(carried.concept_head),
        rows_of(carried.label_head),
    )
    return solved.concept, solved.iterations


def with_heads(
    model: ConceptBottleneck, concept: Tensor, label: Tensor | None, low: Tensor, high: Tensor
) -> ConceptBottleneck:
    """The model with other heads (``label`` ``None`` keeps its own) and other intervention logits."""
    return ConceptBottleneck(
        model.backbone,
        linear_from(concept),
        model.label_head if label is None else linear_from(label),
        model.concept_names,
        model.class_names,
        model.recipe,
        model.input_shape,
        model.positive_weights,
        low,
        high,
        model.provenance,
    )
