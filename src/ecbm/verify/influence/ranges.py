"""The logits that stand for "absent" and "present", when a sample leaves or its label changes sides.

An independent model's label head is fitted on true concepts, on a logit bottleneck as low + t (high − low). Both
are quantiles of training logits (:func:`ecbm.train.stages.logit_range`): low the lower quartile where a concept
is absent, high the upper one where it is present.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["moves_when_flipped", "moves_when_removed", "quantile_rows"]

LOW, HIGH = 0.25, 0.75
# Ranks on either side that a quantile moves with, as a share of the samples. Set on one small table (flips
# predicted against actual: .907 with the two order statistics alone, .970 with .05, .955 with .1, .943 with .2).
_WINDOW = 0.05


def quantile_rows(values: Tensor, share: float) -> list[tuple[int, float]]:
    """The samples that a quantile moves with, and their parts in it.

    It lies between two order statistics, but once logits move by more than their distance others take their place:
    samples of nearby ranks count, with weights that fall linearly to 0.
    """
    order, place = values.argsort(stable=True), share * (len(values) - 1)
    reach = max(1.0, _WINDOW * len(values))
    first, last = max(0, math.ceil(place - reach)), min(len(values) - 1, math.floor(place + reach))
    parts = [1 - abs(rank - place) / reach for rank in range(first, last + 1)]
    total = sum(parts)
    return [(int(order[first + step]), part / total) for step, part in enumerate(parts) if part > 0]


def _place(share: float, count: int) -> tuple[int, int, float]:
    place = share * (count - 1)
    below = int(place)
    return below, min(below + 1, count - 1), place - below


def _between(first: Tensor, second: Tensor, part: float) -> Tensor:
    return first + part * (second - first)


def _without(values: Tensor, share: float) -> Tensor:
    """(n,) how far the quantile moves if a value leaves."""
    order = values.argsort(stable=True)
    ranked = values[order]
    below, above, part = _place(share, len(values))
    now = _between(ranked[below], ranked[above], part)
    below, above, part = _place(share, len(values) - 1)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    after = _between(ranked[below + (below >= rank).long()], ranked[above + (above >= rank).long()], part)
    return after - now


def _with(values: Tensor, share: float, new: Tensor) -> Tensor:
    """(new,) how far the quantile moves if one of the ``new`` values comes."""
    ranked = values.sort().values
    below, above, part = _place(share, len(values))
    now = _between(ranked[below], ranked[above], part)
    rank = torch.searchsorted(ranked, new)
    below, above, part = _place(share, len(values) + 1)

    def at(place: int) -> Tensor:
        kept = ranked[(place - (place > rank).long()).clamp(0, len(ranked) - 1)]
        return torch.where(rank == place, new, kept)

    return _between(at(below), at(above), part) - now


def moves_when_removed(logits: Tensor, labels: Tensor) -> Tensor:
    """(2, n) changes of low and high of one concept if a sample is removed; labels are NaN where missing."""
    moves = torch.zeros(2, len(logits), dtype=torch.float64)
    for side, rows, share in _sides(labels):
        if len(rows) > 1:
            moves[side, rows] = _without(logits[rows], share)
    return moves


def moves_when_flipped(logits: Tensor, labels: Tensor, flipped: Tensor) -> Tensor:
    """(2, n) changes of low and high of one concept if a sample's label becomes the flipped one."""
    moves = torch.zeros(2, len(logits), dtype=torch.float64)
    was, becomes = labels >= 0.5, flipped >= 0.5
    known = ~labels.isnan()
    for side, rows, share in _sides(labels):
        leaves = known & (was == bool(side)) & ((becomes != bool(side)) | flipped.isnan())
        comes = known & (was != bool(side)) & (becomes == bool(side)) & ~flipped.isnan()
        if len(rows) > 1:
            out = torch.zeros(len(logits), dtype=torch.float64)
            out[rows] = _without(logits[rows], share)
            moves[side, leaves] = out[leaves]
        if len(rows):
            moves[side, comes] = _with(logits[rows], share, logits[comes])
    return moves


def _sides(labels: Tensor) -> list[tuple[int, Tensor, float]]:
    absent, present = (labels < 0.5).nonzero().flatten(), (labels >= 0.5).nonzero().flatten()
    return [(0, absent, LOW), (1, present, HIGH)]
