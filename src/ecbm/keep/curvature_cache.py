"""Curvature that an edit has fitted, kept for the next edit of the same version (after an undo, for example).

It lies in the folder ``cache``: nothing depends on it, what is damaged is fitted again, and an erasure removes it.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from ecbm.edit.editor import Editor
from ecbm.errors import EcbmError
from ecbm.keep import durable

__all__ = ["keep_curvature", "recall_curvature"]


def _folder(workspace: Path, editor: Editor) -> Path:
    # The fingerprint of the data is part of the name: the same weights on other data have another curvature.
    name = f"curvature-{editor.model.fingerprint[:16]}-{editor.data.fingerprint[:16]}"
    return workspace / "cache" / name


def recall_curvature(workspace: Path, editor: Editor) -> bool:
    """Give an editor the curvature that was kept for its model and data; returns whether there was any."""
    folder = _folder(workspace, editor)
    if not folder.is_dir():
        return False
    from ecbm.curvature import EKFAC

    try:
        editor.state._concept_curvature["true"] = EKFAC.load(folder, editor.state.part.untied)
    except (EcbmError, OSError, ValueError, KeyError, TypeError, RuntimeError):
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def keep_curvature(workspace: Path, editor: Editor) -> None:
    """Keep what an editor has fitted, if it has."""
    folder = _folder(workspace, editor)
    if not editor.state.has_curvature("true") or folder.is_dir():
        return
    # A full disk is no reason to refuse the edit.
    with contextlib.suppress(OSError):
        durable.make_folder(workspace / "cache")
        editor.state.concept_curvature("true").save(folder)
