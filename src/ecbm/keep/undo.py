"""Undo and redo: which version is the current one. Nothing is computed, so both are exact to the bit."""

from __future__ import annotations

from ecbm.errors import InputError
from ecbm.keep import database, durable, ledger, transaction
from ecbm.keep.signature import Signature, start_from
from ecbm.keep.workspace import Workspace

__all__ = ["redo", "undo"]


def undo(workspace: Workspace, *, signature: Signature, expected: int | None) -> int:
    """:meth:`ecbm.Workspace.undo`."""
    version = workspace.version()
    start_from(version.version, expected)
    if version.kind == "erase":
        raise InputError(f"version {version.version} is an erasure: what came before it was destroyed for good")
    if version.parent is None:
        raise InputError(f"version {version.version} is the first; there is nothing to undo")
    target = workspace.version(version.parent)
    if target.model is None:
        raise InputError(f"version {version.version} is the first model; there is nothing to undo")
    return _move(workspace, "undo", version.version, target.version, signature)


def redo(workspace: Workspace, *, signature: Signature, expected: int | None) -> int:
    """:meth:`ecbm.Workspace.redo`."""
    head = workspace.head
    start_from(head, expected)
    with database.reading(workspace.folder) as connection:
        row = connection.execute("SELECT version FROM redo ORDER BY position DESC LIMIT 1").fetchone()
    if row is None:
        raise InputError("there is nothing to redo: nothing was undone since the last change")
    return _move(workspace, "redo", head, int(row[0]), signature)


def _move(workspace: Workspace, kind: str, head: int, target: int, signature: Signature) -> int:
    signed = signature.details()
    with transaction.begin(workspace.folder, head) as opened, database.atomically(opened.connection):
        public = {"kind": kind, "version": target, "from": head, "head": target, "time": ledger.now()}
        ledger.append(opened.connection, public, signed)
        durable.step("sqlite update", "head")
        opened.set_meta("head", str(target))
        if kind == "undo":
            opened.connection.execute("INSERT INTO redo (version) VALUES (?)", (head,))
        else:
            opened.connection.execute("DELETE FROM redo WHERE position = (SELECT max(position) FROM redo)")
    return target
