"""Erasure, decided and committed: samples leave the model, and then everything that is kept.

One transaction makes the new version the only one whose arrays exist and destroys the ledger details that speak of
the samples. Then the bytes that nothing refers to any more are destroyed (:mod:`ecbm.keep.destruction`).
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.errors import InputError, unknown_name
from ecbm.keep import database, durable, transaction
from ecbm.keep.actions import shape_of
from ecbm.keep.destruction import finish_erasure
from ecbm.keep.environment import computed
from ecbm.keep.ledger import Detail, canonical, now
from ecbm.keep.naming import digests_in, names, texts_in
from ecbm.keep.noise import PARTS
from ecbm.keep.plain import plain
from ecbm.keep.records import erased
from ecbm.keep.signature import Signature, start_from
from ecbm.keep.stored_datasets import known_ids, rewrite_dataset
from ecbm.keep.stored_models import store_model
from ecbm.keep.transaction import NewVersion, Transaction
from ecbm.keep.workspace import Workspace
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck, Provenance
from ecbm.train.train import train_and_tell
from ecbm.words import counted, summary_of

__all__ = ["erase_samples"]

METHODS = ("auto", "exact", "retrain")


def erase_samples(
    workspace: Workspace,
    ids: Sequence[str],
    method: str,
    options: Mapping[str, Any],
    *,
    signature: Signature,
    expected: int | None,
    before_writing: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """:meth:`ecbm.Workspace.erase`."""
    if method not in METHODS:
        raise unknown_name("method for an erasure", method, METHODS)
    version = workspace.version()
    start_from(version.version, expected)
    if version.data is None:
        raise erased(version)
    data = workspace.data(version.version)
    wanted = wanted_ids(ids)
    _check_known(workspace, data, wanted)
    _check_reason(signature, wanted)
    model = workspace.model(version.version) if version.model is not None else None
    after, edited, report, dropped = _without(data, model, wanted, method, options)
    signed = signature.details()
    facts = {"data": after.fingerprint}
    if edited is not None:
        # How the training on the erased samples went is not kept either, only how much work it was.
        training = edited.provenance.training.items()
        took = {name: value for name, value in training if name.endswith(("seconds", "work"))}
        edited.provenance = Provenance(after.fingerprint, took)
        facts["model"] = edited.fingerprint
    outside = _not_reached(workspace, edited, report)
    summary = summary_of(report, f"erased {counted(len(wanted), 'sample')}") | {"shape": shape_of(after)}
    # How far a number moved is a figure that was computed with the old model.
    summary.pop("prediction_largest_change", None)
    if before_writing is not None:
        before_writing()
    with transaction.begin(workspace.folder, version.version) as opened:
        manifest = rewrite_dataset(version.data, after, opened.objects, opened.put, forget=wanted)
        stored = None if edited is None else store_model(edited, opened.put)
        new = NewVersion("erase", version.version, stored, manifest, summary, facts)
        how = computed({"method": method, **options})
        details = [*signed, *how, Detail("report", _without_figures(report))]
        number = _commit(opened, new, details, [*wanted, *dropped], len(wanted))
        finish_erasure(workspace.folder, opened.connection)
    return {"version": number, "erased": len(wanted), "report": report, "not_reached": outside}


def wanted_ids(ids: Sequence[str]) -> list[str]:
    """The samples that are meant, each once. One text is not taken for its letters: they might be ids too."""
    if isinstance(ids, str):
        raise InputError(f"erase: expected a list of ids, got the text {ids!r}; write [{ids!r}]")
    if not ids:
        raise InputError("no ids given; name the samples to erase with --ids")
    return sorted(set(ids))


def _check_known(workspace: Workspace, data: Dataset, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in data.rows_by_id]
    seen: set[str] = set()
    for older in workspace.versions() if missing else []:
        # Versions that share a table share its ids; only the deltas differ.
        if older.data is not None and not set(missing) <= seen:
            seen |= known_ids(older.data, workspace.store)
    for name in missing:
        if name not in seen:
            raise unknown_name("sample id", name, data.ids)


def _check_reason(signature: Signature, wanted: Sequence[str]) -> None:
    for text in (signature.reason, signature.author):
        for name in wanted:
            if names(text, name):
                raise InputError(
                    f"the reason or author names {name!r}, and the ledger keeps both; say it without the id"
                )


def _without(
    data: Dataset, model: ConceptBottleneck | None, ids: Sequence[str], method: str, options: Mapping[str, Any]
) -> tuple[Dataset, ConceptBottleneck | None, dict[str, Any], list[str]]:
    """Data and model without the samples, the report, and names of classes or concepts that went with them."""
    present = [name for name in ids if name in data.rows_by_id]
    if not present:
        return data, model, {"method": method, "why": "removed from the model by an earlier edit"}, []
    gone = set(present)
    left = data.select([row for row, name in enumerate(data.ids) if name not in gone])
    if len(left) == 0 or (model is not None and "train" not in left.splits):
        raise InputError("this would erase every sample to learn from; delete the workspace folder instead")
    reduced, dropped = _reduced(data, left, gone)
    if model is None:
        return reduced, None, {"method": "none", "why": "no model was trained yet"}, dropped
    _check_classes(reduced)
    no_validation = "val" in data.splits and "val" not in left.splits
    if dropped or no_validation:
        # A class or concept that only the erased samples had would keep naming them: the model must lose it too.
        why = "the last validation sample is gone, so the model was trained anew without early stopping"
        if dropped:
            why = f"nothing else had {counted(len(dropped), 'class or concept')}, so the model was trained anew"
        recipe = model.recipe_for(reduced.concept_names)
        recipe = recipe.replace(patience=None) if no_validation else recipe
        retrained = train_and_tell(reduced, recipe, front=model.front)
        report: dict[str, Any] = {"method": "retrain", "why": why}
        report |= {} if retrained.certified is None else {"certified": retrained.certified}
        return reduced, retrained.model, report, dropped
    result = Editor(model, data).apply(Edit(remove_samples=present), method, **options)
    return result.data, result.model, result.report, []


def _check_classes(left: Dataset) -> None:
    """A class without a training sample cannot be learnt; the user must say what should become of it."""
    if left.predicts_number:
        return
    trained = set(left.split("train").labels.tolist())
    for index, name in enumerate(left.class_names):
        others = int((left.labels == index).sum())
        if others and index not in trained:
            raise InputError(
                f"class {name!r} would be left without a training sample but with "
                f"{counted(others, 'other sample')}; erase those too, or add a training sample first"
            )


def _without_figures(report: dict[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of the report: no figure that was computed with the old model."""
    kept = ("method", "changed", "certificate", "residual", "seconds", "why", "traces")
    found = {name: plain(report[name]) for name in kept if name in report}
    if "certified" in report:
        # What the solver had left before the noise is what the noise hides.
        promised = ("epsilon", "delta", "tolerance", "concept_noise", "label_noise")
        found["certified"] = {name: report["certified"][name] for name in promised}
    return found


