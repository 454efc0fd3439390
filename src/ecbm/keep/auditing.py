"""``ecbm verify``: a version of a workspace against its record, and what its removals and erasures leave behind."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.edit.joining import append_samples
from ecbm.edit.state import EditorState
from ecbm.errors import EcbmError, InputError
from ecbm.keep import database, ledger
from ecbm.keep.audit_crew import AuditCrew, one_thread
from ecbm.keep.edit_record import recorded_edit
from ecbm.keep.facts import recall_facts
from ecbm.keep.records import Version, erased, untrained
from ecbm.keep.removed import removed_in
from ecbm.keep.stored_datasets import fingerprint_of_bytes
from ecbm.keep.stored_references import StoredParts, keep_verdict, kept_verdict
from ecbm.keep.workspace import Workspace
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.audit.asked import Asked
from ecbm.verify.audit.collecting import Crew, Store
from ecbm.verify.audit.erasure import Targets, audit_erasure
from ecbm.verify.audit.forget_sets import Pool, room_in
from ecbm.verify.audit.quick import Check, Parent, Recorded, check_quickly, known_seed_noise, released_with_noise
from ecbm.verify.audit.references import is_frozen, trainer_of
from ecbm.verify.audit.rehearsal import finished, rehearse

__all__ = ["audit_version", "last_verdicts", "verify_workspace"]

_SOLVING = ("exact", "retrain", "train")
# Removed samples that are audited at most, and samples they are compared with at least and at most.
_MOST, _FEWEST_OTHERS = 500, 100


def verify_workspace(workspace: Workspace, number: int | str | None, asked: Asked) -> dict[str, Any]:
    """:meth:`ecbm.Workspace.verify`."""
    version, named = workspace.version(number).version, number is not None
    if asked.depth == "quick":
        return audit_version(workspace, version, asked, named=named)
    with one_thread(), AuditCrew(workspace, version, asked, named=named) as crew:
        return audit_version(workspace, version, asked, crew if asked.shard is None else None, named=named)


def audit_version(
    workspace: Workspace, number: int, asked: Asked, crew: Crew | None = None, *, named: bool
) -> dict[str, Any]:
    """Verify a version, alone or as one of several processes; ``named`` if it was asked for by its number."""
    version = workspace.version(number)
    if version.data is None:
        raise erased(version)
    if version.model is None:
        raise untrained(workspace.folder, version)
    model, data = workspace.model(version.version), workspace.data(version.version)
    prints = {"model": model.fingerprint, "data": data.fingerprint}
    audited = _audited(workspace, version, named, asked, model, data, crew)
    audited = {"version": version.version, **audited}
    if asked.shard is None:
        keep_verdict(workspace.folder, version.version, prints, audited, _watch(workspace, version))
    return audited


def last_verdicts(workspace: Workspace, number: int | str | None = None) -> dict[str, dict[str, Any]]:
    """The last result of each depth that was kept for a version, by depth; those of other weights or data are
    not.
    """
    version = workspace.version(number)
    if version.model is None:
        return {}
    model, data = workspace.model(version.version), workspace.data(version.version)
    prints = {"model": model.fingerprint, "data": data.fingerprint}
    found = {
        depth: kept_verdict(workspace.folder, version.version, depth, prints)
        for depth in ("quick", "erasure", "release")
    }
    return {depth: result for depth, result in found.items() if result is not None}


def _audited(
    workspace: Workspace,
    version: Version,
    named: bool,
    asked: Asked,
    model: ConceptBottleneck,
    data: Dataset,
    crew: Crew | None,
) -> dict[str, Any]:
    frozen = is_frozen(model.recipe)
    if asked.depth == "quick":
        found = _quick(workspace, version, model, data)
        return finished(found, {"what": version.kind}, asked, frozen=frozen)
    if asked.depth == "erasure" and asked.forget is None and asked.ids is None:
        gone = _removed(workspace, version)
        if gone:
            return _direct(workspace, version, asked, model, data, gone, crew)
        if named and version.kind != "erase":
            raise InputError(
                f"version {version.version} removed no training samples whose rows are still kept; rehearse "
                "instead: --forget random (or influential, canaries, subgroup)"
            )
    asked = _with_method(version, asked)
    state = _state(workspace, version, model, data)

    def store_for(plan: dict[str, Any]) -> Store:
        return StoredParts(workspace.folder, plan, _watch(workspace, version))

    return rehearse(model, data, state, asked, store_for, crew)


def _watch(workspace: Workspace, *versions: Version) -> Any:
    """What refuses to write once an erasure has destroyed what is audited."""

    def still_there() -> None:
        for version in versions:
            if not workspace.version(version.version).kept:
                raise EcbmError(
                    f"version {version.version} was erased while it was audited; what it had found is destroyed"
                )

    return still_there


def _with_method(version: Version, asked: Asked) -> Asked:
    """The method that made the version, where it is one that removes samples; ``auto`` otherwise."""
    if asked.method is not None:
        return asked
    made_by = version.summary.get("method")
    removing = version.kind in ("edit", "erase") and made_by in ("auto", "exact", "ekfac", "hessian", "retrain")
    return dataclasses.replace(asked, method=made_by if removing else "auto")


def _state(workspace: Workspace, version: Version, model: ConceptBottleneck, data: Dataset) -> EditorState:
    editor = Editor(model, data)
    recall_facts(workspace.folder, editor, version.version)
    return editor.state


# -- a version that removed samples --------------------------------------------------------------------------


def _removed(workspace: Workspace, version: Version) -> list[str]:
    """Training samples that an edit removed and whose rows its parent still has."""
    if version.kind != "edit" or version.parent is None or not workspace.version(version.parent).kept:
        return []
    samples, _ = removed_in(workspace, [version]).get(version.version, ([], []))
    before = workspace.data(version.parent)
    return [name for name in samples if name in before and before.splits[before.row(name)] == "train"]


def _direct(
    workspace: Workspace,
    version: Version,
    asked: Asked,
    model: ConceptBottleneck,
    data: Dataset,
    gone: list[str],
    crew: Crew | None,
) -> dict[str, Any]:
    """Audit the removal that made a version: its samples against held-out ones that no model was trained with."""
    assert version.parent is not None
    parent = workspace.version(version.parent)
    before = workspace.data(parent.version)
    frozen = is_frozen(model.recipe)
    pure = not _others_changed(workspace, version, data)
    if not pure and not frozen:
        raise InputError(
            f"version {version.version} also changed labels or concepts, which this backbone learnt from; rehearse "
            "instead: --forget random"
        )
    pool = _pool(data, before, gone, asked, deep=not frozen)
    about: dict[str, Any] = {
        "what": "edit",
        "method": version.summary.get("method"),
        "forget": "removed",
        "samples_are": "the training samples that this version removed",
        "forgotten": len(pool.forget),
        "left_out": len(pool.held_out),
        "retained": len(pool.retained),
        "seed": asked.seed,
        "exact_references": frozen,
        "references": asked.references_for(frozen=frozen),
    }
    plan = {
        "depth": "removed",
        "data": pool.data.fingerprint,
        "model": model.fingerprint,
        "recipe": model.recipe.to_dict(),
        "pool": list(pool.ids),
        "forget": len(pool.forget),
        "seed": asked.seed,
    }
    store: Store = StoredParts(workspace.folder, plan, _watch(workspace, version, parent))
    trainer = trainer_of(model, pool.data)
    left_out = pool.named(pool.held_out)
    targets = Targets(
        lambda: workspace.model(parent.version) if pure else trainer.retrained(left_out),
        lambda: model,
        lambda: trainer.retrained([*left_out, *pool.named(pool.forget)]),
    )
    found = audit_erasure(
        trainer,
        pool,
        targets,
        references=about["references"],
        seed=asked.seed,
        store=store,
        shard=asked.shard,
        crew=crew,
    )
    return finished(found, about, asked, frozen=frozen)


def _others_changed(workspace: Workspace, version: Version, data: Dataset) -> bool:
    """Whether an edit did more than remove samples."""
    edit = _edit_of(workspace, version, data)
    return edit != Edit(remove_samples=edit.remove_samples)


def _edit_of(workspace: Workspace, version: Version, data: Dataset) -> Edit:
    with database.reading(workspace.folder) as connection:
        details = ledger.details_of(connection, [version.sequence])[version.sequence]
    return recorded_edit(details, data)


def _pool(data: Dataset, before: Dataset, gone: list[str], asked: Asked, *, deep: bool) -> Pool:
    """The removed samples, held-out ones of the same number or more, and training samples that stayed."""
    draw = np.random.default_rng([asked.seed, 0])
    most = min(_MOST, asked.samples or _MOST)
    chosen = [gone[place] for place in np.sort(draw.permutation(len(gone))[:most])]
    # Validation samples decide when a deep training stops, so only test samples are free there.
    free = [row for row, split in enumerate(data.splits) if split == "test" or (split == "val" and not deep)]
    wanted = max(len(chosen), _FEWEST_OTHERS)
    held_out = [free[place] for place in draw.permutation(len(free))[:wanted]]
    if len(held_out) < 4:
        raise InputError(
            "there are no held-out samples to compare the removed ones with (test, or val on frozen features); "
            "rehearse instead: --forget random"
        )
    train = data.split("train")
    stayed = room_in(train, draw.permutation(len(train)), len(chosen))
    moved = set(held_out)
    splits = ["train" if row in moved else split for row, split in enumerate(data.splits)]
    full = append_samples(data.replace(splits=splits), before.select([before.row(name) for name in chosen]), {})
    ids = (*chosen, *(data.ids[row] for row in held_out), *(train.ids[row] for row in stayed))
    places, first, second = np.arange(len(ids)), len(chosen), len(chosen) + len(held_out)
    return Pool(full, ids, places[:first], places[first:second], places[second:], "removed samples")


# -- quick ---------------------------------------------------------------------------------------------------


def _quick(workspace: Workspace, version: Version, model: ConceptBottleneck, data: Dataset) -> dict[str, Any]:
    said = workspace.described([version], 50)[0]
    known = said["fingerprints"]
    further = [
        _same(name, known.get(name), now)
        for name, now in (("model", model.fingerprint), ("data", fingerprint_of_bytes(data)))
        if known.get(name) is not None
    ]
    parent = None
    if version.kind == "edit" and version.parent is not None and workspace.version(version.parent).kept:
        before = workspace.version(version.parent)
        edit = _edit_of(workspace, version, data)
        parent = Parent(workspace.model(before.version), workspace.data(before.version), edit)
    noise = None
    if not model.recipe.is_linear:
        start = version if parent is None or version.parent is None else workspace.version(version.parent)
        at = (model, data) if parent is None else (parent.model, parent.data)
        noise = known_seed_noise(_state(workspace, start, *at))
    return check_quickly(
        model, data, _recorded(version, said["report"], model), parent, seed_noise=noise, further=further
    )


def _same(name: str, recorded: str | None, now: str) -> Check:
    same = recorded == now
    words = f"the kept {name} is the one in the ledger" if same else f"the kept {name} is not the one in the ledger"
    return Check(f"{name} is the one in the ledger", 0.0 if same else 1.0, 0.0, same, words)


def _recorded(version: Version, report: dict[str, Any] | None, model: ConceptBottleneck) -> Recorded:
    """What is on record about a version."""
    method = str(version.summary.get("method") or version.kind)
    if report is None or report.get("destroyed_by_erasure"):
        training = model.provenance.training
        names = {"concept_head": "concept_gradient_norm", "label_head": "label_gradient_norm"}
        residual = {head: float(training[name]) for head, name in names.items() if name in training}
        names = {"labels": "label_objective"} | (
            {"concepts": "concept_objective"} if model.recipe.is_linear else {}
        )
        objective = {part: float(training[name]) for part, name in names.items() if name in training}
        if released_with_noise(model):
            residual = {}  # that of the heads before the noise
        # A model that was made elsewhere may have been trained by other rules.
        return Recorded(method, method in _SOLVING, residual, objective)
    solved = method in _SOLVING or (method == "auto" and model.recipe.is_linear)
    return Recorded(
        method,
        solved,
        report.get("residual"),
        (report.get("objective") or {}).get("after"),
        report.get("drift"),
        report.get("changed"),
        report.get("traces"),
    )
