"""Influence through both heads, given features: exact implicit differentiation (docs/method.md, "Influence").

The label head φ is the optimum of J_Y on inputs that the concept head W gives, and W that of J_C. Backwards from
T:

    u_φ = H_Y⁻¹ ∂T/∂φ        u_W = H_C⁻¹ (∂T/∂W − ∂²J_Y/∂W∂φ u_φ)

With a frozen backbone these are all parameters, so nothing but the first order itself is approximate.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.edit.carry import has_statistics
from ecbm.edit.state import EditorState
from ecbm.train.heads.activations import activate, activation_gradient
from ecbm.train.heads.objectives import with_ones
from ecbm.train.stages import feature_design, fill_missing
from ecbm.verify.influence.balance import Balance
from ecbm.verify.influence.concept_side import ConceptSide
from ecbm.verify.influence.joint import solve_jointly
from ecbm.verify.influence.label_side import LabelSide
from ecbm.verify.influence.ranges import HIGH, LOW, moves_when_removed, quantile_rows
from ecbm.verify.influence.sensitivity import Sensitivity
from ecbm.verify.influence.targets import Target

__all__ = ["Heads"]


class Heads:
    """Both heads of a model on its data; kept between questions."""

    def __init__(self, state: EditorState) -> None:
        self.state = state
        self.concept, self.label = ConceptSide(state), LabelSide(state)
        self.layout = self.concept.layout
        recipe = state.model.recipe
        self.regime, self.reads_logits = recipe.regime, recipe.bottleneck == "logits"

    # -- forwards ------------------------------------------------------------------------------------------

    def features(self, target: Target) -> Tensor:
        """Features of the target's samples with a column of ones."""
        state = self.state
        kept = {"val": "validation", "train": "design"}.get(target.split or "")
        return getattr(state, kept) if kept else feature_design(state.model.backbone, target.data.inputs)

    def outputs(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What the label head reads (with ones) and gives, from concept logits."""
        read = with_ones(self.state.model.bottleneck_from(logits))
        return read, read @ self.label.head.T

    def value(self, target: Target) -> float:
        """T at the model."""
        logits = self.features(target) @ self.concept.head.T
        return target.value(logits, self.outputs(logits)[1])

    # -- backwards -----------------------------------------------------------------------------------------

    def through_bottleneck(self, logits: Tensor, back: Tensor) -> Tensor:
        """∂/∂z from ∂/∂b."""
        return back if self.reads_logits else activation_gradient(activate(logits, self.layout), back, self.layout)

    def by_logits(self, target: Target, logits: Tensor) -> tuple[Tensor, Tensor]:
        """∂T/∂z (m, k) at fixed heads, and ∂T/∂φ (classes, k + 1)."""
        read, outputs = self.outputs(logits)
        back = target.by_classes(outputs)
        by_concepts = self.through_bottleneck(logits, back @ self.label.head[:, :-1])
        return target.by_concepts(logits) + by_concepts, back.T @ read

    def by_training_logits(self, along: Tensor, by_range: Tensor | None) -> Tensor | None:
        """(n, k) ∂T/∂z_i of training samples, through the label head that is fitted on them, if it is."""
        if self.regime == "independent":
            return None if by_range is None else self._spread_range(by_range)
        crossed = self.label.by_inputs(along).div_(-len(self.label.design))
        return self.through_bottleneck(self.state.logits, crossed)

    def _by_range(self, along: Tensor) -> Tensor | None:
        """(2, k) ∂T/∂low and ∂T/∂high, where the label head was fitted on what they stand for."""
        if self.regime != "independent" or not self.reads_logits:
            return None
        crossed = -self.label.by_inputs(along) / len(self.label.design)
        values = fill_missing(self.state.train.concepts)
        by_range = torch.stack([(crossed * (1 - values)).sum(0), (crossed * values).sum(0)])
        if self.layout is not None:
            by_range[:, self.layout.squared] = 0.0  # these are units, not quantiles
        return by_range

    def _spread_range(self, by_range: Tensor) -> Tensor:
        """(n, k) ∂T/∂z_i from ∂T/∂low and ∂T/∂high: a quantile is a mean of two samples' logits."""
        concepts, logits = self.state.train.concepts, self.state.logits
        out = torch.zeros_like(logits)
        for column in range(logits.shape[1]):
            known = concepts[:, column]
            sides = [(known < 0.5).nonzero().flatten(), (known >= 0.5).nonzero().flatten()]
            shares = (LOW, HIGH)
            if not (len(sides[0]) and len(sides[1])):
                sides, shares = [torch.arange(len(known))] * 2, (0.05, 0.95)
            for rows, share, gradient in zip(sides, shares, by_range[:, column], strict=True):
                for row, part in quantile_rows(logits[rows, column], share):
                    out[rows[row], column] += part * gradient
        return out

    def sensitivity(self, target: Target, tolerance: float = 1e-6) -> Sensitivity:
        """What the sources of influence need (:class:`Sensitivity`)."""
        features = self.features(target)
        direct, by_label = self.by_logits(target, features @ self.concept.head.T)
        if self.regime == "joint":
            return self._joint_sensitivity(direct.T @ features, by_label)
        along, by_range = self.label.solve(by_label), None
        back = direct.T @ features
        if bool(along.any()):
            by_range = self._by_range(along)
            inner = self.by_training_logits(along, by_range)
            back = back if inner is None else back + inner.T @ self.concept.design
        moved = self.concept.solve(back, tolerance)
        removal = self._moving_units(moved, along)
        if by_range is not None:
            removal += self._moving_range(by_range)
        found = Sensitivity(
            self.concept.design @ moved.T,
            self.label.design @ along.T,
            self.concept.residual,
            self.label.residual,
            along,
            removal,
            by_range,
        )
        return self.balanced(found)

    def balanced(self, found: Sensitivity) -> Sensitivity:
        """With what a removed sample moves through positive weights that follow the labels."""
        if self.state.model.recipe.pos_weight != "balanced":
            return found
        moved = Balance(self.state, found).of_samples()
        return dataclasses.replace(found, removal=moved if found.removal is None else found.removal + moved)

    def _joint_sensitivity(self, by_concept: Tensor, by_label: Tensor) -> Sensitivity:
        moved, along = solve_jointly(self.state, by_concept, by_label)
        concepts, weight = self.concept.design @ moved.T, self.state.model.recipe.joint_weight
        # Both heads serve one objective, so a sample's class loss pulls at the concept head too.
        inner = concepts if self.reads_logits else activation_gradient(self.values, concepts, self.layout)
        return Sensitivity(
            concepts,
            self.label.design @ along.T + inner @ self.label.head[:, :-1].T,
            weight * self.concept.residual,
            self.label.residual,
            along,
            weight * self._moving_units(moved, along),
        )

    @property
    def values(self) -> Tensor:
        """(n, k) activations of the training samples."""
        return activate(self.state.logits, self.layout)

    # -- what a removed sample moves besides its own terms -------------------------------------------------

    def _moving_range(self, by_range: Tensor) -> Tensor:
        """(n,) through the quantiles that stand for absent and present."""
        logits, labels = self.state.logits, self.state.train.concepts
        moved = torch.zeros(len(logits), dtype=torch.float64)
        for column in range(logits.shape[1]):
            moved += by_range[:, column] @ moves_when_removed(logits[:, column], labels[:, column])
        return moved

    def _moving_units(self, moved: Tensor, along: Tensor) -> Tensor:
        """(n,) through standardisations of features, continuous concepts and labels that are numbers.

        Where values are standardised, without sample i their mean is −x_i/n and their scale 1 + (1 − x_i²)/2n, to
        first order. An L2 term counts parameters that read the new values; on old ones its gradient turns by (v(1
        − x_i²) − v_b x_i, −⟨v, x_i⟩)/n. Where the *output* is standardised only its bias b is counted anew, and
        turns by y_i/n.
        """
        state, count = self.state, len(self.label.design)
        removal = torch.zeros(count, dtype=torch.float64)
        if state.model.recipe.is_linear and has_statistics(state.model.backbone):
            removal -= self.concept.l2 * _turned(moved, self.concept.head, self.concept.design[:, :-1])
        if self.label.labels.is_floating_point():
            removal -= self.label.l2 * self.label.labels * along[0, -1]
        for column in () if self.layout is None else self.layout.squared.tolist():
            values = state.terms.targets[:, column].double() * (state.terms.weights[:, column] != 0)
            share = count / max(int((state.terms.weights[:, column] != 0).sum()), 1)
            removal -= share * self.concept.l2 * values * moved[column, -1]
            here = torch.tensor([column, along.shape[1] - 1])
            turned = _turned(along[:, here], self.label.head[:, here], values[:, None])
            removal -= share * self.label.l2 * turned * (state.terms.weights[:, column] != 0)
        return removal / count


def _turned(moved: Tensor, head: Tensor, rows: Tensor) -> Tensor:
    """(n,) ⟨u, the turn of the L2 term's gradient⟩ of every sample, for parameters with the bias last; times n."""
    varies = (rows != 0).any(0)
    squares = (moved[:, :-1] * head[:, :-1]).sum(0) * varies
    lines = (moved[:, :-1] * head[:, -1:]).sum(0) + (moved[:, -1:] * head[:, :-1]).sum(0)
    return squares.sum() - rows.square() @ squares - rows @ lines
