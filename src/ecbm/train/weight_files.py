"""Weight files: read without running code from them, checked against the network they are for, put into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ecbm.errors import InputError

__all__ = ["put_weights", "read_weights"]


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a weight file by name.

    ``.safetensors`` is preferred. Other files are state dicts in PyTorch's format: these are read with
    ``weights_only=True``, which builds tensors and plain containers and runs no code from the file.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such weight file")
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    # Damaged files raise nearly every kind of exception.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: not a readable weight file ({reason})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: holds no state dict (tensors by parameter name)")
    return state


def put_weights(
    module: nn.Module,
    state: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    *,
    classifier: str | None = None,
    other_names: str = "is it of this architecture?",
    other_shape: str = "",
) -> None:
    """Load tensors into a network; every name and shape must be its own and every number finite.

    Parameters
    ----------
    path
        Where the tensors are from, for messages.
    classifier
        The last layer of a full network, which is left out.
    other_names, other_shape
        What a message adds where names or shapes differ.
    """
    expected = module.state_dict()
    if classifier is not None:
        state = {name: value for name, value in state.items() if not name.startswith(f"{classifier}.")}
    # Files of older PyTorch, torchvision's among them, do not count the batches; training starts its own count.
    counters = {name: value for name, value in expected.items() if name.endswith("num_batches_tracked")}
    state = counters | dict(state)
    for name in sorted(expected.keys() | state.keys()):
        if name not in state or name not in expected:
            side = "lacks" if name not in state else "has an extra"
            raise InputError(f"{path}: {side} parameter {name!r}; {other_names}")
        if state[name].shape != expected[name].shape:
            shapes = f"has shape {tuple(state[name].shape)}, expected {tuple(expected[name].shape)}"
            raise InputError(f"{path}: {name!r} {shapes}{other_shape}")
        if not bool(torch.isfinite(state[name]).all()):
            raise InputError(f"{path}: {name!r} contains NaN or infinity")
    module.load_state_dict(state)
