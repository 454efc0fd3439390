"""What a suspicious label does to the model: the predicted change of the validation loss if it were the other way.

The concept head is convex, so an influence step says what solving it again would give. For concept j with Hessian
H_j = Xᵀ diag(w p(1 − p)) X / n + α_j, turning label t_i into t' moves the head by H_j⁻¹ x_i (t' − t) / n, and the
mean validation loss, with gradient g, by gᵀ H_j⁻¹ x_i (t' − t) / n. The label's self-influence is (p − t)² x_iᵀ
H_j⁻¹ x_i / n: how much of its own loss the label takes away by being there.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.verify.suggest.evidence import Evidence, Records
from ecbm.verify.suggest.logistic import with_ones

__all__ = ["FlipEffects", "flip_effects"]


@dataclasses.dataclass(frozen=True)
class FlipEffects:
    """Of one concept: the change of its mean validation loss if each label in question were the other way (``None``
    without validation labels), the self-influence of each, and the share of all labels of the concept with less.
    """

    changes: Tensor | None
    influences: Tensor
    ranks: Tensor


def flip_effects(
    records: Records, evidence: Evidence, validation: Tensor, rows: Tensor, concept: int
) -> FlipEffects:
    """What the labels of ``rows`` do to the head of one concept.

    Parameters
    ----------
    validation
        (n,) which samples are for validation.
    rows, concept
        The labels in question.
    """
    design = with_ones(evidence.directions)
    # The heads of the folds lie around the one of all samples.
    parameters = evidence.head.parameters[:, concept].mean(0)
    labels, known = records.best[:, concept], records.weights[:, concept]
    p = torch.sigmoid(design @ parameters)
    count = max(int((~validation).sum()), 1)
    hessian = (design.T * (known * (~validation) * p * (1 - p))) @ design / count
    hessian.diagonal().add_(float(evidence.head.l2[concept]))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    towards = design @ inverse
    influences = (p - labels).square() * (towards * design).sum(1) / count
    ordered = influences[known > 0].sort().values
    ranks = torch.searchsorted(ordered, influences[rows]) / max(len(ordered), 1)
    checked = validation & (known > 0)
    changes = None
    if bool(checked.any()):
        gradient = ((p - labels)[checked, None] * design[checked]).mean(0)
        changes = (1 - 2 * labels[rows]) * (towards[rows] @ gradient) / count
    return FlipEffects(changes, influences[rows], ranks)
