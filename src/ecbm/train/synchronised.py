"""BatchNorm over the whole batch under several processes.

PyTorch's own SyncBatchNorm refuses the CPU and takes the place of the network's layers, and with them of what is
saved and of what a library's own layers do besides (timm's apply the activation too). Here the layers stay what
they are; the one function that all of them call takes its statistics from all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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


class _Synchronised(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        called = _normalised if func is functional.batch_norm else func
        return called(*args, **(kwargs or {}))


@contextmanager
def synchronised(wanted: bool = True) -> Iterator[None]:
    """Inside, BatchNorm in training mode sees the whole batch; alone, or not ``wanted``, nothing changes."""
    if not wanted or parallel.world_size() == 1:
        yield
        return
    with _Synchronised():
        yield


def _normalised(
    x: Tensor,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``torch.nn.functional.batch_norm`` with the statistics of all processes."""
    if not training:
        return functional.batch_norm(x, running_mean, running_variance, weight, bias, False, momentum, eps)
    sides = [side for side in range(x.ndim) if side != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    # Sums first, then squares of distances from the mean: squares of large values would lose it.
    count = values.new_tensor([float(values.numel() // values.shape[1])])
    totals = _summed(torch.cat([values.sum(sides), count]))
    count, mean = totals[-1].detach(), totals[:-1] / totals[-1].detach()
    centred = values - mean.view(shape)
    variance = _summed(centred.square().sum(sides)) / count
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_variance is not None:
            unbiased = variance * count / (count - 1).clamp_min(1)
            running_variance.lerp_(unbiased.to(running_variance.dtype), momentum)
    out = centred * torch.rsqrt(variance + eps).view(shape)
    out = out if weight is None else out * weight.view(shape)
    return (out if bias is None else out + bias.view(shape)).to(x.dtype)
