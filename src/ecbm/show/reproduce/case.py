"""What an experiment runs on: a dataset, a recipe, its settings, and the store of what is finished."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from ecbm.errors import InputError, unknown_name
from ecbm.read.birds import birds
from ecbm.read.breast_cancer import breast_cancer
from ecbm.read.celeba import celeba
from ecbm.read.cub import cub
from ecbm.read.dataset import Dataset
from ecbm.read.oai import oai
from ecbm.read.tables import read_dataset
from ecbm.show.reproduce.scenarios import require_binary
from ecbm.show.reproduce.settings import layered, of_data, read_settings
from ecbm.show.reproduce.store import Store
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe

__all__ = ["Asked", "Case", "open_case"]

_BUILT_IN = ("birds", "breast_cancer")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was given; small and plain, so that other processes can be told."""

    data: str = "birds"
    out: Path = Path("results")
    quick: bool = False
    repetitions: int | None = None
    backbone: str | None = None
    epochs: int | None = None
    image_size: int | None = None
    settings: Path | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One experiment on one dataset; the same object for the same question, so that it can be a key of caches."""

    experiment: str
    data_name: str
    data: Dataset
    recipe: Recipe
    settings: dict[str, Any]
    store: Store

    @property
    def linear(self) -> bool:
        """Whether the features are frozen, so that both heads are convex."""
        return self.recipe.is_linear

    @property
    def repetitions(self) -> range:
        """Numbers of the repetitions; each is the seed of its original model."""
        return range(int(self.setting("repetitions")))

    def setting(self, name: str) -> Any:
        """One of the experiment's settings."""
        if name not in self.settings:
            raise InputError(f"settings of {self.experiment}: {name!r} is missing; see the package's settings.toml")
        return self.settings[name]

    def draw(self, repetition: int) -> int:
        """Seed of a repetition's edit."""
        return int(self.setting("seed")) + repetition

    def model(self, data: Dataset, seed: int) -> ConceptBottleneck:
        """The model trained on a dataset under a seed, from the store if it is there."""
        return self.store.model(data, self.recipe.replace(seed=seed))


def _read(asked: Asked, tables: dict[str, Any]) -> tuple[str, str, Dataset]:
    """The dataset's name, the kind of settings it takes, and the dataset."""
    quick = asked.quick
    if asked.data in _BUILT_IN:
        given = of_data(tables, asked.data, quick=quick)
        data = birds(n=given["samples"], seed=given["seed"]) if asked.data == "birds" else breast_cancer()
        return asked.data, asked.data, data
    path = Path(asked.data)
    if not path.exists():
        near = unknown_name("dataset", asked.data, _BUILT_IN)
        raise InputError(f"--data: {near}, or give a folder or a table of samples that exists")
    size = asked.image_size or of_data(tables, "pictures", quick=quick)["image_size"]
    name = path.stem if path.is_file() else path.resolve().name
    found = _archive(path, size)
    data = found if found is not None else read_dataset(path)
    if found is None and len(data.inputs.shape) == 3 and data.inputs.shape[1:] != (size, size):
        data = read_dataset(path, image_size=(size, size))
    return name, "features" if len(data.inputs.shape) == 1 else "pictures", data


def _archive(path: Path, size: int) -> Dataset | None:
    """A public archive in its official layout, known by its files."""
    if not path.is_dir():
        return None
    if (path / "CUB_200_2011").is_dir() or (path / "image_class_labels.txt").is_file():
        return cub(path, image_size=size)
    if any((path / place / "list_attr_celeba.txt").is_file() for place in ("", "Anno")):
        return celeba(path, image_size=size)
    if next((path / "train").rglob("image_codes.pkl"), None) is not None:
        return oai(path, image_size=size)
    return None


@functools.lru_cache(maxsize=2)
def _data(asked: Asked) -> tuple[str, Dataset, Recipe]:
    tables = read_settings(asked.settings)
    name, kind, data = _read(asked, tables)
    require_binary(data, asked.data)
    for split in ("train", "val", "test"):
        if split not in data.splits:
            raise InputError(f"{asked.data}: no sample is in the split {split!r}; experiments need all three")
    given = of_data(tables, kind, quick=asked.quick)
    backbone = asked.backbone or given["backbone"]
    options: dict[str, Any] = {} if backbone == "linear" else {"epochs": asked.epochs or given.get("epochs", 20)}
    return name, data, Recipe(backbone=backbone, **options)


@functools.lru_cache(maxsize=8)
def open_case(asked: Asked, experiment: str) -> Case:
    """Read the dataset, and put together what an experiment needs."""
    name, data, recipe = _data(asked)
    tables = read_settings(asked.settings)
    settings = layered(tables, experiment, frozen=recipe.is_linear, quick=asked.quick)
    if asked.repetitions is not None:
        settings["repetitions"] = asked.repetitions
    return Case(experiment, name, data, recipe, settings, Store(asked.out / "work"))
