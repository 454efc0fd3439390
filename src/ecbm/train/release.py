"""Heads released with noise that hides what a solver has left (docs/certified.md)."""

from __future__ import annotations

import dataclasses
import math
import secrets
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ecbm.read.concept_types import ConceptLayout
from ecbm.train.certified import BudgetExceeded, Certified
from ecbm.train.heads.activations import tie
from ecbm.train.heads.objectives import ConceptObjective, LabelObjective
from ecbm.train.terms import ConceptTerms

__all__ = ["Release"]

_UNIT = 2.0**-53


class Release:
    """The noise of one release of both heads.

    Parameters
    ----------
    promise
        What is promised.
    secret
        The seed of the noise, which nobody who is not to subtract it may know; drawn from the system by default.
    """

    def __init__(self, promise: Certified, secret: int | None = None) -> None:
        self.promise = promise
        # 128 bits: too many to be guessed; the recipe's seed is public and would let anybody subtract the noise.
        entropy = secrets.randbits(128) if secret is None else secret
        self._draw = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
        self._gradients: dict[str, float] = {}
        self._scales: dict[str, float] = {}

    def concept_head(self, design: Tensor, terms: ConceptTerms, rows: Tensor, l2: float) -> Tensor:
        """A solved concept head (k, d) with noise.

        Raises
        ------
        BudgetExceeded
            The head is not solved well enough; nothing was drawn.
        """
        objective = ConceptObjective(design, terms.targets, terms.weights, l2, terms.layout)
        gradient = objective.gradient(design @ rows.T, rows)
        return self._noisy("concept", design, gradient, rows, l2, terms.layout)

    def label_head(self, design: Tensor, labels: Tensor, rows: Tensor, l2: float) -> Tensor:
        """A solved label head (classes, d) with noise; ``design`` is what the *released* concept head gives it."""
        gradient = LabelObjective(design, labels, None, l2).gradient(design @ rows.T, rows)
        return self._noisy("label", design, gradient, rows, l2, None)

    def _noisy(
        self, head: str, design: Tensor, gradient: Tensor, rows: Tensor, l2: float, layout: ConceptLayout | None
    ) -> Tensor:
        rounding = _UNIT * (2 + math.log2(len(design))) * float(design.norm(dim=1).mean()) * len(rows) ** 0.5
        left = float(gradient.norm()) + rounding
        # Written so that a gradient that is not a number is refused.
        if not left <= self.promise.tolerance:
            raise BudgetExceeded(head, left, self.promise.tolerance)
        self._gradients[head], self._scales[head] = left, self.promise.noise(l2)
        drawn = torch.from_numpy(self._draw.standard_normal(tuple(rows.shape)))
        # Slopes that thresholds share get one noise: the projection of a normal vector is one on their subspace.
        return rows + self._scales[head] * tie(drawn, layout)

    def record(self) -> dict[str, Any]:
        """What the ledger keeps of it: never the noise."""
        gradients = self._gradients["concept"], self._gradients["label"]
        return {
            **dataclasses.asdict(self.promise),
            "concept_noise": self._scales["concept"],
            "label_noise": self._scales["label"],
            "concept_gradient": gradients[0],
            "label_gradient": gradients[1],
            "epsilon_spent": self.promise.spent(gradients),
        }
