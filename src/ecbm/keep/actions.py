"""What a workspace can be asked to do: be made, train, take over a model, edit it, preview an edit."""

from __future__ import annotations

import os
import shutil
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ecbm import parallel
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor, EditResult
from ecbm.edit.files import read_edit
from ecbm.errors import InputError
from ecbm.files import refusing_places
from ecbm.keep import database, durable, transaction
from ecbm.keep.curvature_cache import keep_curvature, recall_curvature
from ecbm.keep.edit_record import edit_details
from ecbm.keep.environment import computed
from ecbm.keep.epochs import name_epochs
from ecbm.keep.facts import Recalled, keep_facts, recall_facts
from ecbm.keep.ledger import Detail, canonical, now
from ecbm.keep.lock import BusyError, exclusive
from ecbm.keep.noise import new_noise, noise_details
from ecbm.keep.objects import digest_of
from ecbm.keep.plain import plain
from ecbm.keep.records import Version, erased, untrained
from ecbm.keep.removed import removed_concepts
from ecbm.keep.signature import Signature, start_from
from ecbm.keep.stored_datasets import store_dataset, store_edited
from ecbm.keep.stored_features import keep_features, open_features
from ecbm.keep.stored_models import store_model
from ecbm.keep.transaction import NewVersion, Transaction
from ecbm.keep.workspace import Workspace
from ecbm.read.dataset import Dataset
from ecbm.train.asked import recipe_of
from ecbm.train.backbones import resolve_backbone
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train_and_tell
from ecbm.words import counted, done, summary_of

__all__ = [
    "adopt_model", "carry_out", "create_workspace", "edit_model", "keep_edit", "open_editor", "preview_edit",
    "shape_of", "train_model",
]  # fmt: skip


def create_workspace(
    folder: str | Path,
    data: Dataset,
    recipe: Recipe | None,
    *,
    model: ConceptBottleneck | None,
    source: str,
    signature: Signature,
) -> None:
    """:meth:`ecbm.Workspace.create`."""
    recipe = recipe_of(data, recipe, {}, "Workspace.create")
    resolve_backbone(recipe, tuple(data.inputs.shape))
    if model is not None:
        Editor(model, data)  # refuses a model of other data
    _create(folder, data, recipe, source, signature)
    if model is not None:
        adopt_model(Workspace(folder), model, signature=signature)


