"""Inputs of a fit as batches: a tensor, or anything with a length and ``take``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from ecbm.curvature.draws import input_keys
from ecbm.errors import InputError

__all__ = ["InputSource", "Source"]


class InputSource(Protocol):
    """What :class:`ecbm.read.Inputs` offers, as far as curvature needs it."""

    def __len__(self) -> int: ...

    def take(self, rows: Sequence[int] | Tensor) -> Tensor: ...


class Source:
    """Reads rows of ``inputs`` for ``module``, on the module's device."""

    def __init__(self, inputs: Tensor | InputSource, module: nn.Module) -> None:
        if not isinstance(inputs, Tensor) and not (hasattr(inputs, "take") and hasattr(inputs, "__len__")):
            raise InputError(
                f"inputs are a {type(inputs).__name__}; give a tensor or an object with len() and take(rows)"
            )
        if isinstance(inputs, Tensor) and inputs.dim() == 0:
            raise InputError("inputs are a single number; expected one row a sample")
        if len(inputs) == 0:
            raise InputError("inputs are empty; a fit needs at least one sample")
        if isinstance(inputs, Tensor) and (inputs.is_complex() or inputs.dtype in (torch.float16, torch.bfloat16)):
            raise InputError(f"inputs are {inputs.dtype}; convert them to float32 or float64")
        self.inputs = inputs
        self.device = next(module.parameters()).device

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: range) -> Tensor:
        if isinstance(self.inputs, Tensor):
            batch = self.inputs[rows.start : rows.stop].detach()
        else:
            batch = self.inputs.take(rows)
        return batch.to(self.device)

    def keys(self) -> Tensor:
        """Keys for drawing targets, from what is stored rather than from what it is decoded to."""
        raw = getattr(self.inputs, "raw", None)
        if raw is None or isinstance(self.inputs, Tensor):
            return input_keys(self.read, len(self))
        return input_keys(lambda rows: torch.as_tensor(raw(rows)), len(self))

    def shares_storage(self, activations: Tensor) -> bool:
        """Whether ``activations`` is a view of the inputs, so that keeping it costs nothing."""
        if not isinstance(self.inputs, Tensor):
            return False
        return activations.untyped_storage().data_ptr() == self.inputs.untyped_storage().data_ptr()
