"""The line of versions that a report stands on, the erasures, and whether all of it is what it was."""

from __future__ import annotations

from typing import Any

from ecbm.keep.workspace import Workspace
from ecbm.read.dataset import Dataset
from ecbm.show.report.sentences import what_was_done
from ecbm.train.model import ConceptBottleneck

__all__ = ["erasures_of", "history_of", "integrity_of"]


def history_of(workspace: Workspace, number: int, noun: str) -> list[dict[str, Any]]:
    """All versions, newest first, with the hash of each one's ledger entry."""
    versions, hashes, head = workspace.versions(), workspace.entry_hashes(), workspace.head
    parents = {version.version: version.parent for version in versions}
    line, at = set(), head
    while at is not None and at not in line:
        line.add(at)
        at = parents.get(at)  # type: ignore[assignment]
    found = []
    for version, item in zip(versions, workspace.described(versions, most_items=4), strict=True):
        found.append(
            {
                "version": version.version,
                "parent": version.parent,
                "kind": version.kind,
                "what": what_was_done(version.summary, noun),
                "author": item["author"],
                "reason": item["reason"],
                "time": version.time,
                "entry": version.sequence,
                "hash": hashes.get(version.sequence),
                "kept": version.kept,
                "shown": version.version == number,
                "current": version.version == head,
                "undone": version.version not in line,
            }
        )
    return found


def erasures_of(workspace: Workspace) -> list[dict[str, Any]]:
    """Every erasure: when, by whom, why, and of how many samples; never of whom."""
    return [
        {
            "version": entry["version"],
            "time": entry["time"],
            "author": entry.get("author"),
            "reason": entry.get("reason"),
            "samples": entry.get("samples"),
            "details_destroyed": entry.get("details_destroyed"),
        }
        for entry in workspace.entries()
        if entry["kind"] == "erase"
    ]


def integrity_of(
    workspace: Workspace, recorded: dict[str, Any], data: Dataset | None, model: ConceptBottleneck | None
) -> dict[str, Any]:
    """The ledger's chain walked again, and the fingerprints of data and model computed again."""
    problems = workspace.chain_problems()
    prints = {}
    for name, value in (("data", data), ("model", model)):
        if value is None or name not in recorded:
            continue
        computed = value.fingerprint
        prints[name] = {"recorded": recorded[name], "computed": computed, "same": recorded[name] == computed}
        if not prints[name]["same"]:
            problems.append(f"the {name} of this version is not the one that the ledger speaks of")
    return {
        "ok": not problems,
        "problems": problems,
        "ledger_hash": workspace.ledger_hash(),
        "ledger_entries": workspace.counts()["ledger_entries"],
        "fingerprints": prints,
    }
