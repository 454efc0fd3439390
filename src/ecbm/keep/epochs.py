"""Backbones of a training's epochs, kept in the cache if they were asked for; an erasure destroys them."""

from __future__ import annotations

import shutil
from pathlib import Path

from ecbm.keep import durable
from ecbm.train.model import ConceptBottleneck

__all__ = ["name_epochs", "recall_epochs"]


def _folder(workspace: Path, model: ConceptBottleneck) -> Path:
    return workspace / "cache" / f"trajectory-{model.fingerprint[:16]}"


def name_epochs(workspace: Path, epochs: Path, model: ConceptBottleneck) -> None:
    """Put the epochs of a finished training under the name of its model; a frozen network had none."""
    target = _folder(workspace, model)
    if not epochs.is_dir():
        return
    if target.is_dir():
        shutil.rmtree(target)
    durable.step("rename", target)
    epochs.rename(target)


def recall_epochs(workspace: Path, model: ConceptBottleneck) -> Path | None:
    """Where the epochs of a model's training are, if they were kept."""
    folder = _folder(workspace, model)
    return folder if any(folder.glob("epoch-*.safetensors")) else None
