"""Several processes under ``torchrun``: the few collective operations the package needs.

Every function is the identity when the program runs alone, so the code that calls them is written once.
"""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "agreed", "all_reduce_sum", "alone", "broadcast", "gather_rows", "join_group", "rank", "shard", "wait",
    "world_size",
]  # fmt: skip

_alone = False


def join_group() -> None:
    """Join the process group that ``torchrun`` describes in the environment, if there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        # Before there is a group: the module keeps the group of its first import in default arguments, and torch
        # imports it with the first optimiser. A group that is kept lives on with its threads after it is destroyed.
        importlib.import_module("torch.distributed.nn.functional")
        # Heads are solved on the CPU, so sums of tensors there are needed in any case.
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave_group)


def _leave_group() -> None:
    """End the group's threads, which may still hold tensors, before the interpreter ends.

    A thread that lets go of a tensor of Python's needs the interpreter; one that has to wait for it while the
    interpreter is ending brings down the process (SIGABRT). Destroying the group joins its threads, as long as
    nobody else keeps the group.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Number of this process; 0 when alone."""
    return dist.get_rank() if dist.is_initialized() and not _alone else 0


def world_size() -> int:
    """Number of processes; 1 when alone."""
    return dist.get_world_size() if dist.is_initialized() and not _alone else 1


@contextmanager
def alone() -> Iterator[None]:
    """Work of this process for itself while the others wait: nothing inside the block is shared out."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def shard(count: int) -> range:
    """The contiguous share of ``range(count)`` that belongs to this process."""
    size, this = world_size(), rank()
    return range(count * this // size, count * (this + 1) // size)


def all_reduce_sum(*tensors: Tensor) -> None:
    """Replace each tensor, in place, by its sum over all processes."""
    if world_size() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def broadcast(*tensors: Tensor, source: int = 0) -> None:
    """Overwrite each tensor, in place, with that of process ``source``."""
    if world_size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, source)


def wait() -> None:
    """Wait until every process has come here."""
    all_reduce_sum(torch.zeros(1))


def agreed(number: int) -> int:
    """The number that the first process gives, in every process."""
    told = torch.tensor([number])
    broadcast(told)
    return int(told)


def gather_rows(mine: Tensor, count: int) -> Tensor:
    """Put together ``count`` rows of which every process holds its :func:`shard`."""
    if world_size() == 1:
        return mine
    whole = mine.new_zeros((count, *mine.shape[1:]))
    share = shard(count)
    whole[share.start : share.stop] = mine
    dist.all_reduce(whole)
    return whole
