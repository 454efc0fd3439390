"""Checkpoints of an unfinished training: safetensors and JSON in one file, replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ecbm.errors import InputError
from ecbm.files import write_safetensors

__all__ = ["Checkpoint"]

_History = list[dict[str, float]]
_Best = tuple[float, int, dict[str, Tensor]]


class Checkpoint:
    """Module, optimiser and best-so-far of a training loop, after its last finished epoch.

    Parameters
    ----------
    path
        File to write and to resume from.
    identity
        Fingerprints of recipe and data: a checkpoint of another training is refused, not resumed.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity

    def save(self, module: nn.Module, optimiser: torch.optim.Optimizer, history: _History, best: _Best) -> None:
        tensors = {f"module/{name}": value for name, value in module.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in best[2].items()}
        for index, slots in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser/{index}/{slot}": torch.as_tensor(value) for slot, value in slots.items()}
        header = {"identity": self.identity, "history": history, "best": [best[0], best[1]]}
        write_safetensors(self.path, tensors, {"checkpoint": json.dumps(header)})

    def load(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[_History, _Best] | None:
        """Put a saved state back, or return ``None`` if there is none yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["checkpoint"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            identity, history, (lowest, epoch) = header["identity"], header["history"], header["best"]
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise InputError(f"{self.path}: not a training checkpoint ({error}); delete it to start over") from None
        if identity != self.identity:
            raise InputError(f"{self.path}: is of another training (recipe or data differ); choose another file")

        def part(prefix: str) -> dict[str, Tensor]:
            return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}

        expected, found = module.state_dict(), part("module/")
        shapes = {name: value.shape for name, value in expected.items()}
        if {name: value.shape for name, value in found.items()} != shapes:
            raise InputError(f"{self.path}: is of another training (the backbone differs); choose another file")
        module.load_state_dict(found)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in part("optimiser/").items():
            index, slot = name.split("/")
            slots.setdefault(int(index), {})[slot] = value
        state = optimiser.state_dict()
        optimiser.load_state_dict({"state": slots, "param_groups": state["param_groups"]})
        # The fused Adam goes through memory: moments lie as their parameters do, and files hold plain rows.
        for parameter, moments in optimiser.state.items():
            for slot, value in moments.items():
                if value.shape == parameter.shape:
                    moments[slot] = torch.empty_like(parameter, requires_grad=False).copy_(value)
        return history, (lowest, epoch, part("best/"))
