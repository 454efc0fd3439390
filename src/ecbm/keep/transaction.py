"""An open transaction on a workspace: it makes files visible, all at once, which are already safe on disk."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ecbm.errors import EcbmError, InputError
from ecbm.keep import database, durable, ledger
from ecbm.keep.ledger import Detail, canonical
from ecbm.keep.lock import exclusive
from ecbm.keep.objects import ObjectStore, digest_of

__all__ = ["MovedOnError", "NewVersion", "Transaction", "begin", "recover"]

LOCK = "lock"


class MovedOnError(InputError):
    """Somebody else changed the model after the caller looked at it."""


@dataclasses.dataclass(frozen=True)
class NewVersion:
    """What a change adds: a version, its arrays (as manifests), and how it is described."""

    kind: str
    parent: int | None
    model: dict[str, Any] | None
    data: dict[str, Any]
    summary: dict[str, Any]
    facts: dict[str, str]


class Transaction:
    """An open change. Arrays are put first; then exactly one of the committing methods is called."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder, self.connection = folder, connection
        self.objects = ObjectStore(folder)
        self._sizes: dict[str, int] = {}

    def put(self, content: bytes) -> str:
        """Keep an array file; it becomes visible with the commit."""
        digest = self.objects.put(content)
        self._sizes[digest] = len(content)
        return digest

    @property
    def head(self) -> int | None:
        row = self.connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
        return int(row[0]) if row else None

    def set_meta(self, name: str, value: str | None) -> None:
        """Set a named value, inside a transaction; ``None`` removes it."""
        if value is None:
            self.connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def record_objects(self) -> None:
        """Make the put files visible, inside a transaction."""
        durable.step("sqlite insert", "objects")
        self.connection.executemany("INSERT OR IGNORE INTO objects VALUES (?, ?)", self._sizes.items())

    def insert_version(
        self, new: NewVersion, details: Sequence[Detail], public: Mapping[str, Any] | None = None
    ) -> int:
        """Add a version and its ledger entry and make it the current one, inside a transaction."""
        row = self.connection.execute("SELECT max(version) FROM versions").fetchone()
        version = 0 if row[0] is None else int(row[0]) + 1
        time = ledger.now()
        model = None if new.model is None else canonical(new.model)
        data, summary = canonical(new.data), canonical(new.summary)
        facts = new.facts | {"manifest": manifest_digest(model, data, summary)}
        entry = {"kind": new.kind, "version": version, "parent": new.parent, "head": version, "time": time}
        # The summary outlives an erasure, so the chain itself vouches for it.
        entry["summary"] = digest_of(summary.encode())
        sequence = ledger.append(self.connection, entry | dict(public or {}), [Detail("facts", facts), *details])
        durable.step("sqlite insert", "versions")
        self.connection.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (version, new.parent, new.kind, time, sequence, summary, model, data),
        )
        self.connection.execute("DELETE FROM redo")
        self.set_meta("head", str(version))
        return version

    def commit_version(self, new: NewVersion, details: Sequence[Detail]) -> int:
        """Commit a new version; returns its number."""
        with database.atomically(self.connection):
            self.record_objects()
            return self.insert_version(new, details)


def manifest_digest(model: str | None, data: str | None, summary: str) -> str:
    """What binds a version's row to its ledger entry."""
    return digest_of("\x1f".join([model or "", data or "", summary]).encode())


def seal_up(folder: Path, connection: sqlite3.Connection) -> None:
    """Fold, seal, and take the mark of a change away; left for the next writer where a reader is in the way."""
    if database.fold(connection):
        database.seal(folder)
        durable.remove(database.changing_mark(folder))
        durable.flush_folder(folder)


def recover(folder: Path, connection: sqlite3.Connection) -> bool:
    """Finish or undo what a dead process has left; returns whether there was any. The caller holds the lock."""
    if not database.changing_mark(folder).exists():
        return False
    from ecbm.keep.destruction import finish_erasure

    finish_erasure(folder, connection)
    store = ObjectStore(folder)
    known = {digest for (digest,) in connection.execute("SELECT digest FROM objects")}
    store.discard(store.strangers(known))
    seal_up(folder, connection)
    return True


@contextmanager
def begin(folder: Path, expected: int | None = None, *, any_head: bool = False) -> Iterator[Transaction]:
    """Open a change: take the lock, tidy up after the dead, and refuse if the model has moved on.

    Parameters
    ----------
    folder
        The workspace.
    expected
        The version the caller has looked at.
    any_head
        Do not compare versions.
    """
    if not (folder / database.NAME).is_file():
        raise InputError(f"{folder}: not a workspace (no {database.NAME}); make one with 'ecbm init'")
    mark = database.changing_mark(folder)
    with exclusive(folder / LOCK):
        connection: sqlite3.Connection | None = None
        try:
            connection = database.connect(folder)
            recover(folder, connection)
            opened = Transaction(folder, connection)
            if not any_head and opened.head != expected:
                raise moved_on(connection, expected, opened.head)
            if not mark.exists():
                durable.write_new(mark, b"")
                durable.flush_folder(folder)
            committed = connection.total_changes
            yield opened
            if connection.total_changes != committed:
                _seal_quietly(folder, connection)
            else:
                seal_up(folder, connection)
        except BaseException as error:
            if connection is not None and not isinstance(error, MovedOnError):
                _tidy_quietly(folder, connection)
            if isinstance(error, sqlite3.Error):
                raise database.sqlite_failure(folder, error) from None
            raise
        finally:
            if connection is not None:
                connection.close()


def _seal_quietly(folder: Path, connection: sqlite3.Connection) -> None:
    # The change is committed: a full disk now must not make it look as if it had failed. The mark stays, and
    # the next writer or `ecbm check` seals.
    try:
        seal_up(folder, connection)
    except (OSError, sqlite3.Error, EcbmError):
        return


def _tidy_quietly(folder: Path, connection: sqlite3.Connection) -> None:
    # What failed may fail again (a full disk); then the mark stays for the next writer.
    try:
        recover(folder, connection)
    except (OSError, sqlite3.Error, EcbmError):
        return


def moved_on(connection: sqlite3.Connection, expected: int | None, head: int | None) -> MovedOnError:
    """The error for an editor who comes second, with what changed."""
    from ecbm.keep.words import moved_on_words

    return MovedOnError(moved_on_words(connection, expected, head))
