"""Several processes under ``torchrun``: the few collective operations the package needs.

Every function is the identity when the program runs alone, so the code that calls them is written once.
"""

from __future__ import annotations

import atexit
import importlib
import os

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["all_reduce_sum", "broadcast", "gather_rows", "join_group", "rank", "shard", "world_size"]


def join_group() -> None:
    """Join the process group that ``torchrun`` describes in the environment, if there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        # Before there is a group: the module keeps the group of its first import in default arguments, and torch
        # imports it with the first optimiser. A group that is kept lives on with its threads after it is destroyed.
        importlib.import_module("torch.distributed.nn.functional")
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
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
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of processes; 1 when alone."""
    return dist.get_world_size() if dist.is_initialized() else 1


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


def gather_rows(mine: Tensor, count: int) -> Tensor:
    """Put together ``count`` rows of which every process holds its :func:`shard`."""
    if world_size() == 1:
        return mine
    whole = mine.new_zeros((count, *mine.shape[1:]))
    share = shard(count)
    whole[share.start : share.stop] = mine
    dist.all_reduce(whole)
    return whole
