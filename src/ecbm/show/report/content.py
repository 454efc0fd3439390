"""The report as plain values: everything that the page shows, and the lists that it only shows the beginning of."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ecbm._version import __version__
from ecbm.errors import InputError
from ecbm.keep.plain import plain
from ecbm.keep.workspace import Version, Workspace
from ecbm.read.dataset import Dataset
from ecbm.show.report.changes import changes_of
from ecbm.show.report.figures import SplitFigures, figures_of
from ecbm.show.report.flips import flips_of, mistakes_of
from ecbm.show.report.history import erasures_of, history_of, integrity_of
from ecbm.show.report.intervals import DRAWS
from ecbm.show.report.limits import limits_of
from ecbm.show.report.sentences import certificate_of, described_model, summary_of_version, what_was_done
from ecbm.train.model import ConceptBottleneck

__all__ = ["Material", "gather"]

_ALL = 10_000_000


@dataclasses.dataclass(frozen=True)
class Material:
    """A report's values, and the data that its pictures are taken from: this version's and that of its parent."""

    content: dict[str, Any]
    sources: tuple[Dataset, ...]

    def picture(self, sample: str) -> Tensor | None:
        """The picture of a sample as it is kept; ``None`` where there is none, or no sample any more."""
        for data in self.sources:
            if sample in data.rows_by_id and is_picture(data.inputs.shape):
                return data.inputs.raw([data.rows_by_id[sample]])[0]
        return None


def is_picture(shape: Sequence[int]) -> bool:
    """Whether inputs of a shape are pictures and not rows of figures."""
    return len(shape) == 3 and shape[0] in (1, 3)


def gather(workspace: Workspace, number: int | str | None, audit: dict[str, Any] | None = None) -> Material:
    """Everything about a version.

    Should an erasure run meanwhile, what was read is dropped and read again: a report never shows what was
    destroyed before it was finished.
    """
    chosen = workspace.version(number).version
    if audit is not None and audit["version"] not in (None, chosen):
        raise InputError(
            f"the audit is of version {audit['version']}, the report of version {chosen}; audit that one"
        )
    for _ in range(3):
        before = _state(workspace, chosen)
        material = _gather(workspace, chosen, audit)
        if _state(workspace, chosen) == before:
            return material
        workspace = Workspace(workspace.folder, trust=workspace.trust, device=workspace.device)
    raise InputError(f"{workspace.folder}: it keeps changing while it is read; try again")


def _state(workspace: Workspace, number: int) -> tuple[Version, str]:
    return workspace.version(number), workspace.ledger_hash()


def _gather(workspace: Workspace, number: int, audit: dict[str, Any] | None) -> Material:
    version = workspace.version(number)
    item = workspace.described([version], most_items=_ALL)[0]
    data = workspace.data(number) if version.kept else None
    model = workspace.model(number) if version.model is not None else None
    base = _base(workspace, version)
    parent_data = workspace.data(base.version) if base is not None else None
    parent = workspace.model(base.version) if base is not None and base.model is not None else None
    shape = version.summary.get("shape", {})
    noun = "picture" if is_picture(shape.get("input_shape", ())) else "record"
    found = _figures(model, parent, data)
    content: dict[str, Any] = {
        "format": 1,
        "workspace": workspace.folder.resolve().name,
        "noun": noun,
        "version": {
            "number": number,
            "parent": version.parent,
            "kind": version.kind,
            "time": version.time,
            "author": item["author"],
            "reason": item["reason"],
            "what": what_was_done(version.summary, noun),
            "kept": version.kept,
            "current": workspace.head == number,
        },
        "about": None if data is None else _about(data, model, shape),
        "compared_with": base.version if base is not None and parent is not None else None,
        "changes": changes_of(item, _types(data, parent_data)),
        "figures": {split: one.figures for split, one in found.items()},
        "no_figures": _why_no_figures(version),
        "predictions": {split: flips_of(one) for split, one in found.items()},
        "mistakes": {split: mistakes_of(one) for split, one in found.items()},
        "certificate": certificate_of(item["report"], version.kind, noun),
        "checks": {"quick": _quick(item["report"]), "removal": _removal(item), "audit": audit},
        "history": history_of(workspace, number, noun),
        "erasures": erasures_of(workspace),
        "integrity": integrity_of(workspace, item["fingerprints"], data, model),
        "reproduce": _reproduce(workspace, version, base, item, model),
    }
    content["about_words"] = described_model(content["about"], noun) if content["about"] else ""
    content["summary"] = summary_of_version(content)
    content["limits"] = limits_of(content)
    sources = tuple(one for one in (data, parent_data) if one is not None)
    return Material(plain(content), sources)


def _base(workspace: Workspace, version: Version) -> Version | None:
    """The version to compare with: the parent, if an erasure has left it and this one."""
    if version.parent is None or not version.kept:
        return None
    parent = workspace.version(version.parent)
    return parent if parent.kept else None


def _figures(
    model: ConceptBottleneck | None, parent: ConceptBottleneck | None, data: Dataset | None
) -> dict[str, SplitFigures]:
    if model is None or data is None:
        return {}
    found = {split: figures_of(model, parent, data, split) for split in ("val", "test")}
    if not any(found.values()):
        found = {"train": figures_of(model, parent, data, "train")}
    return {split: one for split, one in found.items() if one is not None}


def _why_no_figures(version: Version) -> str:
    if not version.kept:
        return "This version's weights and data were destroyed by an erasure, so nothing can be measured any more."
    return "This version is data alone; no model has been trained on it yet." if version.model is None else ""


def _types(*datasets: Dataset | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for data in datasets:
        found |= data.layout.types if data is not None else {}
    return found


def _about(data: Dataset, model: ConceptBottleneck | None, shape: dict[str, Any]) -> dict[str, Any]:
    number = data.predicts_number
    return {
        "concepts": len(data.layout.concepts),
        "concept_names": list(data.layout.by_name),
        "number": number,
        "target": data.class_names[0] if number else shape.get("target", "class"),
        "unit": data.target_unit if number else "",
        "classes": [] if number else list(data.class_names),
        "splits": dict(data.split_sizes),
        "recipe": None if model is None else model.recipe.to_dict(),
        "parameters": None if model is None else sum(p.numel() for p in model.parameters()),
    }


def _quick(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """What was checked when the edit was made."""
    if not report or report.get("destroyed_by_erasure"):
        return None
    kept = ("method", "residual", "objective", "drift", "warning", "notes", "traces")
    found = {name: report[name] for name in kept if report.get(name) is not None}
    why = (report.get("settings") or {}).get("why") or report.get("why")
    return found | ({"why": why} if why else {}) or None


def _removal(item: dict[str, Any]) -> dict[str, float] | None:
    """The promise of certified removal that a version was released under, if any."""
    promise = item.get("certified") or (item["report"] or {}).get("certified")
    return None if not promise else {name: promise[name] for name in ("epsilon", "delta")}


def _reproduce(
    workspace: Workspace,
    version: Version,
    base: Version | None,
    item: dict[str, Any],
    model: ConceptBottleneck | None,
) -> dict[str, Any]:
    name = shlex.quote(workspace.folder.resolve().name)
    commands = [("is everything what it was?", f"ecbm check {name}")]
    if base is not None:
        again = "does this version come out again, to the bit?"
        commands.append((again, f"ecbm check {name} {version.version} --replay"))
    commands.append(("everything about it, as data", f"ecbm show {name} {version.version} --json"))
    if base is not None and base.model is not None and model is not None:
        commands.append(("both versions side by side", f"ecbm diff {name} {base.version} {version.version}"))
    commands.append(("this report again", f"ecbm report {name} {version.version} --out report.html"))
    return {
        "commands": [{"what": what, "command": command} for what, command in commands],
        "written_by": __version__,
        "bootstrap_draws": DRAWS,
        "environment": item["environment"],
        "options": item["options"],
    }
