"""What people have answered and staged, but not applied: it survives a kill, and an erasure destroys its part.

A SQLite file of its own beside the records: those are sealed after every change, and an answer must be on disk
before the next key is pressed. It appears with the first answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ecbm.errors import EcbmError
from ecbm.keep import database, durable
from ecbm.keep.ledger import now

__all__ = [
    "FILES", "ErasedMeanwhileError", "NewItem", "StagedItem", "StagedItems", "count_erasures", "forget_strangers",
]  # fmt: skip

NAME = "staged.sqlite"
FILES = (NAME, f"{NAME}-wal", f"{NAME}-shm")
_BUSY_MILLISECONDS = 20_000
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE items (
    item INTEGER PRIMARY KEY AUTOINCREMENT,
    person TEXT NOT NULL,
    kind TEXT NOT NULL,
    sample TEXT NOT NULL,
    concept TEXT NOT NULL,
    answer TEXT NOT NULL,
    value TEXT NOT NULL,
    before TEXT NOT NULL,
    time TEXT NOT NULL,
    version INTEGER NOT NULL,
    done INTEGER,
    UNIQUE (person, kind, sample, concept)
);
"""


class ErasedMeanwhileError(EcbmError):
    """An erasure happened since the caller looked: what it wants to write may be about somebody who was erased."""


@dataclasses.dataclass(frozen=True)
class NewItem:
    """Something to stage. ``sample`` and ``concept`` are empty where they have no meaning.

    ``answer`` is how it was said (``present``, ``absent``, ``unsure``, ``value``, ``missing``), ``value`` and
    ``before`` are plain JSON values: the label that is meant, and the one that was there.
    """

    kind: str
    sample: str = ""
    concept: str = ""
    answer: str = ""
    value: Any = None
    before: Any = None


@dataclasses.dataclass(frozen=True)
class StagedItem(NewItem):
    """Something that was staged: when, by whom, looking at which version; ``done`` is the version that has it."""

    item: int = 0
    person: str = ""
    time: str = ""
    version: int = 0
    done: int | None = None


