"""Class labels that are probably wrong, and samples in which many labels are.

A class is judged by the features *and* the recorded concepts: linear discriminants with a shared covariance, fitted
without the sample's fold. They need no iteration, so two hundred classes cost as much as five. How sure they may be
and how often a class slips is fitted in :mod:`ecbm.verify.suggest.values`.

Self-confidence of a class and the pooling of a sample's labels are cleanlab's.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.verify.suggest.evidence import Evidence, Records
from ecbm.verify.suggest.values import Valued, ValueFindings, judge

__all__ = ["class_logits", "find_wrong_classes", "sample_quality", "small_classes"]

_RIDGE = 0.1
# A class of fewer samples has no mean to compare with: without the sample's fold nobody may be left of it.
_FEWEST = 5


def class_logits(inputs: Tensor, classes: Tensor, class_count: int, folds: Tensor) -> Tensor:
    """Logits (n, classes) by linear discriminants that did not see the sample's fold."""
    rows = inputs.double()
    logits = torch.zeros(len(rows), class_count, dtype=torch.float64)
    for fold in range(int(folds.max()) + 1):
        out, kept = folds == fold, folds != fold
        x, y = rows[kept], classes[kept]
        counts = torch.bincount(y, minlength=class_count).double()
        means = torch.zeros(class_count, x.shape[1], dtype=torch.float64).index_add_(0, y, x)
        means = means / counts.clamp_min(1)[:, None]
        centred = x - means[y]
        covariance = centred.T @ centred / max(len(x) - class_count, 1)
        covariance.diagonal().add_(_RIDGE * float(covariance.diagonal().mean()) + 1e-9)
        weights = torch.linalg.solve(covariance, means.T)
        prior = torch.where(counts > 0, (counts / len(x)).clamp_min(1e-9).log(), -torch.inf)
        logits[out] = rows[out] @ weights - 0.5 * (means.T * weights).sum(0) + prior
    return logits


def find_wrong_classes(records: Records, evidence: Evidence, concepts: Tensor) -> ValueFindings:
    """The chance that each class label is wrong, given features and (cleaned) ``concepts`` (n, k)."""
    n, count = len(records), records.class_count
    if count < 2:
        nobody = torch.zeros(n, dtype=torch.float64)
        return ValueFindings(nobody, records.classes, torch.ones(n, count, dtype=torch.float64), 0.0)
    measured = concepts.new_zeros(n, 0) if records.measured is None else records.measured
    inputs = torch.cat([evidence.directions, 2 * records.weights * (concepts - 0.5), measured], 1)
    logits = class_logits(inputs, records.classes, count, records.folds)
    few = small_classes(records)
    logits[:, few] = -torch.inf
    known = ~few[records.classes]
    if int((~few).sum()) < 2:
        known = torch.zeros_like(known)
        logits = torch.zeros_like(logits)
    found = judge([Valued(logits, records.classes, known)], records.held & known)[0]
    # Nobody says anything about the others, so nothing speaks against them.
    sure = torch.nn.functional.one_hot(records.classes, count).double()
    return dataclasses.replace(found, probabilities=torch.where(known[:, None], found.probabilities, sure))


def small_classes(records: Records) -> Tensor:
    """(classes,) those with too few samples for their labels to be judged, or proposed."""
    return torch.bincount(records.classes, minlength=records.class_count) < _FEWEST


def sample_quality(
    labels: Tensor, weights: Tensor, present: Tensor, found: ValueFindings, classes: Tensor
) -> NDArray[np.float64]:
    """Quality (n,) of whole samples: cleanlab's soft minimum over the self-confidence of all labels of a sample.

    A missing label is as good as a sure one; the class counts as one more label.
    """
    from cleanlab.multilabel_classification import get_label_quality_scores
    from cleanlab.rank import get_label_quality_scores as class_quality

    if found.probabilities.shape[1] > 1:
        own = class_quality(classes.numpy(), found.probabilities.numpy(), method="self_confidence")
    else:
        own = np.ones(len(classes))
    p = torch.where(weights > 0, present, labels).clamp(0.0, 1.0).numpy()
    # The last column is absent and surely so: cleanlab takes labels that are all present for another format.
    p = np.concatenate([p, own[:, None], np.zeros((len(p), 1))], 1)
    given = [[*np.flatnonzero(row).tolist(), labels.shape[1]] for row in labels.numpy() > 0.5]
    pooled: NDArray[np.float64] = get_label_quality_scores(
        given, p, method="self_confidence", aggregator_kwargs={"method": "softmin", "temperature": 0.1}
    )
    return pooled
