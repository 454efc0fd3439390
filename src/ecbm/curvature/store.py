"""Files of the curvature part: one safetensors file each, its description as JSON in the header.

One file, written beside its place and moved there, is either the old one or the new one after a crash.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ecbm.errors import InputError

__all__ = ["read_file", "write_file"]

_FORMAT = "ecbm-curvature-1"


def write_file(path: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write ``tensors`` and ``description`` to ``path``, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    # blocks may share memory (views of one buffer); the format stores each tensor on its own
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        save_file(whole, beside, {"format": _FORMAT, "description": json.dumps(description)})
        with open(beside, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file of :func:`write_file`."""
    try:
        with safe_open(path, "pt") as handle:
            metadata = handle.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise InputError(f"{path}: not a curvature file of this version; fit again and save")
            description = json.loads(metadata["description"])
            # Copied into memory of torch's own: bits of products depend on how arrays are aligned.
            tensors = {name: handle.get_tensor(name).clone() for name in handle.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; fit the curvature and save it first") from None
    except (SafetensorError, json.JSONDecodeError, KeyError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}); delete it and fit again") from None
    return tensors, description
