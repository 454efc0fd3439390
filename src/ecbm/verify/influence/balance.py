"""Positive weights that follow the labels: with ``pos_weight="balanced"`` one label moves those of its concept.

For a binary concept q = negatives / positives, and ∂∇J_C/∂q = (1/n) Σ_i t_i (p_i − 1) x_i. Weights of categorical
and ordinal concepts are taken as fixed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.train.terms import positive_weights
from ecbm.verify.influence.sensitivity import Sensitivity

__all__ = ["Balance"]


class Balance:
    """Counts of the training labels, and how T depends on the weights made of them."""

    def __init__(self, state: EditorState, found: Sensitivity) -> None:
        labels, layout = state.train.concepts.double(), state.train.layout
        self.labels = labels.nan_to_num(0.0)
        self.known = (~labels.isnan()).double()
        self.positive = self.labels.sum(0)
        self.negative = self.known.sum(0) - self.positive
        weights = positive_weights(state.train, state.model.recipe)
        chances = torch.sigmoid(state.logits)
        slopes = (self.labels * (chances - 1) * found.concepts).mean(0)
        own = torch.zeros(len(slopes), dtype=torch.bool)
        own[layout.binary] = True
        plain = self.negative / self.positive.clamp_min(1e-12)
        # A weight at its limit does not move.
        self.slopes = torch.where(own & (weights == plain), slopes, 0.0)
        self.weights = weights

    def _changes(self, negative: Tensor, positive: Tensor) -> Tensor:
        return -self.slopes * (negative / positive.clamp_min(0.5) - self.weights)

    def of_samples(self) -> Tensor:
        """(n,) change of T through the weights if a sample is removed."""
        negative = self.negative - (self.known - self.labels)
        changes: Tensor = self._changes(negative, self.positive - self.labels).sum(1)
        return changes

    def of_flips(self, flipped: Tensor) -> Tensor:
        """(n, k) change of T through the weights if a label becomes the flipped one."""
        move = (flipped - self.labels).nan_to_num(0.0)
        return self._changes(self.negative - move, self.positive + move)
