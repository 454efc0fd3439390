"""What the nearest samples in feature space are labelled as."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["nearest", "neighbour_means"]

_BLOCK = 1024


def nearest(features: Tensor, count: int, pool: Tensor | None = None) -> Tensor:
    """Rows (n, count) of the nearest other samples by Euclidean distance, nearest first.

    ``pool`` (rows) bounds the work where there are many samples: neighbours are looked for among these.
    """
    rows = features.float()
    pool = torch.arange(len(rows)) if pool is None else pool
    there = rows[pool]
    squares = there.square().sum(1)
    found = []
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        distance = torch.addmm(squares[None, :], block, there.T, alpha=-2.0)
        itself = pool[None, :] == torch.arange(start, start + len(block))[:, None]
        distance.masked_fill_(itself, torch.inf)
        found.append(pool[distance.topk(count, largest=False, sorted=True).indices])
    return torch.cat(found)


def neighbour_means(neighbours: Tensor, labels: Tensor, weights: Tensor, prior: Tensor) -> Tensor:
    """Mean label (n, k) of each sample's neighbours; one label of the ``prior`` (k,) is added."""
    total, count = prior.expand_as(labels).clone(), torch.ones_like(labels)
    known = weights * labels
    for column in neighbours.T:
        total += known[column]
        count += weights[column]
    return total / count
