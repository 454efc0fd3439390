"""Where networks run: on the CPU, or on an accelerator.

A network takes its inputs to where it lies and gives its results back on the CPU. There the heads are solved, in
float64, which some accelerators do not have; what goes back and forth is small beside what a network computes.
"""

from __future__ import annotations

import contextlib
import itertools
from contextlib import AbstractContextManager

import torch
from torch import nn

from ecbm.errors import InputError

__all__ = ["Device", "device_of", "mixed_precision", "placed"]

Device = str | torch.device | None


def placed(wanted: Device) -> torch.device:
    """The device that is meant by a name.

    Parameters
    ----------
    wanted
        ``None`` or ``"cpu"``; ``"auto"`` (cuda where there is one, else mps, else cpu); or any of torch's names
        (``"cuda:1"``).

    Examples
    --------
    >>> placed(None)
    device(type='cpu')
    """
    if wanted is None:
        return torch.device("cpu")
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    # torch raises AssertionError, RuntimeError or NotImplementedError for devices that are not there.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"device {str(wanted)!r} cannot be used here ({reason}); try device='auto'") from None
    return device


def mixed_precision(device: torch.device, wanted: bool) -> AbstractContextManager[object]:
    """A context in which products of a network are computed in bfloat16, where that is wanted."""
    return torch.autocast(device.type, torch.bfloat16) if wanted else contextlib.nullcontext()


def device_of(module: nn.Module) -> torch.device:
    """Where a module lies; the CPU for one without parameters and buffers."""
    found = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if found is None else found.device
