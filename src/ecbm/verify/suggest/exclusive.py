"""Yes/no concepts of one group of which a sample has one, or none: ``colour=red``, ``colour=blue``, …

Where two of them are recorded, or none of a group that always has one, something is wrong for certain; which label
it is, the others say. For the columns of a group with logits z, the truth c is one of them or none,

    P(c) ∝ exp(a_c + β_c z_c),   P(none) ∝ exp(a_0),

and every label was changed on its own, with the chances of a change that are known (``down``, ``up``). Summed over
c, that is P(labels). A group is taken for a list only where this explains its labels better than yes/no concepts
that are independent given z; colours of a bird, of which it may have two, are not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.verify.suggest import rates
from ecbm.verify.suggest.curves import bernoulli

__all__ = ["Choice", "find_lists", "fit_choice"]

# A list has one parameter more than its columns apart: what that gains by chance is less than ln n.
_GAIN = 1.0
_LARGEST, _FIRST = 0.45, 0.05
_STEPS = 60


@dataclasses.dataclass(frozen=True)
class Choice:
    """A fitted list: ``offsets`` (m + 1,) with that of none last, ``steepness`` (m,), and the rate of slips."""

    offsets: Tensor
    steepness: Tensor
    rate: float
    log_likelihood: float

    def log_chances(self, logits: Tensor) -> Tensor:
        """log P(c) (n, m + 1), none last."""
        none = torch.zeros(len(logits), 1, dtype=logits.dtype)
        return torch.log_softmax(torch.cat([self.steepness * logits, none], 1) + self.offsets, 1)

    def present(self, logits: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor) -> Tensor:
        """P(present) (n, m) of every label, given the other labels of the list and not itself."""
        if_absent, if_present = _recorded(labels, weights, down, up)
        gained = if_present - if_absent
        prior = self.log_chances(logits)
        # Of c = k: all labels as absent, but k as present. Leaving label j out takes its own term away.
        every = torch.cat([prior[:, :-1] + gained, prior[:, -1:]], 1)
        own = prior[:, :-1]
        m = labels.shape[1]
        others = torch.stack([every[:, [k for k in range(m + 1) if k != j]].logsumexp(1) for j in range(m)], 1)
        return torch.sigmoid(own - others)


def _recorded(labels: Tensor, weights: Tensor, down: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """log P(label | absent) and log P(label | present), (n, m) each; 0 where missing."""
    return weights * bernoulli(up, labels), weights * bernoulli(1 - down, labels)


def _likelihood(chances: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """log P(labels) of every sample (n,), from log P(c)."""
    if_absent, if_present = _recorded(labels, weights, down, up)
    gained = torch.cat([if_present - if_absent, torch.zeros(len(labels), 1, dtype=labels.dtype)], 1)
    return if_absent.sum(1) + (chances + gained).logsumexp(1)


def fit_choice(
    logits: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor, rate: float | None = None
) -> Choice:
    """The likeliest list, beside changes that are known, with a given rate of slips or the likeliest one."""
    m = labels.shape[1]
    offsets = torch.zeros(m + 1, dtype=torch.float64, requires_grad=True)
    steepness = torch.ones(m, dtype=torch.float64, requires_grad=True)
    # ε is a share of the largest, as a logit: a bound that is reached would hold the search fast.
    slips = torch.tensor(math.log(_FIRST / (_LARGEST - _FIRST)), dtype=torch.float64, requires_grad=rate is None)
    parameters = [offsets, steepness, *([slips] if rate is None else [])]
    optimiser = torch.optim.LBFGS(parameters, max_iter=_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe")
    reached = torch.zeros((), dtype=torch.float64)

    def loss() -> Tensor:
        nonlocal reached
        optimiser.zero_grad()
        epsilon = _LARGEST * torch.sigmoid(slips) if rate is None else torch.tensor(rate).double()
        chances = Choice(offsets, steepness, 0.0, 0.0).log_chances(logits)
        flips = (flip + (1 - flip) * epsilon for flip in (down, up))
        reached = _likelihood(chances, labels, weights, *flips).sum()
        # As weak as in curves.py; none may be rare without limit, but not for free.
        held = 0.05 * offsets.square().sum() + 0.5 * (steepness - 1).square().sum()
        total = (held - reached) / max(len(labels), 1)
        total.backward()
        return total

    optimiser.step(loss)
    found = rate if rate is not None else _LARGEST * float(torch.sigmoid(slips.detach()))
    return Choice(offsets.detach(), steepness.detach(), found, float(reached.detach()))


def find_lists(
    logits: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor, groups: Sequence[Tensor]
) -> list[Tensor]:
    """Those of the groups (columns of each) that are lists."""
    found = []
    for some in groups:
        part = logits[:, some], labels[:, some], weights[:, some]
        flips = down[:, some], up[:, some]
        choice = fit_choice(*part, *flips)
        rate = rates.fit_slips(*part).rate
        lost, gained = (rates.with_slips(flip, rate) for flip in flips)
        p = rates.fit_curves(*part, lost, gained)(part[0])
        apart = float((part[2] * bernoulli((1 - lost) * p + gained * (1 - p), part[1])).sum())
        if choice.log_likelihood - apart > _GAIN * math.log(max(len(labels), 2)):
            found.append(some)
    return found
