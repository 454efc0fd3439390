"""The records of a workspace: one SQLite file in WAL mode, and a seal over its bytes.

SQLite finds damage in what it reads, not in every byte. After each change the write-ahead log is therefore folded
into the file and a digest of all its bytes is kept in ``seal``. A change in progress is announced by ``changing``;
where that is left behind, the process that made it has died and the next writer tidies up.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecbm.errors import EcbmError, InputError
from ecbm.keep import durable
from ecbm.keep.objects import DamagedError

__all__ = [
    "FORMAT",
    "NAME",
    "atomically",
    "changing_mark",
    "connect",
    "create",
    "fold",
    "reading",
    "seal",
    "seal_problem",
]

FORMAT = "1"
NAME = "records.sqlite"
_SEAL, _CHANGING = "seal", "changing"
# How long SQLite waits for others before it gives up.
_BUSY_MILLISECONDS = 20_000

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE objects (digest TEXT PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    parent INTEGER,
    kind TEXT NOT NULL,
    time TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    summary TEXT NOT NULL,
    model TEXT,
    data TEXT
);
CREATE TABLE redo (position INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY,
    public TEXT NOT NULL,
    commitments BLOB NOT NULL,
    hash BLOB NOT NULL
);
CREATE TABLE details (
    sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    part TEXT NOT NULL,
    subject TEXT,
    salt BLOB NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (sequence, position)
);
CREATE INDEX details_subject ON details (subject) WHERE subject IS NOT NULL;
CREATE TABLE exports (path TEXT NOT NULL, version INTEGER NOT NULL, time TEXT NOT NULL);
"""


def changing_mark(folder: Path) -> Path:
    """The file that exists while a change is being made."""
    return folder / _CHANGING


def _settle(connection: sqlite3.Connection) -> sqlite3.Connection:
    for pragma in (
        f"busy_timeout = {_BUSY_MILLISECONDS}",
        "synchronous = FULL",
        # Deleted rows are overwritten with zeros, so that an erasure leaves nothing in free pages.
        "secure_delete = ON",
        # Folding the log into the file is done by the writer alone, just before it seals the file.
        "wal_autocheckpoint = 0",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def connect(folder: Path) -> sqlite3.Connection:
    """A connection that may write; transactions are begun by hand."""
    path = folder / NAME
    return _settle(sqlite3.connect(path, isolation_level=None))


def create(folder: Path) -> sqlite3.Connection:
    """A new, empty database."""
    durable.step("sqlite create", folder / NAME)
    connection = connect(folder)
    connection.execute("PRAGMA journal_mode = WAL")
    durable.step("sqlite schema", folder / NAME)
    connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    return connection


def _open_for_reading(folder: Path) -> sqlite3.Connection:
    path = folder / NAME
    try:
        connection = connect(folder)
        connection.execute("SELECT count(*) FROM meta").fetchone()
        return connection
    except sqlite3.OperationalError:
        # On a read-only disk SQLite cannot make its shared memory file; without a log it needs none.
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, isolation_level=None)
        connection.execute("SELECT count(*) FROM meta").fetchone()
        return connection


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading one consistent state."""
    if not (folder / NAME).is_file():
        raise InputError(f"{folder}: not a workspace (no {NAME}); make one with 'ecbm init'")
    connection: sqlite3.Connection | None = None
    try:
        connection = _open_for_reading(folder)
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        raise DamagedError(
            f"{folder / NAME}: cannot be read ({error}); run 'ecbm check', or restore the folder from a backup"
        ) from None
    finally:
        if connection is not None:
            connection.close()


@contextmanager
def atomically(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements of the block, or none."""
    durable.step("sqlite begin", NAME)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        durable.step("sqlite commit", NAME)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def fold(connection: sqlite3.Connection) -> bool:
    """Move the log into the file and empty it; false where a reader of another process is in the way."""
    durable.step("sqlite checkpoint", NAME)
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _digest(path: Path) -> str:
    total = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def seal(folder: Path) -> None:
    """Keep a digest of every byte of the records, which have been folded."""
    draft = folder / "unfinished" / "seal"
    durable.remove(draft)
    durable.write_new(draft, f"{_digest(folder / NAME)}\n".encode())
    durable.rename(draft, folder / _SEAL)


def seal_problem(folder: Path) -> str | None:
    """What is wrong with the seal, if anything."""
    try:
        kept = (folder / _SEAL).read_bytes()
    except FileNotFoundError:
        return f"{_SEAL}: missing, so changes made to {NAME} by others cannot be found"
    except OSError as error:
        return f"{_SEAL}: cannot be read ({error.strerror})"
    if kept == f"{_digest(folder / NAME)}\n".encode():
        return None
    return f"{NAME}: its bytes were changed by something other than ecbm, or the file {_SEAL} was"


def sqlite_failure(folder: Path, error: sqlite3.Error) -> EcbmError:
    """A failed write, in one line."""
    return EcbmError(f"{folder / NAME}: {error}; nothing was changed")
