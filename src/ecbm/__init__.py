"""Editable concept bottleneck models.

>>> import ecbm
>>> data = ecbm.datasets.birds(n=3000, seed=0)                    # doctest: +SKIP
>>> model = ecbm.train(data, ecbm.Recipe(backbone="convnet"))     # doctest: +SKIP
>>> ecbm.evaluate(model, data.split("test"))["class_accuracy"]    # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ecbm._version import __version__

if TYPE_CHECKING:
    from ecbm import datasets, verify
    from ecbm.edit.edit import Edit
    from ecbm.edit.editor import Editor, EditResult
    from ecbm.errors import EcbmError, InputError, UnknownNameError
    from ecbm.keep.saving import load, save
    from ecbm.keep.workspace import Workspace
    from ecbm.read.dataset import Dataset
    from ecbm.read.new_rows import read_inputs
    from ecbm.read.tables import describe, read_dataset
    from ecbm.read.write import write_dataset
    from ecbm.show.report.make import report
    from ecbm.show.reproduce.run import reproduce
    from ecbm.train.model import ConceptBottleneck
    from ecbm.train.recipe import Recipe
    from ecbm.train.train import train
    from ecbm.verify.evaluate import evaluate
    from ecbm.verify.influence.asking import influence
    from ecbm.verify.interventions import intervention_curve
    from ecbm.verify.leakage import concept_leakage
    from ecbm.verify.suggest.suggest import suggest

__all__ = [
    "ConceptBottleneck",
    "Dataset",
    "EcbmError",
    "Edit",
    "EditResult",
    "Editor",
    "InputError",
    "Recipe",
    "UnknownNameError",
    "Workspace",
    "__version__",
    "concept_leakage",
    "datasets",
    "describe",
    "evaluate",
    "influence",
    "intervention_curve",
    "load",
    "read_dataset",
    "read_inputs",
    "report",
    "reproduce",
    "save",
    "suggest",
    "train",
    "verify",
    "write_dataset",
]

# Names and where they live, imported when first asked for: torch takes seconds, and ``ecbm log`` needs none of it.
_HOMES = {
    "Edit": "ecbm.edit.edit",
    "Editor": "ecbm.edit.editor",
    "EditResult": "ecbm.edit.editor",
    "EcbmError": "ecbm.errors",
    "InputError": "ecbm.errors",
    "UnknownNameError": "ecbm.errors",
    "load": "ecbm.keep.saving",
    "save": "ecbm.keep.saving",
    "Workspace": "ecbm.keep.workspace",
    "Dataset": "ecbm.read.dataset",
    "describe": "ecbm.read.tables",
    "read_dataset": "ecbm.read.tables",
    "read_inputs": "ecbm.read.new_rows",
    "write_dataset": "ecbm.read.write",
    "report": "ecbm.show.report.make",
    "reproduce": "ecbm.show.reproduce.run",
    "ConceptBottleneck": "ecbm.train.model",
    "Recipe": "ecbm.train.recipe",
    "evaluate": "ecbm.verify.evaluate",
    "influence": "ecbm.verify.influence.asking",
    "intervention_curve": "ecbm.verify.interventions",
    "concept_leakage": "ecbm.verify.leakage",
    "suggest": "ecbm.verify.suggest.suggest",
}


def __getattr__(name: str) -> Any:
    if name in ("datasets", "train", "verify"):
        # A module, set as an attribute of this package once it is imported. Those of two verbs can be called.
        return importlib.import_module(f"ecbm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ecbm' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # What completion offers: the public names, not what this file happens to import.
    return sorted(__all__)
