"""Gradient training of the deep part: one loop for one process or several, resumable after every epoch."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ecbm import parallel
from ecbm.errors import EcbmError
from ecbm.progress import progress
from ecbm.read.inputs import Inputs
from ecbm.train.checkpoint import Checkpoint
from ecbm.train.sampling import batches, epoch_seed, parts
from ecbm.train.synchronised import synchronised

__all__ = ["FUSED", "LoopResult", "fit"]

# Where torch has a fused Adam.
FUSED = ("cpu", "cuda", "mps")

_KEEP_IN_MEMORY_BYTES = 2 * 2**30

BatchLoss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(module, inputs, rows) → sum of the losses of these samples."""
Augment = Callable[[Tensor, int, Tensor], Tensor]
"""(inputs, epoch, places in the epoch's order) → the inputs as this epoch sees them."""


@dataclasses.dataclass(frozen=True)
class LoopResult:
    """Losses of every epoch and where training stopped."""

    epochs: list[dict[str, float]]
    best_epoch: int
    seconds: float


def _learning_rate(peak: float, progress_share: float) -> float:
    """One cycle: up linearly over the first fifth, then down to zero along a cosine."""
    warm = 0.2
    if progress_share < warm:
        return peak * (0.1 + 0.9 * progress_share / warm)
    return peak * 0.5 * (1 + math.cos(math.pi * (progress_share - warm) / (1 - warm)))


def _settled(epochs: int) -> int:
    """The epoch from which patience counts: while the learning rate is high, validation losses jump."""
    return round(0.6 * epochs) - 1


def _average_statistics(module: nn.Module) -> None:
    """Running statistics differ between processes, which saw different samples: keep their mean."""
    if parallel.world_size() > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                parallel.all_reduce_sum(buffer)
                buffer.div_(parallel.world_size())


def _reduce_gradients(parameters: list[nn.Parameter]) -> None:
    if parallel.world_size() > 1:
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        parallel.all_reduce_sum(flat)
        offset = 0
        for parameter in parameters:
            if parameter.grad is not None:
                size = parameter.grad.numel()
                parameter.grad.copy_(flat[offset : offset + size].view_as(parameter.grad))
                offset += size


def mean_loss(module: nn.Module, inputs: Inputs, loss: BatchLoss, batch_size: int = 512) -> float:
    """(1/n) Σ losses in evaluation mode, without the L2 term."""
    module.eval()
    share = parallel.shard(len(inputs))
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for start in range(share.start, share.stop, batch_size):
            rows = torch.arange(start, min(start + batch_size, share.stop))
            total += loss(module, inputs.take(rows), rows).double()
    parallel.all_reduce_sum(total)
    return float(total) / max(len(inputs), 1)


def _groups(module: nn.Module, l2: dict[str, float], rates: dict[str, float]) -> list[dict[str, Any]]:
    """Parameters that have L2 and share of the learning rate in common; the longest prefix of a name decides."""
    alike: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decay, share = (
                choices[max((key for key in choices if name.startswith(key)), key=len)] for choices in (l2, rates)
            )
            alike.setdefault((decay, share), []).append(parameter)
    return [{"params": p, "weight_decay": decay, "share": share} for (decay, share), p in alike.items()]


class _Held:
    """Inputs converted once to float32, if they fit; otherwise the inputs as they are."""

    def __init__(self, inputs: Inputs) -> None:
        size = 4 * len(inputs) * math.prod(inputs.shape)
        self._tensor = inputs.take(range(len(inputs))) if size <= _KEEP_IN_MEMORY_BYTES else None
        self._inputs = inputs

    def take(self, rows: Tensor) -> Tensor:
        return self._tensor[rows] if self._tensor is not None else self._inputs.take(rows)

    def batches(self, order: list[Tensor]) -> Iterator[Tensor]:
        """Inputs batch by batch; where they have to be read, the next is read while one is computed."""
        if self._tensor is not None:
            yield from (self._tensor[rows] for rows in order)
            return
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._inputs.take, order[0])
            for place in range(len(order)):
                batch = coming.result()
                if place + 1 < len(order):
                    coming = pool.submit(self._inputs.take, order[place + 1])
                yield batch


