"""Exact edits of a model on frozen features, from what is kept about its solved heads.

The linear backbone is a standardisation, so after an edit everything but the heads is known up to an affine map:
features of samples that stay, logits, residuals and preconditioners are those before the edit. Only concepts whose
terms changed are solved (:mod:`ecbm.train.warm`), then the label head from where it was.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ecbm.edit.heads import EXACT_TOLERANCE, SolvedHeads, label_design, rows_of, solve_label, with_heads
from ecbm.edit.situation import Situation, carry, restandardised
from ecbm.train import stages
from ecbm.train.backbones import Standardise
from ecbm.train.convex import apply_blocks
from ecbm.train.leading import LeadingInverses
from ecbm.train.model import ConceptBottleneck
from ecbm.train.warm import Coordinates, KeptDesign, OldConcepts, solve_moved_concepts

if TYPE_CHECKING:
    from ecbm.edit.kept import Kept

__all__ = ["FrozenState", "class_block_step", "solve_frozen", "step_frozen"]

# A head whose kept gradient is above this is not solved (an influence step made it): every exact edit solves it.
_SOLVED = 1e-11


class FrozenState:
    """The solved concept heads of a model on its training features; concepts are rows."""

    def __init__(self, kept: Kept) -> None:
        model, design = kept.model, kept.design
        self.exact, self.single = design, design.float()
        self.parameters = rows_of(model.concept_head)
        self.logits = kept.logits.T.contiguous()
        p = torch.sigmoid(self.logits)
        self.residuals = (p - kept.terms.targets.T) * kept.terms.weights.T
        self.sums = self.residuals @ design
        gradient = self.sums / len(design) + kept.concept_l2 * self.parameters
        self.unsolved = gradient.norm(dim=1) > _SOLVED
        self.curvature = (p * (1 - p) * kept.terms.weights.T / len(design)).float()
        self.basis = kept.basis
        self.diagonal = kept.basis.diagonal(self.curvature.T, kept.concept_l2)
        count = kept.leading.shape[1]
        others = self.diagonal[:, :-count] if count < self.diagonal.shape[1] else self.diagonal
        self.preconditioner = LeadingInverses(
            kept.basis.vectors[:, -count:].contiguous(), kept.leading, others.mean(1)
        )


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Kept rows followed by those of new samples; ``base`` is the place there of every edited training row."""

    design: KeptDesign
    logits: Tensor
    residuals: Tensor
    base: Tensor | None
    statistics: Standardise | None

    def spread(self, terms: Tensor) -> Tensor:
        """(n', k) terms of the edited rows as (k, rows); 0 where a sample is gone."""
        if self.base is None:
            return terms.T
        out = terms.new_zeros(terms.shape[1], self.logits.shape[1])
        out[:, self.base] = terms.T
        return out

    def gather(self, logits: Tensor) -> Tensor:
        return logits if self.base is None else logits[:, self.base]


def _rows(situation: Situation, state: FrozenState) -> _Rows:
    old, new = situation.rows
    backbone = situation.model.backbone
    assert isinstance(backbone, Standardise)
    if situation.same_samples and torch.equal(old, new):
        return _Rows(KeptDesign(state.exact, state.single), state.logits, state.residuals, None, None)
    n, total = len(state.exact), len(situation.after)
    base = torch.full((total,), -1, dtype=torch.long)
    base[new] = old
    fresh = (base < 0).nonzero().flatten()
    base[fresh] = n + torch.arange(len(fresh))
    exact, single, logits, residuals = state.exact, state.single, state.logits, state.residuals
    if len(fresh):
        with torch.no_grad():
            added = backbone(situation.after.inputs.take(fresh))
        added = torch.cat([added, torch.ones(len(added), 1, dtype=torch.float64)], 1)
        exact, single = torch.cat([exact, added]), torch.cat([single, added.float()])
        logits = torch.cat([logits, state.parameters @ added.T], 1)
        residuals = torch.cat([residuals, residuals.new_zeros(len(residuals), len(added))], 1)
    if situation.same_samples:
        return _Rows(KeptDesign(exact, single), logits, residuals, base, None)
    # Statistics come from the samples that are left and from no others: nothing of a removed one stays in them.
    moved = restandardised(situation.model, situation.after)
    assert moved is not None
    coordinates = Coordinates(moved.ratio, moved.offset)
    return _Rows(KeptDesign(exact, single, coordinates), logits, residuals, base, moved.statistics)


