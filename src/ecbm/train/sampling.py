"""Which samples an epoch sees in which order: a function of seed and epoch alone, so that training can resume."""

from __future__ import annotations

import torch
from torch import Tensor

from ecbm import parallel

__all__ = ["batches", "epoch_seed", "parts"]


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of what is drawn in one epoch."""
    return (seed * 1_000_003 + epoch) % 2**63


def parts(rows: Tensor, size: int) -> list[Tensor]:
    """Rows in batches. A short last one joins its neighbour: BatchNorm needs two a process."""
    split = list(rows.split(size))
    if len(split) > 1 and len(split[-1]) < 2 * parallel.world_size():
        split[-2:] = [torch.cat(split[-2:])]
    return split


def batches(count: int, size: int, seed: int, epoch: int, labels: Tensor | None = None) -> list[Tensor]:
    """The batches of one epoch over ``count`` samples: every sample once, shuffled.

    With ``labels`` (n,) every class as often as every other. As many samples are drawn as there are; within a class
    each comes up equally often, give or take one, so a rare class repeats its samples and a frequent one leaves
    some out, others in each epoch.

    Examples
    --------
    >>> drawn = torch.cat(batches(6, 4, 0, 0, torch.tensor([0, 0, 0, 0, 0, 1])))
    >>> int((drawn == 5).sum())
    3
    """
    generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
    if labels is None:
        return parts(torch.randperm(count, generator=generator), size)
    members = [(labels == label).nonzero().flatten() for label in labels.unique()]
    least, left = divmod(count, len(members))
    shares = torch.full((len(members),), least)
    # Whoever gets one more is drawn too, or the first classes would have it in every epoch.
    shares[torch.randperm(len(members), generator=generator)[:left]] += 1
    drawn = [_repeated(rows, int(share), generator) for rows, share in zip(members, shares, strict=True)]
    return parts(torch.cat(drawn)[torch.randperm(count, generator=generator)], size)


def _repeated(rows: Tensor, share: int, generator: torch.Generator) -> Tensor:
    """``share`` of the rows: all of them, shuffled, as often as it takes."""
    turns = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(-(-share // len(rows)))]
    return torch.cat(turns)[:share] if turns else rows[:0]
