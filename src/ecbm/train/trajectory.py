"""The backbones that a training went through, kept if they were asked for: one safetensors file an epoch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ecbm.errors import InputError
from ecbm.files import refusing_places, write_safetensors

__all__ = ["backbone_at", "keeper", "kept_epochs"]

_NAME = re.compile(r"epoch-(\d{4})\.safetensors")


def keeper(folder: Path) -> Callable[[int, nn.Module], None]:
    """What the training loop calls after an epoch: writes the module's backbone, as it is then."""
    with refusing_places(folder):
        folder.mkdir(parents=True, exist_ok=True)

    def keep(epoch: int, module: nn.Module) -> None:
        state = module.get_submodule("backbone").state_dict()
        tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
        write_safetensors(folder / f"epoch-{epoch:04d}.safetensors", tensors, {})

    return keep


def kept_epochs(folder: str | Path) -> list[Path]:
    """The files of a trajectory, first epoch first; refuses a folder without any."""
    found = sorted(path for path in Path(folder).glob("epoch-*.safetensors") if _NAME.fullmatch(path.name))
    if not found:
        raise InputError(f"{folder}: holds no epochs of a training; train with trajectory={str(folder)!r} first")
    return found


def backbone_at(path: Path, like: nn.Module) -> nn.Module:
    """A backbone as it was after an epoch; one of another network is refused."""
    backbone = copy.deepcopy(like)
    try:
        backbone.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{path}: is no epoch of this model's training ({why}); give the right folder") from None
    return backbone.eval()