def _preconditioner(state: FrozenState, rows: _Rows, concepts: Tensor) -> LeadingInverses:
    """Kept inverses of some concepts, without samples that are gone and with new ones."""
    kept = state.preconditioner.of(concepts)
    if rows.base is None:
        return kept
    count = len(state.exact)
    gone = torch.ones(count, dtype=torch.bool)
    gone[rows.base[rows.base < count]] = False
    kept = kept.after(state.single[gone], state.curvature[concepts][:, gone], -1)
    p = torch.sigmoid(rows.logits[concepts, count:]).float()
    return kept.after(rows.design.single[count:], p * (1 - p) / count, 1)


def solve_frozen(situation: Situation, kept: Kept) -> SolvedHeads | None:
    """Both heads of the linear backbone on the edited data; ``None`` where they must be solved from the data.

    That is: the joint regime, new concepts, and edits so large that plain Newton steps do not converge.
    """
    model, alpha = kept.model, kept.concept_l2
    old, new = situation.columns
    width = len(situation.edited.concept_names)
    if model.recipe.regime == "joint" or len(new) < width:
        return None
    state = kept.frozen
    rows = _rows(situation, state)
    origin = torch.empty(width, dtype=torch.long)
    origin[new] = old
    touched = situation.touched_columns()
    touched = torch.cat([touched, state.unsolved[origin].nonzero().flatten()]).unique()
    parameters, logits = rows.design.to_new(state.parameters[origin]), rows.logits[origin]
    steps = 0
    if len(touched):
        at, terms = origin[touched], situation.terms_after
        solved = solve_moved_concepts(
            rows.design,
            rows.spread(terms.targets[:, touched]),
            rows.spread(terms.weights[:, touched]),
            len(situation.after),
            alpha,
            OldConcepts(state.parameters[at], logits[touched], rows.residuals[at], state.sums[at]),
            _preconditioner(state, rows, at),
            EXACT_TOLERANCE,
        )
        if solved is None:
            return None
        parameters[touched], logits[touched], steps = solved.parameters, solved.logits, solved.newton_steps
    carried = carry(situation, refit_statistics=False)
    if rows.statistics is not None:
        carried.backbone = rows.statistics
    read = rows.gather(logits).T
    low, high = carried.low.clone(), carried.high.clone()
    low[touched], high[touched] = stages.logit_range(read[:, touched], situation.after.concepts[:, touched])
    model = with_heads(carried, parameters, None, low, high)
    return solve_label(model, situation, read, kept.label_inverses_for(situation.columns, width), steps)


def class_block_step(gradient: Tensor, inverses: Tensor, l2: float) -> Tensor:
    """The label head's step H⁻¹∇ with the classes' own blocks; what all classes share is felt by the L2 alone."""
    shared = gradient.mean(0)
    own = apply_blocks(inverses, (gradient - shared).float()).double()
    return own.sub_(own.mean(0)).add_(shared, alpha=1 / l2)


def step_frozen(situation: Situation, kept: Kept) -> ConceptBottleneck | None:
    """The EK-FAC step of both heads where the samples and concepts are the same; ``None`` otherwise.

    What :func:`~ecbm.edit.paper.influence_edit` does, from kept logits and residuals: changed terms only for the
    concept heads, moved columns only for what the label head reads.
    """
    if not situation.aligned or kept.model.recipe.regime == "joint":
        return None
    inverses = kept.label_inverses_for(situation.columns, len(kept.model.concept_names))
    if inverses is None:
        return None
    state, terms = kept.frozen, situation.terms_after
    touched, rows = situation.touched_columns(), situation.changed_rows()
    here = touched[:, None], rows[None, :]
    change = torch.sigmoid(state.logits[here]).sub_(terms.targets[rows][:, touched].T)
    change = change.mul_(terms.weights[rows][:, touched].T).sub_(state.residuals[here])
    gradient = change @ state.exact[rows] / len(situation.after)
    step = state.basis.precondition(state.diagonal[touched], gradient)
    parameters, logits = state.parameters.clone(), state.logits.clone()
    parameters[touched] -= step
    logits[touched] -= step.float() @ state.single.T
    carried = carry(situation)
    low, high = carried.low.clone(), carried.high.clone()
    low[touched], high[touched] = stages.logit_range(logits[touched].T, situation.after.concepts[:, touched])
    model = with_heads(carried, parameters, None, low, high)
    read = label_design(model, situation, logits.T).float()
    labels, beta = situation.after.labels, model.recipe.label_regularisation
    head = rows_of(model.label_head)
    residual = torch.softmax(read @ head.float().T, 1)
    residual[torch.arange(len(labels)), labels] -= 1
    label_gradient = (residual.T @ read).double().div_(len(labels)).add_(head, alpha=beta)
    return with_heads(model, parameters, head - class_block_step(label_gradient, inverses, beta), low, high)
