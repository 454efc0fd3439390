"""Lists that somebody leaves empty: no value of ``shape=round``, ``shape=band``, … is recorded in some samples.

One label of such a sample is wrong, that of its true value, so nothing is off together (``mixture``), and the
model has learnt that no value is ever certain. What gives it away is that the features tell *which* value a sample
has, and not *whether* it has one. Where none of the values is true by nature, as neither small nor large, the
features say so as well as they tell the values apart. With p_j the chance of each value, and r = Σ_j p_j that of
any, by opinions that do not know the labels:

    which     Σ log(p_value / r) over samples with one value, against the shares of the values
    whether   Σ log P(any), a curve over r, over the greatest p_j / r or over one of them, against one share

Of two values (small, large) a linear head cannot foretell the middle, so groups have at least three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli
from ecbm.verify.suggest.mixture import Carelessness

__all__ = ["find_omissions", "left_out", "likely_values"]

_FEWEST = 20
_LEAST_SHARE, _LARGEST_SHARE = 0.05, 0.9
# Of samples with a value, so many have one alone; the others are slips.
_ONE_VALUE = 0.8
_FEWEST_VALUES = 3
# The values have to be told apart by so much for each of them, in ln n; and whether there is one hardly at all, by
# ln n or a fiftieth of that. One value that is overlooked on its own leaves lists empty too, but only where it is
# likely. (No list of the birds, CUB, clinic and WBCAtt with draws 0 and 1 was taken for left out.)
_GAIN_FOR_EACH = 1.3
_SHARE_OF_WHICH = 0.02
_RATE = 0.999


def likely_values(logits: Tensor) -> Tensor:
    """(n, m): the chance of each value of a list, given that there is one."""
    p = torch.sigmoid(logits)
    return p / p.sum(1, keepdim=True).clamp_min(1e-12)


def left_out(pattern: Carelessness, labels: Tensor) -> Tensor:
    """(n, m): the chance that a value was left out, seen without the label itself: none where another stands."""
    others = labels.sum(1, keepdim=True) - labels
    return torch.where(others > 0.5, 0.0, pattern.share * pattern.rates)


def find_omissions(logits: Tensor, labels: Tensor, weights: Tensor, groups: Sequence[Tensor]) -> list[Carelessness]:
    """Those of the groups (columns of each) that somebody leaves empty in a share of the samples."""
    found = []
    for some in groups:
        known = (weights[:, some] > 0).all(1)
        share = _omitted(logits[known][:, some], labels[known][:, some])
        if share is not None:
            empty = known & (labels[:, some].sum(1) < 0.5)
            rates = torch.full((len(some),), _RATE, dtype=torch.float64)
            found.append(
                Carelessness(True, some, rates, share, empty.double(), Curve.identity(len(some)), 0.0)
            )  # fmt: skip
    return found


def _omitted(logits: Tensor, labels: Tensor) -> float | None:
    """The share of samples in which the values of one group were left out; none if that is not believed."""
    count, m = labels.sum(1), labels.shape[1]
    empty, one = count < 0.5, (count > 0.5) & (count < 1.5)
    share = float(empty.double().mean()) if len(labels) else 0.0
    if m < _FEWEST_VALUES or not _LEAST_SHARE <= share <= _LARGEST_SHARE:
        return None
    if min(int(empty.sum()), int(one.sum())) < _FEWEST:
        return None
    if int(one.sum()) < _ONE_VALUE * int((~empty).sum()):
        return None
    value = labels[one].argmax(1)
    shares = torch.bincount(value, minlength=m).double() / len(value)
    told = likely_values(logits[one])[torch.arange(len(value)), value].clamp_min(1e-12).log()
    which = float((told - shares[value].log()).sum())
    if which < _GAIN_FOR_EACH * m * math.log(len(labels)):
        return None
    values = likely_values(logits)
    any_value = torch.sigmoid(logits).sum(1, keepdim=True)
    opinions = torch.cat([any_value, values.max(1, keepdim=True).values, values], 1)
    opinions = torch.logit(opinions.clamp(1e-3, 1 - 1e-3))
    anything = (~empty).double()[:, None].expand_as(opinions)
    _, fitted = curves.fitted(opinions, anything, torch.ones_like(opinions))
    constant = float(bernoulli(torch.full_like(anything[:, 0], 1 - share), anything[:, 0]).sum())
    whether = float(fitted.max()) - constant
    return share if whether < max(math.log(len(labels)), _SHARE_OF_WHICH * which) else None