def _reduced(data: Dataset, left: Dataset, gone: set[str]) -> tuple[Dataset, list[str]]:
    """``left`` without classes and concepts that nothing is left of, and their names."""
    rows = [data.row(name) for name in gone]
    train_rows = [row for row, split in enumerate(left.splits) if split == "train"]
    trained = left.select(train_rows) if train_rows else left
    lost_classes = [
        data.class_names[index]
        for index in (set() if data.predicts_number else {int(data.labels[row]) for row in rows})
        if not bool((left.labels == index).any())
    ]
    had = ~data.concepts[rows].isnan()
    lost_concepts = [
        name
        for column, name in enumerate(data.concept_names)
        if bool(had[:, column].any()) and bool(trained.concepts[:, column].isnan().all())
    ]
    if not lost_classes and not lost_concepts:
        return left, []
    classes = [name for name in data.class_names if name not in lost_classes]
    numbers = torch.tensor([classes.index(name) if name in classes else 0 for name in data.class_names])
    stay = [column for column, name in enumerate(data.concept_names) if name not in lost_concepts]
    # Labels of a concept are missing together: it goes with all of its columns, or stays.
    left_over = {concept.name for concept in data.layout.concepts if set(concept.columns) & set(stay)}
    reduced = left.replace(
        labels=left.labels if data.predicts_number else numbers[left.labels],
        class_names=classes,
        concepts=left.concepts[:, stay],
        concept_names=[data.concept_names[column] for column in stay],
        concept_types={name: kind for name, kind in data.layout.declared.items() if name in left_over},
        units={name: unit for name, unit in data.layout.units.items() if name in left_over},
    )
    return reduced, lost_classes + lost_concepts


