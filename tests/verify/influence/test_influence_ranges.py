"""Quantiles when a sample leaves or changes sides, against computing them again."""

from __future__ import annotations

import torch

from ecbm.train.stages import logit_range
from ecbm.verify.influence.ranges import moves_when_flipped, moves_when_removed


def test_moves_are_those_of_computing_the_quantiles_again():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(23, generator=draw, dtype=torch.float64)
    labels = (torch.rand(23, generator=draw) < 0.4).float()
    labels[[3, 9]] = torch.nan
    flipped = 1 - labels.double()

    def both(values, marks):
        return torch.stack([side[0] for side in logit_range(values[:, None], marks[:, None])])

    now = both(logits, labels)
    removed, turned = moves_when_removed(logits, labels), moves_when_flipped(logits, labels, flipped)
    for row in range(23):
        rest = [other for other in range(23) if other != row]
        assert torch.allclose(removed[:, row], both(logits[rest], labels[rest]) - now)
        again = labels.clone()
        again[row] = flipped[row]
        assert torch.allclose(turned[:, row], both(logits, again) - now)
