"""Interrupt and resume: what a fit has added up so far, on disk.

Each process has its own files, one a phase. A phase's last file is deleted only after every process has
written the first of the next phase, so a crash at any point leaves all of them at one common phase.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ecbm import parallel
from ecbm.curvature.accumulate import Accumulator
from ecbm.curvature.store import read_file, write_file
from ecbm.errors import InputError

__all__ = ["FitCheckpoint"]


class FitCheckpoint:
    """State of one fit in a folder.

    Parameters
    ----------
    folder
        Created if needed; emptied of these files when the fit is complete.
    identity
        Describes model, data and settings; a file with another identity is refused.
    seconds
        Least time between two writes.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], seconds: float) -> None:
        self.folder, self.identity, self.seconds = folder, identity, seconds
        self._last = time.monotonic()

    def path(self, phase: str) -> Path:
        return self.folder / f"{phase}-{parallel.rank()}-of-{parallel.world_size()}.safetensors"

    def due(self) -> bool:
        return time.monotonic() - self._last >= self.seconds

    def save(self, phase: str, tensors: dict[str, Tensor], done: int) -> None:
        write_file(self.path(phase), tensors, {"identity": self.identity, "done": done})
        self._last = time.monotonic()

    def read(self, phase: str) -> tuple[dict[str, Tensor], int] | None:
        path = self.path(phase)
        if not path.exists():
            return None
        tensors, description = read_file(path)
        stored = description["identity"]
        if stored != self.identity:
            differing = ", ".join(sorted(key for key in self.identity if stored.get(key) != self.identity[key]))
            raise InputError(
                f"{path}: belongs to another fit (different {differing}); delete it or use another folder"
            )
        return tensors, int(description["done"])

    def restore(self, phase: str, sums: Accumulator) -> int:
        """Fill ``sums`` with what was saved; returns the number of blocks it covers."""
        saved = self.read(phase)
        if saved is None:
            return 0
        sums.restore(saved[0])
        return saved[1]

    def read_common(self, phase: str) -> dict[str, Tensor] | None:
        """The phase's tensors, if every process has them."""
        saved = self.read(phase)
        have = torch.tensor(float(saved is not None))
        parallel.all_reduce_sum(have)
        if saved is None or int(have) != parallel.world_size():
            return None
        return saved[0]

    def retire(self, phase: str) -> None:
        """Delete a phase's file, once all processes are past it."""
        if parallel.world_size() > 1:
            dist.barrier()
        self.path(phase).unlink(missing_ok=True)

    def finish(self) -> None:
        for phase in ("covariances", "bases", "eigenvalues"):
            self.retire(phase)
        if parallel.rank() == 0 and self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
