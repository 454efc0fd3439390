"""What an attacker reads of a sample: how likely its class and its concepts are to a model.

    class      log p_y / (1 − p_y), the margin of the true class; of a number −½(f − y)² in standardised units
    concepts   mean over the known concepts of log p(t_j)

Likelihoods for RMIA are p_y and the geometric mean of p(t_j).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.read.dataset import Dataset
from ecbm.train.heads.objectives import concept_losses
from ecbm.train.model import ConceptBottleneck

__all__ = ["SIGNALS", "likelihoods", "signals"]

SIGNALS = ("class", "concepts")
Array = NDArray[np.float64]


def signals(model: ConceptBottleneck, samples: Dataset) -> Array:
    """(n, 2): the class's and the concepts' signal of every sample, by the labels that the dataset gives them."""
    logits = model.concept_logits(samples).double().cpu()
    with torch.no_grad():
        outputs = model.label_head(model.bottleneck_from(logits)).double()
    both = torch.stack([_of_class(model, outputs, samples.labels), _of_concepts(model, logits, samples)], 1)
    return both.numpy()


def _of_class(model: ConceptBottleneck, outputs: Tensor, labels: Tensor) -> Tensor:
    if model.target_scaling is not None:
        mean, scale = model.target_scaling.tolist()
        error: Tensor = outputs[:, 0] - (labels - mean) / scale
        return -0.5 * error.square()
    own: Tensor = outputs.gather(1, labels[:, None])[:, 0]
    others = outputs.scatter(1, labels[:, None], -torch.inf)
    return own - others.logsumexp(1)


def _of_concepts(model: ConceptBottleneck, logits: Tensor, samples: Dataset) -> Tensor:
    known = ~samples.concepts.isnan()
    targets = samples.concepts.nan_to_num(0.0).double()
    columns = model.layout.squared
    if len(columns):
        # The logits of the values 0 and 1 say how this model standardises.
        low, high = model.low[columns], model.high[columns]
        targets[:, columns] = low + (high - low) * targets[:, columns]
    losses = concept_losses(logits, targets, known.double(), model.layout)
    return -losses.sum(1) / known.sum(1).clamp_min(1)


def likelihoods(values: Array, *, number: bool) -> Array:
    """Signals (…, 2) as likelihoods."""
    first = np.exp(values[..., 0]) if number else 1 / (1 + np.exp(-values[..., 0]))
    return np.stack([first, np.exp(values[..., 1])], -1)
