"""Export: one version as a self-contained folder, and where copies went."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.files import flush_folder, write_bytes, write_json
from ecbm.keep import database, ledger, transaction
from ecbm.keep.onnx import onnx_bytes, write_onnx
from ecbm.keep.plain import plain
from ecbm.keep.saving import save
from ecbm.keep.signature import Signature
from ecbm.keep.workspace import Workspace
from ecbm.read.inputs import TensorInputs
from ecbm.read.new_rows import FEATURES
from ecbm.verify.evaluate import evaluate
from ecbm.words import summary_words

__all__ = ["export_version"]


def export_version(
    workspace: Workspace, folder: str | Path, number: int | str | None, *, onnx: bool, signature: Signature
) -> dict[str, Any]:
    """:meth:`ecbm.Workspace.export`.

    The folder holds the weights, the config, a model card with metrics and edit history, ``history.json``, and
    where the inputs were columns of a table ``features.json``, by which new rows are read; no samples and no ids.
    That it was exported, and where to, is recorded.
    """
    folder = Path(folder)
    target, root = folder.resolve(), workspace.folder.resolve()
    if target.is_relative_to(root) and (target == root or target.parent != root / "exports"):
        raise InputError(f"{folder}: inside the workspace, exports go to {workspace.folder / 'exports'}/NAME")
    version = workspace.version(number)
    model, data = workspace.model(version.version), workspace.data(version.version)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already and is not empty; give a new folder")
    # Made before anything is written, because it may not be possible.
    graph = onnx_bytes(model) if onnx else None
    split = next((name for name in ("test", "val", "train") if name in data.split_sizes), "train")
    metrics = evaluate(model, data.split(split))
    history = _history(workspace, version.version)
    target.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "data": version.summary.get("shape", {}),
        "split": split,
        "history": [line["words"] for line in history],
    }
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        save(model, draft, metrics=metrics, about=about)
        figures = {name: value for name, value in metrics.items() if isinstance(value, float | int)}
        content = {"version": version.version, "split": split, "metrics": plain(figures), "history": history}
        write_json(draft / "history.json", content)
        columns = data.inputs.columns if isinstance(data.inputs, TensorInputs) else None
        if columns is not None:
            write_bytes(draft / FEATURES, columns.to_bytes())
        if graph is not None:
            write_onnx(draft, graph)
        # Recorded before it appears: a copy that exists is always one that an erasure names.
        _record(workspace, version.version, target, signature)
        if target.is_dir():
            target.rmdir()  # empty, as checked above
        draft.rename(target)
        flush_folder(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return {"version": version.version, "folder": str(folder), "files": sorted(p.name for p in folder.iterdir())}


def _history(workspace: Workspace, number: int) -> list[dict[str, Any]]:
    """From the first version to this one: what was done, in words and counts."""
    known = {version.version: version for version in workspace.versions()}
    lines: list[dict[str, Any]] = []
    at: int | None = number
    while at is not None and at in known:
        version = known[at]
        lines.append(
            {"version": at, "kind": version.kind, "time": version.time, "words": summary_words(version.summary)}
        )
        at = version.parent
    return lines[::-1]


def _record(workspace: Workspace, number: int, target: Path, signature: Signature) -> None:
    details = signature.details()
    with transaction.begin(workspace.folder, any_head=True) as opened, database.atomically(opened.connection):
        time = ledger.now()
        public = {"kind": "export", "version": number, "head": opened.head, "time": time}
        ledger.append(opened.connection, public, details)
        opened.connection.execute("INSERT INTO exports VALUES (?, ?, ?)", (str(target), number, time))