def _steps(
    module: nn.Module,
    held: _Held,
    loss: BatchLoss,
    optimiser: torch.optim.Optimizer,
    steps: list[list[Tensor]],
    rates: list[float],
    augment: Augment | None,
    epoch: int,
) -> Tensor:
    """An epoch's steps, each of the rows of one or more batches; returns the sum of this process's losses."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    mine = slice(parallel.rank(), None, parallel.world_size())
    coming = held.batches([part[mine] for step in steps for part in step])
    summed, place = torch.zeros(()), 0
    for step, rate in zip(steps, rates, strict=True):
        count = sum(map(len, step))
        for group in optimiser.param_groups:
            group["lr"] = rate * group["share"]
        optimiser.zero_grad(set_to_none=True)
        for part, inputs in zip(step, coming, strict=False):  # the step ends first; the rest is still to come
            places = torch.arange(place, place + len(part))[mine]
            x = inputs if augment is None else augment(inputs, epoch, places)
            value = loss(module, x, part[mine]) / count
            value.backward()
            summed += value.detach() * count
            place += len(part)
        _reduce_gradients(parameters)
        optimiser.step()
    return summed


def fit(
    module: nn.Module,
    inputs: Inputs,
    loss: BatchLoss,
    validation: tuple[Inputs, BatchLoss] | None,
    *,
    l2: float | dict[str, float],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    patience: int | None,
    seed: int,
    labels: Tensor | None = None,
    accumulate: int = 1,
    augment: Augment | None = None,
    rates: dict[str, float] | None = None,
    synchronise: bool = False,
    title: str = "Training",
    checkpoint: Path | None = None,
    identity: dict[str, Any] | None = None,
    after_epoch: Callable[[int, nn.Module], None] | None = None,
) -> LoopResult:
    """Minimise (1/n) Σ loss + (l2/2)|θ|² in place and leave the best parameters in ``module``.

    L2 is a term of the objective: it enters the gradient (not decoupled from it, as in AdamW). The order of
    samples depends on ``seed`` and the epoch alone, so a run that is interrupted and resumed from its
    ``checkpoint`` takes the same steps as one that is not. Under several processes each takes its part of
    every batch and gradients are summed, so the batches are the same too.

    ``labels`` are the classes that should come up equally often. One step takes ``accumulate`` batches. ``rates``
    are shares of the learning rate by the beginnings of parameters' names, as ``l2`` may be. ``synchronise`` is
    for BatchNorm under several processes. ``after_epoch`` is shown the module as it is after each.
    """
    started = time.monotonic()
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = _groups(module, l2 if isinstance(l2, dict) else {"": l2}, {"": 1.0} | (rates or {}))
    optimiser = torch.optim.Adam(groups, lr=learning_rate, fused=parameters[0].device.type in FUSED)
    held = _Held(inputs)
    store = Checkpoint(checkpoint, identity or {}) if checkpoint is not None else None
    history: list[dict[str, float]] = []
    best: tuple[float, int, dict[str, Tensor]] | None = None
    state = store.load(module, optimiser) if store is not None else None
    if state is not None:
        history, best = state
    count, size = len(inputs), batch_size * accumulate
    total = epochs * len(batches(count, size, seed, 0, labels))
    with (
        progress(title, epochs, len(history)) as bar,
        torch.random.fork_rng(devices=[]),
        synchronised(synchronise),
    ):
        for epoch in range(len(history), epochs):
            waited = epoch - 1 - max(best[1], _settled(epochs)) if best is not None else 0
            if patience is not None and waited >= patience:
                break
            epoch_started = time.monotonic()
            module.train()
            # Dropout and the like draw from the global generator: seeded anew so that resuming changes nothing.
            torch.manual_seed(epoch_seed(seed, epoch) + parallel.rank())
            steps = batches(count, size, seed, epoch, labels)
            shares = [(epoch * len(steps) + position) / total for position in range(len(steps))]
            summed = _steps(
                module,
                held,
                loss,
                optimiser,
                [parts(step, batch_size) if accumulate > 1 else [step] for step in steps],
                [_learning_rate(learning_rate, share) for share in shares],
                augment,
                epoch,
            )
            _average_statistics(module)
            parallel.all_reduce_sum(summed)
            record = {"loss": float(summed) / count, "seconds": time.monotonic() - epoch_started}
            if not math.isfinite(record["loss"]):
                raise EcbmError(f"training diverged in epoch {epoch + 1}; lower learning_rate")
            judged = record["loss"]
            if validation is not None:
                record["val_loss"] = judged = mean_loss(module, *validation)
            history.append(record)
            # Without patience nothing is selected: the last epoch is the result.
            if best is None or patience is None or validation is None or judged < best[0]:
                best = (judged, epoch, copy.deepcopy(module.state_dict()))
            if store is not None and parallel.rank() == 0:
                store.save(module, optimiser, history, best)
            if after_epoch is not None and parallel.rank() == 0:
                after_epoch(epoch, module)
            bar.advance(**{key: value for key, value in record.items() if key != "seconds"})
    if best is not None:
        module.load_state_dict(best[2])
    module.eval()
    return LoopResult(history, best[1] if best else 0, time.monotonic() - started)
