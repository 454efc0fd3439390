"""How a target depends on every term of the training objectives, to first order.

With θ all parameters, T the target and H the Hessian of the objective, u = H⁻¹∇T says it all: a change δ∇J of the
objective's gradient moves the optimum by −H⁻¹δ∇J and the target by −⟨u, δ∇J⟩. All that sources need of u is how
it moves the outputs of the training samples, ż_i = J_i u, for ⟨u, ∇ℓ_i⟩ = ⟨∂ℓ_i/∂z_i, ż_i⟩.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

__all__ = ["Sensitivity"]


@dataclasses.dataclass(frozen=True, eq=False)
class Sensitivity:
    """The training samples' outputs moved along u.

    Attributes
    ----------
    concepts, classes
        (n, k) and (n, classes): changes of concept logits and of the label head's outputs.
    concept_residual, class_residual
        Derivatives of the samples' losses by them.
    head
        (classes, k + 1) the label head's part of u.
    removal
        (n,) what else a sample's removal changes in T: standardisations that move with the samples.
    by_range
        (2, k) ∂T/∂low and ∂T/∂high, where the label head was fitted on true concepts as logits; or ``None``.
    """

    concepts: Tensor
    classes: Tensor
    concept_residual: Tensor
    class_residual: Tensor
    head: Tensor
    removal: Tensor | None = None
    by_range: Tensor | None = None

    def __len__(self) -> int:
        return len(self.concepts)

    def of_samples(self) -> Tensor:
        """(n,) predicted change of T if a sample were removed.

        J' has n − 1 samples: δ∇J = −(∇ℓ_i − mean_i ∇ℓ_i)/(n − 1).
        """
        scores = self._scores()
        change = (scores - scores.mean()) / max(len(self) - 1, 1)
        return change if self.removal is None else change + self.removal

    def of_group(self, rows: Tensor) -> float:
        """Predicted change of T if some samples were removed together."""
        scores = self._scores()
        change = (scores[rows] - scores.mean()).sum() / max(len(self) - len(rows), 1)
        return float(change if self.removal is None else change + self.removal[rows].sum())

    def _scores(self) -> Tensor:
        """(n,) ⟨u, ∇ℓ_i⟩."""
        return (self.concept_residual * self.concepts).sum(1) + (self.class_residual * self.classes).sum(1)

    def of_terms(self, residuals: Tensor) -> Tensor:
        """(n, k) predicted change of T if a term's derivative became that of ``residuals``."""
        return (self.concept_residual - residuals) * self.concepts / len(self)

    def of_columns(self) -> Tensor:
        """(k,) predicted change of T if a column's terms left J_C, through what the columns share."""
        found: Tensor = (self.concept_residual * self.concepts).mean(0)
        return found