def _create(folder: str | Path, data: Dataset, recipe: Recipe, source: str, signature: Signature) -> None:
    folder = Path(folder)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder}: exists already and is not empty; give a new folder")
    target = folder.absolute()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.init")
    with refusing_places(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead_drafts(target)
        durable.make_folder(draft)
    with exclusive(draft / transaction.LOCK):
        try:
            _fill(draft, data, recipe, source, signature)
            durable.step("rename", target)
            if target.is_dir():
                target.rmdir()  # empty, as checked above
            os.rename(draft, target)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            if isinstance(error, sqlite3.Error):
                raise database.sqlite_failure(folder, error) from None
            raise
    durable.flush_folder(target.parent)


def _remove_dead_drafts(target: Path) -> None:
    """Remove what an earlier attempt left that was killed; one that is still running holds its lock."""
    for draft in target.parent.glob(f".{target.name}.????????.init"):
        try:
            with exclusive(draft / transaction.LOCK, patience=0):
                shutil.rmtree(draft, ignore_errors=True)
        except (BusyError, OSError):
            continue


def _fill(draft: Path, data: Dataset, recipe: Recipe, source: str, signature: Signature) -> None:
    connection = database.create(draft)
    try:
        opened = Transaction(draft, connection)
        opened.objects.create()
        manifest = store_dataset(data, opened.put)
        words = f"started with {counted(len(data), 'sample')}"
        details = [*signature.details(), *([Detail("source", source)] if source else []), *computed({})]
        facts = {"data": data.fingerprint}
        new = NewVersion("init", None, None, manifest, {"words": words, "shape": shape_of(data)}, facts)
        with database.atomically(connection):
            opened.set_meta("format", database.FORMAT)
            opened.set_meta("created", now())
            opened.set_meta("recipe", canonical(recipe.to_dict()))
            opened.record_objects()
            opened.insert_version(new, details)
        database.fold(connection)
        database.seal(draft)
    finally:
        connection.close()
    durable.flush_folder(draft)


def shape_of(data: Dataset) -> dict[str, Any]:
    """The sizes that ``ecbm status`` shows without reading the dataset."""
    return {
        "samples": len(data),
        "splits": data.split_sizes,
        "concepts": len(data.concept_names),
        **({"target": data.class_names[0]} if data.predicts_number else {"classes": len(data.class_names)}),
        "input_shape": list(data.inputs.shape),
    }


def train_model(
    workspace: Workspace,
    recipe: Recipe | None,
    *,
    signature: Signature,
    expected: int | None,
    keep_epochs: bool = False,
) -> int:
    """:meth:`ecbm.Workspace.train`."""
    version = workspace.version()
    start_from(version.version, expected)
    if version.data is None:
        raise erased(version)
    if recipe is None:
        recipe = workspace.recipe
        workspace.check_trusted(recipe)
    signed = signature.details()
    data = workspace.data(version.version)
    cache = workspace.folder / "cache"
    name = digest_of(canonical([recipe.to_dict(), data.fingerprint]).encode())[:16]
    durable.make_folder(cache)
    checkpoint = cache / f"training-{name}.safetensors"
    epochs = cache / f"epochs-{name}" if keep_epochs else None
    noise = new_noise(recipe)
    trained = train_and_tell(
        data,
        recipe,
        noise=noise,
        checkpoint=checkpoint,
        trajectory=epochs,
        keep=lambda front: open_features(workspace.folder, front, writes=True),
        device=workspace.device,
    )
    model = trained.model
    how = computed({"recipe": model.recipe.replace(weights=None).to_dict()}, model.recipe.weights)
    how += noise_details(noise, trained.certified)
    if parallel.rank() != 0:  # the processes of one training have the same model, which the first one keeps
        return parallel.agreed(0)
    if epochs is not None:
        name_epochs(workspace.folder, epochs, model)
    with parallel.alone():
        editor = Editor(model, data, device=workspace.device)
        editor.state.prepare(trained.design, trained.basis)
        number = _keep_trained(workspace, version, editor, "trained", [*signed, *how])
    return parallel.agreed(number)


def adopt_model(workspace: Workspace, model: ConceptBottleneck, *, signature: Signature) -> int:
    """:meth:`ecbm.Workspace.adopt`."""
    version = workspace.version()
    if version.data is None:
        raise erased(version)
    data = workspace.data(version.version)
    details = [*signature.details(), *computed({})]
    return _keep_trained(workspace, version, Editor(model, data), "imported", details)


def _keep_trained(
    workspace: Workspace,
    version: Version,
    editor: Editor,
    verb: str,
    details: list[Detail],
) -> int:
    assert version.data is not None
    model, data = editor.model, editor.data
    backbone = model.recipe.to_dict()["backbone"]
    learnt = len(data.split("train"))
    kind = f"{backbone} backbone{', frozen' if model.recipe.is_frozen else ''}"
    words = f"{verb} a {model.recipe.regime} model ({kind}) on {counted(learnt, 'training sample')}"
    method = {"trained": "train", "imported": "import"}[verb]
    summary = {"words": words, "method": method, "backbone": backbone, "shape": shape_of(data)}
    facts = {"data": data.fingerprint, "model": model.fingerprint}
    with transaction.begin(workspace.folder, version.version) as opened:
        stored = store_model(model, opened.put)
        new = NewVersion("train", version.version, stored, version.data, summary, facts)
        number = opened.commit_version(new, details)
        keep_features(model, data)
        keep_facts(workspace.folder, editor, Recalled(number))
    return number


def open_editor(workspace: Workspace, expected: int | None) -> tuple[Editor, Version, Recalled]:
    """An editor of the current version with the facts that were kept for it, and where those come from."""
    version = workspace.version()
    start_from(version.version, expected)
    if version.data is None:
        raise erased(version)
    if version.model is None:
        raise untrained(workspace.folder, version)
    model, data = workspace.model(version.version), workspace.data(version.version)
    editor = Editor(model, data, device=workspace.device)
    recall_curvature(workspace.folder, editor)
    return editor, version, recall_facts(workspace.folder, editor, version.version)


def _edit(workspace: Workspace, given: Edit | str | os.PathLike[str], data: Dataset) -> Edit:
    if isinstance(given, Edit):
        return given
    if isinstance(given, str | os.PathLike):
        return read_edit(os.fspath(given), data, removed_concepts(workspace))
    raise InputError(f"expected an Edit or the path of an edit file, got {type(given).__name__}")


def preview_edit(
    workspace: Workspace, edit: Edit | str | os.PathLike[str], method: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """:meth:`ecbm.Workspace.preview`."""
    editor, _, _ = open_editor(workspace, None)
    return editor.preview(_edit(workspace, edit, editor.data), method, **options)


def edit_model(
    workspace: Workspace,
    edit: Edit | str | os.PathLike[str],
    method: str,
    options: Mapping[str, Any],
    *,
    signature: Signature,
    expected: int | None,
) -> tuple[int, dict[str, Any]]:
    """:meth:`ecbm.Workspace.edit`."""
    editor, parent, recalled = open_editor(workspace, expected)
    edit = _edit(workspace, edit, editor.data)
    if not edit:
        raise InputError("the edit is empty; there is nothing to do")
    if "noise" in options:
        raise InputError("the noise of a certified model is drawn by the workspace; leave out noise=")
    signature.details()  # refuses before anything is computed
    result, noise = carry_out(editor, edit, method, options)
    opened = editor, parent, recalled
    version = keep_edit(workspace, opened, edit, result, method, options, noise=noise, signature=signature)
    return version, result.report


def carry_out(editor: Editor, edit: Edit, method: str, options: Mapping[str, Any]) -> tuple[EditResult, int | None]:
    """Apply an edit as a workspace does; also the secret seed of the release, where removal is certified."""
    noise = new_noise(editor.model.recipe)
    secret = {} if noise is None else {"noise": noise}
    return editor.apply(edit, method, **options, **secret), noise


def keep_edit(
    workspace: Workspace,
    opened_editor: tuple[Editor, Version, Recalled],
    edit: Edit,
    result: EditResult,
    method: str,
    options: Mapping[str, Any],
    *,
    noise: int | None,
    signature: Signature,
) -> int:
    """Keep what :func:`carry_out` has made of an edit as a new version; returns its number.

    An edit that changes nothing makes no version.
    """
    editor, parent, recalled = opened_editor
    assert parent.data is not None
    signed = signature.details()
    changes = edit.changes(editor.data)
    if not changes.edit:
        return parent.version
    keep_curvature(workspace.folder, editor)
    how = computed({"method": method, **options}, result.model.recipe.weights if method == "retrain" else None)
    how.append(Detail("facts_from", recalled.root))
    how += noise_details(noise, result.report.get("certified"))
    summary = summary_of(result.report, done(changes.edit.said_of(editor.data))) | {"shape": shape_of(result.data)}
    facts = {"data": result.data.fingerprint, "model": result.model.fingerprint}
    with transaction.begin(workspace.folder, parent.version) as opened:
        data = store_edited(parent.data, editor.data, result.data, opened.objects, opened.put)
        model = store_model(result.model, opened.put)
        details = [*signed, *how, Detail("report", plain(result.report)), *edit_details(changes)]
        new = NewVersion("edit", parent.version, model, data, summary, facts)
        version = opened.commit_version(new, details)
        keep_features(result.model, result.data)
        keep_facts(workspace.folder, editor.follow(result, curvature=False), recalled)
    return version
