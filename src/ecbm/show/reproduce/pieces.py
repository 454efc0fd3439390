"""The pieces of an experiment: units of work that are computed once, kept, and spread over processes by seed."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType
from typing import Any

from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.settings import WORDS
from ecbm.show.reproduce.store import ENGINE, code_digest, digest_of

__all__ = ["Piece", "experiment_module", "models_of", "piece_name", "telling_module"]


_HERE = "show/reproduce"


@dataclasses.dataclass(frozen=True)
class Piece:
    """One unit: what it is called, which repetition it belongs to, and what its experiment needs to know of it."""

    title: str
    repetition: int
    options: dict[str, Any]


def experiment_module(name: str) -> ModuleType:
    """What computes an experiment: ``pieces(case)``, ``models(case, piece)`` and ``compute(case, piece)``."""
    return importlib.import_module(f"ecbm.show.reproduce.experiments.{name.replace('-', '_')}")


def telling_module(name: str) -> ModuleType:
    """What tells of an experiment: ``tell(case, values)`` gives its ``Findings``."""
    return importlib.import_module(f"ecbm.show.reproduce.telling.{name.replace('-', '_')}")


def models_of(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """Datasets and seeds of the models that a piece needs."""
    found: list[tuple[Dataset, int]] = experiment_module(case.experiment).models(case, piece)
    return found


def piece_name(case: Case, piece: Piece) -> str:
    """The file name of a piece: other data, settings or code make another one.

    Settings of how many repetitions there are and of words do not count, so that more seeds can be added later.
    """
    module = case.experiment.replace("-", "_")
    computing = ("read", "train", "curvature", "edit", "verify", *ENGINE, f"{_HERE}/experiments/{module}.py")
    settings = {key: value for key, value in case.settings.items() if key not in ("repetitions", *WORDS)}
    facts = (case.data.fingerprint, case.recipe.to_dict(), settings, piece.options, code_digest(*computing))
    return f"{case.experiment}-{piece.repetition}-{digest_of(piece.title, piece.repetition, *facts)}"
