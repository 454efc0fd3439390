"""Editable concept bottleneck models.

>>> import ecbm
>>> data = ecbm.datasets.birds(n=3000, seed=0)                    # doctest: +SKIP
>>> model = ecbm.train(data, ecbm.Recipe(backbone="convnet"))     # doctest: +SKIP
>>> ecbm.evaluate(model, data.split("test"))["class_accuracy"]    # doctest: +SKIP
"""

from ecbm import datasets
from ecbm._version import __version__
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor, EditResult
from ecbm.errors import EcbmError, InputError, UnknownNameError
from ecbm.keep.saving import load, save
from ecbm.read.dataset import Dataset
from ecbm.read.tables import read_dataset
from ecbm.read.write import write_dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train
from ecbm.verify.evaluate import evaluate
from ecbm.verify.interventions import intervention_curve
from ecbm.verify.leakage import concept_leakage

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
    "__version__",
    "concept_leakage",
    "datasets",
    "evaluate",
    "intervention_curve",
    "load",
    "read_dataset",
    "save",
    "train",
    "write_dataset",
]
