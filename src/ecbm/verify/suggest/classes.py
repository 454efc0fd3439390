"""Class labels that are probably wrong, and samples in which many labels are.

A class is judged by the features *and* the recorded concepts: linear discriminants with a shared covariance, fitted
without the sample's fold. They need no iteration, so two hundred classes cost as much as five. A temperature makes
their probabilities fit the recorded classes, and one rate of slips for all classes explains what is left.

Self-confidence of a class and the pooling of a sample's labels are cleanlab's.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.verify.suggest.evidence import Evidence, Records

__all__ = ["ClassFindings", "class_probabilities", "find_wrong_classes", "sample_quality"]

_RIDGE = 0.1
_TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)
_STEPS = 60


@dataclasses.dataclass(frozen=True)
class ClassFindings:
    """For every sample the chance that its class is wrong, the likeliest other class, and P(class) (n, classes)."""

    wrong: Tensor
    proposed: Tensor
    probabilities: Tensor
    slip_rate: float


def class_probabilities(inputs: Tensor, classes: Tensor, class_count: int, folds: Tensor) -> Tensor:
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


def _slips(log_p: Tensor, classes: Tensor, count: int) -> tuple[float, float]:
    """Rate of slips and log-likelihood, by expectation maximisation."""
    own = log_p[torch.arange(len(classes)), classes].exp().clamp(1e-12, 1.0)
    rate = 0.03
    for _ in range(_STEPS):
        recorded = (1 - rate) * own + rate * (1 - own) / (count - 1)
        rate = min(max(float((rate * (1 - own) / (count - 1) / recorded).mean()), 1e-6), 0.45)
    recorded = (1 - rate) * own + rate * (1 - own) / (count - 1)
    return rate, float(recorded.log().sum())


def find_wrong_classes(records: Records, evidence: Evidence, concepts: Tensor) -> ClassFindings:
    """The chance that each class label is wrong, given features and (cleaned) ``concepts`` (n, k)."""
    n, count = len(records), records.class_count
    nobody = torch.zeros(n, dtype=torch.float64)
    if count < 2:
        return ClassFindings(nobody, records.classes, torch.ones(n, count, dtype=torch.float64), 0.0)
    inputs = torch.cat([evidence.directions, 2 * records.weights * (concepts - 0.5)], 1)
    logits = class_probabilities(inputs, records.classes, count, records.folds)
    honest, classes = records.held, records.classes
    tried = []
    for temperature in _TEMPERATURES:
        rate, likelihood = _slips(torch.log_softmax(logits[honest] / temperature, 1), classes[honest], count)
        tried.append((likelihood, rate, temperature))
    _, rate, temperature = max(tried)
    p = torch.softmax(logits / temperature, 1)
    own = p[torch.arange(n), classes]
    wrong = rate * (1 - own) / (count - 1)
    wrong = wrong / (wrong + (1 - rate) * own).clamp_min(1e-300)
    others = p.clone()
    others[torch.arange(n), classes] = -1.0
    return ClassFindings(wrong, others.argmax(1), p, rate)


def sample_quality(
    labels: Tensor, weights: Tensor, present: Tensor, found: ClassFindings, classes: Tensor
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
    p = np.concatenate([p, own[:, None]], 1)
    given = [[*np.flatnonzero(row).tolist(), labels.shape[1]] for row in labels.numpy() > 0.5]
    pooled: NDArray[np.float64] = get_label_quality_scores(
        given, p, method="self_confidence", aggregator_kwargs={"method": "softmin", "temperature": 0.1}
    )
    return pooled
