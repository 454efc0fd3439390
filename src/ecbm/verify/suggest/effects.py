"""What a suspicious label does to the model: the predicted change of the validation loss if it were the other way.

The concept head is convex, so an influence step says what solving it again would give. For concept j with Hessian
H_j = Xᵀ diag(w p(1 − p)) X / n + α_j, turning label t_i into t' moves the head by H_j⁻¹ x_i (t' − t) / n, and the
mean validation loss, with gradient g, by gᵀ H_j⁻¹ x_i (t' − t) / n. The label's self-influence is (p − t)² x_iᵀ
H_j⁻¹ x_i / n: how much of its own loss the label takes away by being there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm.verify.suggest.evidence import Evidence, Records
from ecbm.verify.suggest.logistic import with_ones

__all__ = ["flip_effects"]


def flip_effects(
    records: Records, evidence: Evidence, validation: Tensor, rows: Tensor, concept: int
) -> tuple[Tensor | None, Tensor]:
    """Change of the mean validation loss of one concept if each of ``rows`` had the other label, and
    self-influence.

    Parameters
    ----------
    validation
        (n,) which samples are for validation; the change is ``None`` if none of them has the label.
    rows, concept
        The labels in question.
    """
    design = with_ones(evidence.directions)
    # The heads of the folds lie around the one of all samples.
    parameters = evidence.head.parameters[:, concept].mean(0)
    labels, weights = records.best[:, concept], records.weights[:, concept] * (~validation)
    p = torch.sigmoid(design @ parameters)
    count = max(int((~validation).sum()), 1)
    hessian = (design.T * (weights * p * (1 - p))) @ design / count
    hessian.diagonal().add_(float(evidence.head.l2[concept]))
    x = design[rows]
    towards = torch.linalg.solve(hessian, x.T)
    residual = (p - labels)[rows]
    own = residual.square() * (x * towards.T).sum(1) / count
    checked = validation & (records.weights[:, concept] > 0)
    if not bool(checked.any()):
        return None, own
    gradient = ((p - labels)[checked, None] * design[checked]).mean(0)
    return (1 - 2 * labels[rows]) * (gradient @ towards) / count, own