class StagedItems:
    """The staged items of a workspace. Nothing is held open: another process may erase or stage meanwhile.

    Parameters
    ----------
    folder
        The workspace.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME

    # -- reading -------------------------------------------------------------------------------------------

    def revision(self) -> int:
        """Counts changes; 0 where nothing was ever staged."""
        if not self.path.exists():
            return 0
        with self._reading() as connection:
            return _revision(connection)

    def items(self, person: str | None = None) -> list[StagedItem]:
        """The items of somebody, or of everybody, oldest first."""
        if not self.path.exists():
            return []
        where, given = ("", ()) if person is None else ("WHERE person = ?", (person,))
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT item, person, kind, sample, concept, answer, value, before, time, version, done FROM items "
                f"{where} ORDER BY item",
                given,
            ).fetchall()
        return [
            StagedItem(
                kind, sample, concept, answer, json.loads(value), json.loads(before), *(item, who, time, seen, done)
            )
            for item, who, kind, sample, concept, answer, value, before, time, seen, done in rows
        ]

    # -- writing -------------------------------------------------------------------------------------------

    def put(self, person: str, items: Sequence[NewItem], version: int, erasures: int) -> list[int]:
        """Keep items, all or none; one about the same question replaces the earlier one. Returns their numbers.

        Parameters
        ----------
        person
            Whose they are.
        items
            What to keep.
        version
            The version that was looked at.
        erasures
            How many erasures the caller knows of (:func:`count_erasures`); refused if there is one more.
        """
        with self._writing(erasures) as connection:
            time = now()
            numbers = []
            for one in items:
                connection.execute(
                    "DELETE FROM items WHERE person = ? AND kind = ? AND sample = ? AND concept = ?",
                    (person, one.kind, one.sample, one.concept),
                )
                durable.step("sqlite insert", NAME)
                row = connection.execute(
                    "INSERT INTO items (person, kind, sample, concept, answer, value, before, time, version) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        person, one.kind, one.sample, one.concept, one.answer, json.dumps(one.value),
                        json.dumps(one.before), time, version,
                    ),
                )  # fmt: skip
                numbers.append(int(row.lastrowid or 0))
            return numbers

    def remove(self, person: str, numbers: Iterable[int]) -> int:
        """Take items of somebody back; returns how many there were."""
        if not self.path.exists():
            return 0
        with self._writing(None) as connection:
            before = connection.total_changes
            connection.executemany(
                "DELETE FROM items WHERE person = ? AND item = ?", [(person, number) for number in numbers]
            )
            return connection.total_changes - before

    def finish(self, person: str, numbers: Iterable[int], version: int) -> None:
        """Say of items that a version has them now."""
        if not self.path.exists():
            return
        with self._writing(None) as connection:
            connection.executemany(
                "UPDATE items SET done = ? WHERE person = ? AND item = ?",
                [(version, person, number) for number in numbers],
            )

    # -- the file ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self._connect()) as connection:
            try:
                yield connection
            except sqlite3.Error as error:
                raise EcbmError(f"{self.path}: cannot be read ({error})") from None

    @contextlib.contextmanager
    def _writing(self, erasures: int | None) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(self._connect()) as connection:
                durable.step("sqlite begin", NAME)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    # After the lock was taken: an erasure that is recorded later clears this file after us.
                    if erasures is not None and count_erasures(self.folder) != erasures:
                        raise ErasedMeanwhileError("an erasure happened since you looked; load the page again")
                    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone() is None:
                        for statement in _SCHEMA.split(";"):
                            connection.execute(statement)
                    yield connection
                    connection.execute(
                        "INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (_revision(connection) + 1,)
                    )
                    durable.step("sqlite commit", NAME)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise EcbmError(f"{self.path}: {error}; nothing was changed") from error

    def _connect(self) -> sqlite3.Connection:
        fresh = not self.path.exists()
        connection = sqlite3.connect(self.path, isolation_level=None)
        for pragma in (f"busy_timeout = {_BUSY_MILLISECONDS}", "synchronous = FULL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")
        if fresh:
            connection.execute("PRAGMA journal_mode = WAL")
        return connection


def _revision(connection: sqlite3.Connection) -> int:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()
    return int(row[0]) if row else 0


def _count_up(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (_revision(connection) + 1,))


def count_erasures(folder: Path) -> int:
    """How many erasures a workspace has seen."""
    with database.reading(folder) as connection:
        return int(connection.execute("SELECT count(*) FROM versions WHERE kind = 'erase'").fetchone()[0])


def forget_strangers(folder: Path, samples: Collection[str], concepts: Collection[str]) -> int:
    """Destroy items about samples and concepts that the workspace does not have any more; returns how many.

    After an erasure nothing may speak of who was erased. What is staged about a sample that an edit removed goes
    too: no version is left in which it could be applied. New concepts that are being labelled stay.
    """
    path = folder / NAME
    if not path.exists():
        return 0
    durable.step("sqlite delete", NAME)
    with contextlib.closing(StagedItems(folder)._connect()) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone() is None:
            return 0
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute("SELECT item, kind, sample, concept, value FROM items").fetchall()
        added = {concept for _, kind, _, concept, _ in rows if kind == "add_concept"}
        known = set(concepts) | added
        gone = [
            (item,)
            for item, kind, sample, concept, value in rows
            if (sample and sample not in samples)
            or (concept and concept not in known and kind != "add_concept")
            or (kind == "merge_concepts" and json.loads(value).get("other") not in known)
        ]
        connection.executemany("DELETE FROM items WHERE item = ?", gone)
        _count_up(connection)
        connection.execute("COMMIT")
        durable.step("sqlite vacuum", NAME)
        connection.execute("VACUUM")
        durable.step("sqlite checkpoint", NAME)
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise EcbmError(
                f"{folder}: the erasure is recorded, but another process is reading what is staged; close it and "
                "run 'ecbm check', which finishes the erasure"
            )
    return len(gone)
