"""BatchNorm over the whole batch under several processes.

PyTorch's own SyncBatchNorm refuses the CPU and changes the network's layers, and with them what is saved. Here the
layers stay what they are and, while they are trained, take their statistics from all processes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ecbm import parallel

__all__ = ["synchronised"]


class _Summed(torch.autograd.Function):
    """A sum over all processes. Each process's loss depends on it, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor) -> Tensor:
        total = mine.clone()
        parallel.all_reduce_sum(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        parallel.all_reduce_sum(total)
        return total


def _summed(mine: Tensor) -> Tensor:
    total: Tensor = _Summed.apply(mine)  # type: ignore[no-untyped-call]
    return total


@contextmanager
def synchronised(module: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Inside, BatchNorm layers in training mode see the whole batch; alone, or not ``wanted``, nothing changes."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    if not wanted or parallel.world_size() == 1:
        layers = []
    for layer in layers:
        layer.forward = functools.partial(_normalised, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _normalised(layer: _BatchNorm, x: Tensor) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, x)
    sides = [side for side in range(x.ndim) if side != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    # Sums first, then squares of distances from the mean: squares of large values would lose it.
    count = values.new_tensor([float(values.numel() // values.shape[1])])
    totals = _summed(torch.cat([values.sum(sides), count]))
    count, mean = totals[-1].detach(), totals[:-1] / totals[-1].detach()
    centred = values - mean.view(shape)
    variance = _summed(centred.square().sum(sides)) / count
    _keep_running(layer, mean.detach(), variance.detach() * count / (count - 1).clamp_min(1))
    out = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        out = out * layer.weight.view(shape) + layer.bias.view(shape)
    return out.to(x.dtype)


@torch.no_grad()
def _keep_running(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked.add_(1)
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), share)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), share)
