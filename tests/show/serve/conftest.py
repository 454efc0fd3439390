"""Small workspaces, made once: drawn birds, rows of a table, and rows with concepts of every type."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import ecbm
from kit import pictures, tabular
from number_kit import numbered
from serve_kit import Workbench, workbench
from types_kit import mixed


def _made(folder: Path, data: ecbm.Dataset, recipe: ecbm.Recipe) -> Path:
    """A workspace with a model, and with what the workbench computes once for a version."""
    ecbm.Workspace.create(folder, data, recipe).train(author="marta")
    with workbench(folder) as found:
        client = found.browser("anna")
        while not client.get("/api/queue").json()["ready"]:
            time.sleep(0.05)
    return folder


@pytest.fixture(scope="session")
def birds_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = ecbm.Recipe(backbone="convnet", epochs=1)
    return _made(tmp_path_factory.mktemp("made") / "birds", pictures(160), recipe)


def _with_errors(data: ecbm.Dataset, concept: str, count: int) -> ecbm.Dataset:
    """The data with the labels of a concept turned round where they are clearest."""
    column = data.concept_index(concept)
    rows = [row for row, split in enumerate(data.splits) if split == "train"]
    read = ecbm.train(data, ecbm.Recipe(backbone="linear")).concept_probabilities(data)[rows, column]
    gap = (read - data.concepts[rows, column]).abs()
    concepts = data.concepts.clone()
    for place in gap.argsort()[:count].tolist():
        concepts[rows[place], column] = 1 - concepts[rows[place], column]
    return data.replace(concepts=concepts)


@pytest.fixture(scope="session")
def table_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = _with_errors(tabular(240), "size=big", 8)
    return _made(tmp_path_factory.mktemp("made") / "table", data, ecbm.Recipe(backbone="linear"))


@pytest.fixture(scope="session")
def typed_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("made") / "typed", mixed(120), ecbm.Recipe(backbone="linear"))


@pytest.fixture(scope="session")
def number_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("made") / "number", numbered(120), ecbm.Recipe(backbone="linear"))


def _copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / made.name))


@pytest.fixture
def table_folder(table_made: Path, tmp_path: Path) -> Path:
    return _copy(table_made, tmp_path)


@pytest.fixture(scope="module")
def birds(birds_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """Drawn birds, for tests that change no version."""
    with workbench(_copy(birds_made, tmp_path_factory.mktemp("birds"))) as found:
        yield found


@pytest.fixture(scope="module")
def anna(birds: Workbench) -> httpx.Client:
    """Anna's browser at the birds."""
    return birds.browser("anna")


@pytest.fixture
def table(table_folder: Path) -> Iterator[Workbench]:
    """Rows of a table, for tests that change versions."""
    with workbench(table_folder) as found:
        yield found
