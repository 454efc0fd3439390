"""What a call of ``ecbm.train`` asks for, checked before any work, and what an interrupt leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.train.recipe import Recipe

__all__ = ["TrainingInterrupted", "epochs_kept", "explained_interrupt", "recipe_of"]


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during a training. ``epochs`` says how many are kept, ``None`` if there is no checkpoint."""

    def __init__(self, epochs: int | None) -> None:
        self.epochs = epochs
        super().__init__(self.words("the same call"))

    def words(self, again: str) -> str:
        """What is kept and how to go on; ``again`` is what to do for that."""
        if self.epochs is None:
            return "interrupted: nothing is kept; with checkpoint=FILE a training can go on after an interrupt"
        if not self.epochs:
            return f"interrupted: no epoch was finished, so nothing is kept; {again} starts anew"
        some = f"{self.epochs} finished epoch{'' if self.epochs == 1 else 's'}"
        return f"interrupted: {some} kept; {again} goes on from there"


def recipe_of(data: Any, recipe: Any, fields: Mapping[str, Any], who: str = "train") -> Recipe:
    """The recipe with the given fields in place of its own; things of another kind are refused."""
    if not isinstance(data, Dataset):
        raise InputError(f"{who}: expected a Dataset (see ecbm.read_dataset), got {type(data).__name__}")
    if isinstance(recipe, Mapping):
        hint = "train(data, **fields) or Recipe(**fields)" if who == "train" else "Recipe(**fields)"
        raise InputError(f"{who}: expected a Recipe, got a mapping; write {hint}")
    if recipe is not None and not isinstance(recipe, Recipe):
        raise InputError(f"{who}: expected a Recipe, got {type(recipe).__name__}; write ecbm.Recipe(backbone=...)")
    return (recipe or Recipe()).replace(**fields)


def epochs_kept(checkpoint: Path) -> int:
    """How many finished epochs a checkpoint holds; 0 where there is none."""
    try:
        with safe_open(checkpoint, framework="pt") as file:
            return len(json.loads((file.metadata() or {})["checkpoint"])["history"])
    except (SafetensorError, KeyError, TypeError, ValueError, OSError):
        return 0


@contextmanager
def explained_interrupt(checkpoint: str | Path | None) -> Iterator[None]:
    """An interrupt (Ctrl-C) inside says what is kept of a training and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise TrainingInterrupted(None if checkpoint is None else epochs_kept(Path(checkpoint))) from None
