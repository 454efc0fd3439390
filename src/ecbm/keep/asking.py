"""Questions to a version of a workspace, with what earlier edits and questions have computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ecbm.edit.editor import Editor
from ecbm.keep.curvature_cache import keep_curvature, recall_curvature
from ecbm.keep.epochs import recall_epochs
from ecbm.keep.facts import recall_facts
from ecbm.keep.records import erased, untrained
from ecbm.keep.workspace import Workspace
from ecbm.verify.influence.asking import Influence

__all__ = ["asking"]


@contextmanager
def asking(workspace: Workspace, number: int | str | None = None, *, method: str = "auto") -> Iterator[Influence]:
    """Ask a version about influence; curvature that had to be fitted is kept for the next question."""
    version = workspace.version(number)
    if version.data is None:
        raise erased(version)
    if version.model is None:
        raise untrained(workspace.folder, version)
    model, data = workspace.model(version.version), workspace.data(version.version)
    editor = Editor(model, data, device=workspace.device)
    recall_curvature(workspace.folder, editor)
    recall_facts(workspace.folder, editor, version.version)
    epochs = None if model.recipe.is_linear else recall_epochs(workspace.folder, model)
    yield Influence(editor, method=method, trajectory=epochs)
    keep_curvature(workspace.folder, editor)
