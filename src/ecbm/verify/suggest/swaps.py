"""Two concepts that were exchanged in a share of the samples: ``left`` recorded as ``right`` and the reverse.

For truths t_a, t_b of a pair and a swap z with P(z = 1) = π:  (c_a, c_b) = (t_a, t_b) if z = 0, (t_b, t_a) if z =
1, where P(t_a = 1) and P(t_b = 1) are curves over the model's logits. A swap leaves a negative correlation behind:
where a is recorded against expectation, b is missing against expectation.

Concepts may also exclude each other by nature. Then they do so among ambiguous samples and not among clear ones,
which an association between the two labels describes, P(c_a, c_b) ∝ exp(c_a η_a + c_b η_b + θ c_a c_b). A swap is
believed where it explains the labels better than that.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.curves import Curve, bernoulli

__all__ = ["Swap", "find_swaps", "fit_association", "fit_swap", "swapped", "wrong_in_pair"]

# Fitted on the same data as the constants of mixture.py. Planted swaps gained 45 to 100 ln n over independent
# labels and at least .77 of an association's gain; pairs of different groups without a swap had a share below .03.
# Two values of one group (colours that are hard to tell apart) reached a share of .28 and .91 of the association's
# gain by nature, which is why they are left out.
_GAIN = 4.0
_SHARE_OF_ASSOCIATION = 0.5
_LEAST_SHARE, _LARGEST_SHARE = 0.05, 0.45
_CANDIDATES = 6
# Offsets of a pair's curves are held by a fiftieth of the labels. Free ones make one concept rare and the other
# common, and call most of the pairs that differ swapped (shares of .36 to .45 for .3); a model of recorded labels
# that were exchanged in less than half of the samples has its border at even odds anyway.
_HELD = 50
_STEPS = 80


@dataclasses.dataclass(frozen=True)
class Swap:
    """Two concepts exchanged in a ``share`` of the samples; ``chances`` (n,) that a sample is one of them."""

    concepts: Tensor
    share: float
    chances: Tensor
    curve: Curve
    log_likelihood: float
    gain: float = 0.0
    gain_of_association: float = 0.0


def swapped(present: Tensor, labels: Tensor, weights: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """P(swapped | both labels) and the log-likelihood (n,) of pairs (n, 2); a missing label decides nothing."""
    both = weights[:, 0] * weights[:, 1]
    straight = (weights * bernoulli(present, labels)).sum(1)
    crossed = bernoulli(present, labels.flip(1)).sum(1)
    one = math.log1p(-share) + straight
    other = math.log(share) + torch.where(both > 0, crossed, straight)
    return torch.where(both > 0, torch.sigmoid(other - one), 0.0), one.logaddexp(other)


def wrong_in_pair(present: Tensor, labels: Tensor, weights: Tensor, share: float, slips: float) -> Tensor:
    """P(wrong) of both labels (n, 2) by a swap or by a slip after it, from the eight cases of truth and swap."""
    wrong, total = torch.zeros_like(labels), torch.zeros(len(labels), 1, dtype=torch.float64)
    for crossed in (False, True):
        for one in (0.0, 1.0):
            for other in (0.0, 1.0):
                truth = torch.tensor([one, other], dtype=torch.float64)
                written = truth.flip(0) if crossed else truth
                chance = torch.where(truth > 0.5, present, 1 - present).prod(1, keepdim=True)
                same = torch.where(labels == written, 1 - slips, slips)
                seen = torch.where(weights > 0, same, 1.0).prod(1, keepdim=True)
                case = chance * seen * (share if crossed else 1 - share)
                wrong, total = wrong + case * (labels != truth), total + case
    return wrong / total.clamp_min(1e-300)


def fit_swap(logits: Tensor, labels: Tensor, weights: Tensor, steps: int = _STEPS) -> Swap:
    """Expectation maximisation for one pair (n, 2), a fixed number of steps."""
    curve, share = Curve.identity(2), 0.2
    chances, total = torch.zeros(len(labels), dtype=torch.float64), 0.0
    for _ in range(steps):
        chances, likelihood = swapped(curve(logits), labels, weights, share)
        total = float(likelihood.sum())
        truth = labels + chances[:, None] * (labels.flip(1) - labels)
        curve = curves.step(curve, logits, truth, weights, max(0.1, float(weights.sum()) / 2 / _HELD))
        # Only pairs that differ tell anything; the others keep the share as it is.
        share = min(max(float(chances.mean()), 1e-4), _LARGEST_SHARE)
    return Swap(torch.arange(2), share, chances, curve, total)


def fit_association(logits: Tensor, labels: Tensor, weights: Tensor, steps: int = 25) -> float:
    """Log-likelihood of the natural explanation, of the pairs that are both known and of the others."""
    known = (weights[:, 0] * weights[:, 1]) > 0
    _, apart = curves.fitted(logits[~known], labels[~known], weights[~known])
    logits, labels = logits[known], labels[known]
    if not len(labels):
        return float(apart.sum())
    states = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    one, other = states[:, 0], states[:, 1]
    ones = torch.ones(len(logits), 1, dtype=torch.float64)
    # (n, states, 5): what the five parameters multiply.
    inputs = torch.stack(
        [
            one * ones, one * logits[:, :1], other * ones, other * logits[:, 1:], one * other * ones,
        ],
        2,
    )  # fmt: skip
    seen = inputs[torch.arange(len(labels)), (labels[:, 0] + 2 * labels[:, 1]).long()]
    parameters = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    total = 0.0
    for _ in range(steps):
        scores = inputs @ parameters
        p = torch.softmax(scores, 1)
        total = float((seen @ parameters - scores.logsumexp(1)).sum())
        mean = (p[:, :, None] * inputs).sum(1)
        spread = torch.einsum("ns,nsi,nsj->ij", p, inputs, inputs) - mean.T @ mean
        spread += torch.eye(5, dtype=torch.float64) * 0.1
        parameters = parameters + torch.linalg.solve(spread, (seen - mean).sum(0)).clamp(-2.0, 2.0)
    return total + float(apart.sum())


def _candidates(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> list[tuple[int, int]]:
    """Pairs of different groups whose residuals oppose each other most."""
    residual = weights * (labels - torch.sigmoid(logits))
    scale = residual.square().mean(0).sqrt().clamp_min(1e-9)
    opposed = residual.T @ residual / len(residual) / (scale[:, None] * scale)
    rows, columns = torch.triu_indices(len(scale), len(scale), 1)
    strength = torch.where(groups[rows] == groups[columns], 0.0, opposed[rows, columns])
    order = strength.argsort(stable=True)[:_CANDIDATES]
    return [(int(rows[i]), int(columns[i])) for i in order if float(strength[i]) < 0]


def find_swaps(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> list[Swap]:
    """Pairs of concepts that were exchanged, most convincing first; each concept is in one pair at most.

    ``groups`` (k,) numbers the group of each concept.
    """
    _, plain = curves.fitted(logits, labels, weights)
    found: list[Swap] = []
    for one, other in _candidates(logits, labels, weights, groups):
        pair = torch.tensor([one, other])
        part = logits[:, pair], labels[:, pair], weights[:, pair]
        swap = fit_swap(*part)
        base = float(plain[pair].sum())
        gain = swap.log_likelihood - base
        if gain < _GAIN * math.log(len(labels)) or swap.share < _LEAST_SHARE:
            continue
        natural = fit_association(*part) - base
        if gain >= _SHARE_OF_ASSOCIATION * natural:
            found.append(dataclasses.replace(swap, concepts=pair, gain=gain, gain_of_association=natural))
    found.sort(key=lambda swap: -swap.gain)
    taken: set[int] = set()
    chosen = []
    for swap in found:
        if not taken & set(swap.concepts.tolist()):
            taken |= set(swap.concepts.tolist())
            chosen.append(swap)
    return chosen
