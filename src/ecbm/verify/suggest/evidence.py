"""What a model that did not see a label thinks of it: the inputs of everything that decides whether it is wrong."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.verify.suggest.logistic import OutOfFold, out_of_fold, with_ones
from ecbm.verify.suggest.neighbours import nearest, neighbour_means

__all__ = ["Evidence", "Records", "gather", "leading_directions", "second_level"]

NEIGHBOURS = 15
_DIRECTIONS = 160
_FEATURE_L2 = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
_LEVEL_L2 = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
# Logits beyond this say the same: sure. Left longer, a few of them would decide the regressions above.
_SURE = 8.0
# Up to this many classes each is an input of its own; of more, a concept's share within the class says enough.
_MOST_CLASSES = 30
# Distances to all of 100,000 samples would take minutes.
_LARGEST_POOL = 20_000


@dataclasses.dataclass(frozen=True)
class Records:
    """Samples with recorded labels, as arrays.

    Parameters
    ----------
    features
        (n, d): what the model's concept head reads.
    labels, weights
        (n, k): recorded labels as 0 or 1, and how much each counts (0 where it is missing).
    classes
        (n,) class of every sample, of ``class_count`` classes.
    folds
        (n,) number of the fold in which a sample is left out.
    held
        (n,) whether the features were learnt without this sample. Of frozen features all were.
    truth
        (n, k) what a person found on a second look, 0 or 1; NaN where nobody looked.
    annotators
        (n,) number of the annotator, site or batch of each sample, negative where unknown; or none is known.
    binary
        (k,) columns that are yes or no on their own. The others are columns of concepts with several values: they
        tell about other concepts, and are judged together (:mod:`ecbm.verify.suggest.values`).
    alike
        (k, k) columns of which one follows from the other, as values of a list do: neither is evidence for the
        other.
    measured
        (n, m) standardised numbers known of a sample, 0 where missing; continuous concepts.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor
    classes: Tensor
    class_count: int
    folds: Tensor
    held: Tensor
    truth: Tensor
    annotators: Tensor | None = None
    binary: Tensor | None = None
    alike: Tensor | None = None
    measured: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @functools.cached_property
    def on_its_own(self) -> Tensor:
        """(k,) columns that are yes or no on their own."""
        return torch.ones(self.labels.shape[1], dtype=torch.bool) if self.binary is None else self.binary

    @functools.cached_property
    def best(self) -> Tensor:
        """Labels as they are known now: what a person found, or else what was recorded."""
        return torch.where(self.truth.isnan(), self.labels, self.truth)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Opinions about every label (n, k) that do not know the label.

    ``head``: logits of the concept head, solved without the sample's fold; ``neighbours``: mean label of the
    nearest samples; ``within_class``: share of the concept in the sample's class; ``alone``: logits from all of
    these, without any other label of the sample.
    """

    directions: Tensor
    nearest: Tensor
    head: OutOfFold
    neighbours: Tensor
    within_class: Tensor
    alone: OutOfFold


def leading_directions(features: Tensor, count: int = _DIRECTIONS) -> Tensor:
    """Standardised features along their leading principal directions (n, at most ``count``)."""
    rows = features.double()
    rows = rows - rows.mean(0)
    scale = rows.square().mean(0).sqrt()
    rows = rows / torch.where(scale > 1e-9, scale, 1.0)
    if rows.shape[1] <= count:
        return rows
    _, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    leading: Tensor = rows @ vectors[:, -count:]
    return leading


def _log_odds(shares: Tensor) -> Tensor:
    return torch.logit(shares.clamp(1e-3, 1 - 1e-3))


def _class_shares(records: Records, labels: Tensor) -> Tensor:
    """(n, k): share of each concept in the sample's class, over the other folds; two samples of the whole are
    added.
    """
    whole = (records.weights * labels).sum(0) / records.weights.sum(0).clamp_min(1e-9)
    shares = torch.empty_like(labels)
    for fold in range(int(records.folds.max()) + 1):
        inside = records.folds == fold
        classes, weights = records.classes[~inside], records.weights[~inside]
        total = labels.new_zeros(records.class_count, labels.shape[1]).index_add_(
            0, classes, weights * labels[~inside]
        )
        count = torch.zeros_like(total).index_add_(0, classes, weights)
        shares[inside] = ((total + 2 * whole) / (count + 2))[records.classes[inside]]
    return shares


def _class_columns(records: Records) -> Tensor:
    if records.class_count > _MOST_CLASSES:
        return torch.zeros(len(records), 0, dtype=torch.float64)
    return functional.one_hot(records.classes, records.class_count).double()


def _pool(folds: Tensor) -> Tensor | None:
    """Whole folds of samples among which neighbours are looked for; all where they are few enough."""
    if len(folds) <= _LARGEST_POOL:
        return None
    sizes = torch.bincount(folds).cumsum(0)
    last = max(1, int((sizes <= _LARGEST_POOL).sum()))
    return (folds < last).nonzero().flatten()


def gather(records: Records) -> Evidence:
    """Opinions from the features, the neighbours and the class, out of fold."""
    directions = leading_directions(records.features)
    labels, weights, k = records.best, records.weights, records.labels.shape[1]
    head = out_of_fold(with_ones(directions), labels, weights, records.folds, _FEATURE_L2)
    near = nearest(directions, min(NEIGHBOURS, len(records) - 1), _pool(records.folds))
    whole = (weights * labels).sum(0) / weights.sum(0).clamp_min(1e-9)
    neighbours = neighbour_means(near, labels, weights, whole)
    within_class = _class_shares(records, labels)
    classes = _class_columns(records)
    parts = [head.logits.clamp(-_SURE, _SURE), _log_odds(neighbours), _log_odds(within_class), classes]
    own, every = torch.eye(k, dtype=torch.float64), torch.ones(k, k, dtype=torch.float64)
    mask = torch.cat([every, own, own, torch.ones(k, classes.shape[1] + 1, dtype=torch.float64)], 1)
    alone = out_of_fold(with_ones(torch.cat(parts, 1)), labels, weights, records.folds, _LEVEL_L2, mask=mask)
    return Evidence(directions, near, head, neighbours, within_class, alone)


def second_level(
    records: Records, evidence: Evidence, labels: Tensor, targets: Tensor, like: OutOfFold | None = None
) -> OutOfFold:
    """Logits of every label from the evidence and the *other* labels of the sample, out of fold.

    ``labels`` (n, k) are those to look at, of the sample itself, its neighbours and its class; ``targets`` those to
    predict. Either may be recorded labels or cleaned ones between 0 and 1. ``like`` is a second level of other
    labels, to start from.
    """
    weights, k = records.weights, labels.shape[1]
    whole = (weights * labels).sum(0) / weights.sum(0).clamp_min(1e-9)
    others = weights * (labels - whole)
    neighbours = neighbour_means(evidence.nearest, labels, weights, whole)
    within_class, classes = _class_shares(records, labels), _class_columns(records)
    measured = labels.new_zeros(len(labels), 0) if records.measured is None else records.measured
    own, every = torch.eye(k, dtype=torch.float64), torch.ones(k, k, dtype=torch.float64)
    parts = [
        evidence.head.logits.clamp(-_SURE, _SURE), _log_odds(neighbours), _log_odds(within_class), others, measured,
        classes,
    ]  # fmt: skip
    rest = torch.ones(k, measured.shape[1] + classes.shape[1] + 1, dtype=torch.float64)
    telling = 1 - own if records.alike is None else (~records.alike).double()
    mask = torch.cat([every, every, own, telling, rest], 1)
    design = with_ones(torch.cat(parts, 1))
    return out_of_fold(design, targets, weights, records.folds, _LEVEL_L2, mask=mask, like=like)
