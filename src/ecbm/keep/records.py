"""The records of a workspace, read: its versions, what was said about them, and the ledger.

Nothing here imports torch, so that looking at history is quick.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

from ecbm.errors import InputError, unknown_name
from ecbm.keep import database, ledger
from ecbm.keep.edit_record import before_from_details, edit_from_details

__all__ = ["Records", "Version", "erased", "untrained"]


@dataclasses.dataclass(frozen=True)
class Version:
    """One version, as it is recorded. ``model`` and ``data`` say which files hold it; ``None`` once erased."""

    version: int
    parent: int | None
    kind: str
    time: str
    sequence: int
    summary: dict[str, Any]
    model: dict[str, Any] | None
    data: dict[str, Any] | None

    @property
    def kept(self) -> bool:
        """Whether its arrays still exist."""
        return self.data is not None


class Records:
    """What a workspace says about itself.

    Parameters
    ----------
    folder
        A folder made by ``ecbm init`` or :meth:`ecbm.Workspace.create`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder; make a workspace with 'ecbm init'")
        found = self.meta().get("format")
        if found != database.FORMAT:
            raise InputError(
                f"{self.folder}: workspace format {found!r}, this ecbm reads {database.FORMAT}; upgrade"
            )

    def meta(self) -> dict[str, str]:
        """Named values: format, head, recipe."""
        with database.reading(self.folder) as connection:
            return dict(connection.execute("SELECT name, value FROM meta").fetchall())

    @property
    def head(self) -> int:
        """The current version."""
        return int(self.meta()["head"])

    def version(self, number: int | str | None = None) -> Version:
        """One version by number (``3``, ``"v3"``, ``"head"``); the current one by default."""
        with database.reading(self.folder) as connection:
            head = int(connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()[0])
            wanted = head if number is None else _number(number, head)
            row = connection.execute("SELECT * FROM versions WHERE version = ?", (wanted,)).fetchone()
            if row is None:
                last = connection.execute("SELECT max(version) FROM versions").fetchone()[0]
                raise unknown_name("version", number, [str(n) for n in range(max(0, last - 7), last + 1)])
            return _version(row)

    def versions(self, limit: int | None = None, before: int | None = None) -> list[Version]:
        """Versions, newest first."""
        with database.reading(self.folder) as connection:
            rows = connection.execute(
                "SELECT * FROM versions WHERE version < ? ORDER BY version DESC LIMIT ?",
                (2**62 if before is None else before, -1 if limit is None else limit),
            ).fetchall()
        return [_version(row) for row in rows]

    def entries(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Ledger entries, newest first: everything done, undo and redo too."""
        with database.reading(self.folder) as connection:
            rows = connection.execute(
                "SELECT sequence, public FROM ledger ORDER BY sequence DESC LIMIT ?",
                (-1 if limit is None else limit,),
            ).fetchall()
            details = ledger.details_of(connection, [row[0] for row in rows], ("author", "reason"))
        return [
            {"entry": sequence, **json.loads(public), **{d.part: d.content for d in details[sequence]}}
            for sequence, public in rows
        ]

    def described(self, versions: list[Version], most_items: int = 1000) -> list[dict[str, Any]]:
        """Versions as ``log --json`` prints them; ``most_items`` bounds what is read of one edit."""
        with database.reading(self.folder) as connection:
            found = ledger.details_of(connection, [v.sequence for v in versions], most=most_items)
            counts = {v.version: _commitment_count(connection, v.sequence) for v in versions}
        return [_described(v, found[v.sequence], counts[v.version], most_items) for v in versions]

    def source(self) -> str:
        """Where the data was read from, as it was given; empty where it is not known (built in, erased)."""
        with database.reading(self.folder) as connection:
            first = connection.execute("SELECT min(sequence) FROM versions").fetchone()[0]
            found = [] if first is None else ledger.details_of(connection, [first], ("source",))[first]
        return str(found[0].content) if found else ""

    def counts(self) -> dict[str, int]:
        """How many versions, ledger entries and files there are, and their size."""
        with database.reading(self.folder) as connection:
            one = connection.execute(
                "SELECT (SELECT count(*) FROM versions), (SELECT max(sequence) FROM ledger), "
                "(SELECT count(*) FROM objects), (SELECT coalesce(sum(size), 0) FROM objects), "
                "(SELECT count(*) FROM redo)"
            ).fetchone()
        return dict(zip(("versions", "ledger_entries", "files", "bytes", "redo"), one, strict=True))

    def entry_hashes(self) -> dict[int, str]:
        """The hash of every ledger entry, by its number; each has those before it in it."""
        with database.reading(self.folder) as connection:
            rows = connection.execute("SELECT sequence, hash FROM ledger ORDER BY sequence").fetchall()
        return {sequence: bytes(found).hex() for sequence, found in rows}

    def chain_problems(self) -> list[str]:
        """What is wrong with the ledger's chain or with the details that are left; nothing if it is sound."""
        with database.reading(self.folder) as connection:
            return ledger.verify(connection)

    def ledger_hash(self) -> str:
        """The hash of the last ledger entry, which all earlier ones go into. Kept elsewhere, it proves them."""
        with database.reading(self.folder) as connection:
            row = connection.execute("SELECT hash FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
        return bytes(row[0]).hex()


def erased(version: Version) -> InputError:
    return InputError(f"version {version.version} was destroyed by an erasure; only its line in the log is left")


def untrained(folder: Path, version: Version) -> InputError:
    return InputError(f"version {version.version} has no model yet; run 'ecbm train {folder}' first")


def _number(given: int | str, head: int) -> int:
    if isinstance(given, int):
        return given
    text = given.strip().lower()
    if text in ("head", "current"):
        return head
    try:
        return int(text.removeprefix("v"))
    except ValueError:
        raise InputError(f"{given!r} is not a version; give its number as 'ecbm log' shows it, or 'head'") from None


def _version(row: tuple[Any, ...]) -> Version:
    version, parent, kind, time, sequence, summary, model, data = row
    return Version(
        version,
        parent,
        kind,
        time,
        sequence,
        json.loads(summary),
        json.loads(model) if model else None,
        json.loads(data) if data else None,
    )


def _commitment_count(connection: sqlite3.Connection, sequence: int) -> int:
    row = connection.execute("SELECT length(commitments) FROM ledger WHERE sequence = ?", (sequence,)).fetchone()
    return int(row[0]) // 32


def _described(version: Version, details: list[ledger.Detail], committed: int, most_items: int) -> dict[str, Any]:
    single = {detail.part: detail.content for detail in details if detail.subject is None}
    # What an erasure destroyed is missing here; the counts in the summary stay.
    report = single.get("report")
    if report is None and version.kind not in ("init", "train"):
        report = {"method": version.summary.get("method"), "summary": version.summary, "destroyed_by_erasure": True}
    edit = edit_from_details(details) if version.kind in ("edit", "erase") else None
    if edit is not None and len(details) >= most_items:
        edit["truncated"] = True
    return {
        "version": version.version,
        "parent": version.parent,
        "kind": version.kind,
        "time": version.time,
        "author": single.get("author"),
        "reason": single.get("reason"),
        "summary": version.summary,
        "edit": edit,
        "before": before_from_details(details) if edit is not None else None,
        "report": report,
        "environment": single.get("environment"),
        "options": single.get("options"),
        "fingerprints": {k: v for k, v in single.get("facts", {}).items() if k != "manifest"},
        "kept": version.kept,
        "details_destroyed": committed - len(details) if len(details) < most_items else 0,
        **({"certified": single["certified"]} if "certified" in single else {}),
    }
