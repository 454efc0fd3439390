"""Which samples and concepts versions removed, by name, as long as the ledger still has their names."""

from __future__ import annotations

from collections.abc import Sequence

from ecbm.keep import database, ledger
from ecbm.keep.workspace import Version, Workspace

__all__ = ["removed_concepts", "removed_in"]


def removed_in(workspace: Workspace, versions: Sequence[Version]) -> dict[int, tuple[list[str], list[str]]]:
    """Names of the samples and of the concepts that each version removed."""
    found: dict[int, tuple[list[str], list[str]]] = {}
    with database.reading(workspace.folder) as connection:
        for version in versions:
            if version.kind != "edit":
                continue
            # Quotation marks inside names are escaped in the stored JSON, so only the field itself can match.
            rows = connection.execute(
                "SELECT subject FROM details WHERE sequence = ? AND part = 'item' AND content LIKE ? "
                "ORDER BY position",
                (version.sequence, '%"remove":true%'),
            ).fetchall()
            whole = ledger.details_of(connection, [version.sequence], ("edit",))[version.sequence]
            concepts = [name for detail in whole for name in detail.content.get("remove_concepts", [])]
            found[version.version] = [sample for (sample,) in rows], concepts
    return found


def removed_concepts(workspace: Workspace) -> dict[str, int]:
    """Every concept that was removed, and the last version that did it."""
    gone: dict[str, int] = {}
    versions = workspace.versions()
    for number, (_, concepts) in sorted(removed_in(workspace, versions).items()):
        gone |= dict.fromkeys(concepts, number)
    return gone