def _not_reached(workspace: Workspace, model: ConceptBottleneck | None, report: dict[str, Any]) -> list[str]:
    with database.reading(workspace.folder) as connection:
        sources = connection.execute("SELECT content FROM details WHERE part = 'source'").fetchall()
        exports = connection.execute("SELECT DISTINCT path FROM exports").fetchall()
    inside = workspace.folder.resolve()
    words = [f"the files the data was read from: {json.loads(text)}" for (text,) in sources]
    words += [f"a copy exported to {path}" for (path,) in exports if not Path(path).is_relative_to(inside)]
    words += [f"{name}: {why}" for name, why in (report.get("not_covered") or {}).items()]
    if model is not None and not model.recipe.is_linear and report["method"] != "retrain":
        traces = report.get("traces")
        words.append(traces["words"] if traces is not None else "what the backbone learnt from the samples")
        words[-1] += " (--tail trains its last layers on without them, --method retrain all of it)"
    words += [
        "reports that 'ecbm report' wrote elsewhere than into the workspace's exports: they show samples",
        "backups, snapshots and other copies of this folder",
        "what the disk itself keeps of overwritten blocks, and the history of your shell",
    ]
    return words


def _commit(opened: Transaction, new: NewVersion, details: list[Detail], words: Sequence[str], count: int) -> int:
    connection = opened.connection
    with database.atomically(connection):
        opened.record_objects()
        destroyed = _destroy_details(connection, words)
        durable.step("sqlite update", "versions")
        connection.execute("UPDATE versions SET model = NULL, data = NULL")
        used = [(digest,) for digest in digests_in({"model": new.model, "data": new.data})]
        connection.execute("CREATE TEMP TABLE used (digest TEXT PRIMARY KEY)")
        connection.executemany("INSERT OR IGNORE INTO used VALUES (?)", used)
        connection.execute("DELETE FROM objects WHERE digest NOT IN (SELECT digest FROM used)")
        connection.execute("DROP TABLE used")
        inside = opened.folder.resolve()
        for (path,) in connection.execute("SELECT DISTINCT path FROM exports").fetchall():
            if Path(path).is_relative_to(inside) or any(names(path, word) for word in words):
                connection.execute("DELETE FROM exports WHERE path = ?", (path,))
        public = {"samples": count, "erasure": secrets.token_hex(16), "details_destroyed": destroyed}
        number = opened.insert_version(new, details, public)
        _forget_in_recipe(opened, words)
        opened.set_meta("erasing", now())
    return number


def _forget_in_recipe(opened: Transaction, words: Sequence[str]) -> None:
    """Positive weights are given by concept name; those of a concept that is gone go too."""
    recipe = json.loads(opened.connection.execute("SELECT value FROM meta WHERE name = 'recipe'").fetchone()[0])
    if isinstance(recipe.get("pos_weight"), dict):
        recipe["pos_weight"] = {name: value for name, value in recipe["pos_weight"].items() if name not in words}
        opened.set_meta("recipe", canonical(recipe))


def _destroy_details(connection: sqlite3.Connection, words: Sequence[str]) -> int:
    """Destroy details about the samples, and those whose figures or digests were made with them."""
    durable.step("sqlite delete", "details")
    before = connection.total_changes
    # The seed of a certified release would let anybody who reads it subtract the noise.
    connection.execute(
        f"DELETE FROM details WHERE part IN ('report', 'facts', {', '.join(repr(part) for part in PARTS)})"
    )
    connection.executemany("DELETE FROM details WHERE subject = ?", [(word,) for word in words])
    rows = connection.execute("SELECT sequence, position, content FROM details").fetchall()
    escaped = [json.dumps(word, ensure_ascii=False)[1:-1].casefold() for word in words]
    for sequence, position, content in rows:
        folded = content.casefold()
        if any(word in folded for word in escaped):
            texts = list(texts_in(json.loads(content)))
            if any(names(text, word) for text in texts for word in words):
                connection.execute("DELETE FROM details WHERE sequence = ? AND position = ?", (sequence, position))
    return connection.total_changes - before
