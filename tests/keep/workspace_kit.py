"""What the tests of the workspace share: a small workspace, an edit of every level, and what its state is."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import ecbm
from ecbm.keep.workspace import Workspace
from ecbm.show.cli import app
from kit import tabular

RECIPE = ecbm.Recipe(backbone="linear")
PATIENT = "patient-zero"
SIGNATURE = {"author": "tester", "reason": "a test"}


def more_samples() -> ecbm.Dataset:
    """Two samples that the small dataset does not have."""
    extra = tabular(42, 4, seed=7)
    return extra.select([40, 41])


EDITS: dict[str, Callable[[], ecbm.Edit]] = {
    "concept labels": lambda: ecbm.Edit(correct_concepts=[("s1", "round", 1), ("s3", "size=big", None)]),
    "class labels": lambda: ecbm.Edit(correct_labels=[("s4", "crow"), ("s5", "wren")]),
    "remove concepts": lambda: ecbm.Edit(remove_concepts=["round"]),
    "add concepts": lambda: ecbm.Edit(add_concepts={"new": {f"s{i}": i % 2 for i in range(30)}}),
    "remove samples": lambda: ecbm.Edit(remove_samples=["s10", "s11"]),
    "add samples": lambda: ecbm.Edit(add_samples=more_samples()),
    "mixed": lambda: ecbm.Edit(
        correct_concepts=[("s1", "round", 0.5)], remove_samples=["s12"], add_samples=more_samples()
    ),
}


def small_data() -> ecbm.Dataset:
    """Forty samples with four features, one of them under an id that is easy to find."""
    data = tabular(40, 4, missing=0.05)
    ids = [PATIENT if name == "s33" else name for name in data.ids]
    return ecbm.Dataset(
        ids, data.inputs, data.concepts, data.labels, data.concept_names, data.class_names, data.splits
    )


def new_workspace(folder: Path) -> Workspace:
    """A workspace with data and no model."""
    return Workspace.create(folder, small_data(), RECIPE, source="elsewhere", **SIGNATURE)


def trained_workspace(folder: Path) -> Workspace:
    """A workspace with a trained model (version 1)."""
    workspace = new_workspace(folder)
    workspace.train(RECIPE, **SIGNATURE)
    return workspace


def edited_workspace(folder: Path) -> Workspace:
    """A workspace with two edits (versions 2 and 3), of which the last is undone, and an export inside."""
    workspace = trained_workspace(folder)
    workspace.edit(EDITS["mixed"](), **SIGNATURE)
    workspace.edit(EDITS["class labels"](), **SIGNATURE)
    workspace.undo(**SIGNATURE)
    workspace.export(folder / "exports" / "one", **SIGNATURE)
    return workspace


def _init(folder: Path) -> Any:
    return new_workspace(folder)


def _edit(name: str) -> Callable[[Path], Any]:
    return lambda folder: Workspace(folder).edit(EDITS[name](), "exact", **SIGNATURE)


# Operation: the workspace it starts from, and what it does.
OPERATIONS: dict[str, tuple[Callable[[Path], Any] | None, Callable[[Path], Any]]] = {
    "init": (None, _init),
    "train": (new_workspace, lambda folder: Workspace(folder).train(RECIPE, **SIGNATURE)),
    **{f"edit: {name}": (trained_workspace, _edit(name)) for name in EDITS},
    "undo": (edited_workspace, lambda folder: Workspace(folder).undo(**SIGNATURE)),
    "redo": (edited_workspace, lambda folder: Workspace(folder).redo(**SIGNATURE)),
    "erase": (
        edited_workspace,
        lambda folder: Workspace(folder).erase(["s1", PATIENT], **SIGNATURE),
    ),
}


def state_of(folder: Path) -> Any:
    """What a workspace holds, without what differs from run to run (times, random salts)."""
    if not folder.exists():
        return None
    workspace = Workspace(folder)
    versions = [
        (v.version, v.parent, v.kind, v.summary["words"], v.model is not None, v.data is not None)
        for v in workspace.versions()
    ]
    head = workspace.version()
    model = workspace.model(head.version).fingerprint if head.model is not None else None
    entries = [(entry["kind"], entry["version"]) for entry in workspace.entries()]
    return versions, head.version, model, workspace.data(head.version).fingerprint, entries


def bytes_of(folder: Path) -> str:
    """A digest of every name and byte of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(str(path.relative_to(folder)).encode())
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def copy(source: Path, target: Path) -> Path:
    """A copy of a workspace, in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the records."""
    connection = sqlite3.connect(folder / "records.sqlite")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def run(*arguments: str) -> str:
    """What a command prints; it must end well."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output
