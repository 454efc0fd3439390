"""``check_workspace``: is everything that was kept still what it was? Says what is wrong and what can be done."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.keep import database, ledger, sessions, staged, transaction
from ecbm.keep.destruction import SIDE_FOLDERS
from ecbm.keep.lock import exclusive
from ecbm.keep.naming import digests_in
from ecbm.keep.objects import DamagedError, ObjectStore, digest_of
from ecbm.keep.records import Records

__all__ = ["check_workspace"]

_BACKUP = "restore it from a backup"
_RECORDS = {database.NAME, f"{database.NAME}-wal", f"{database.NAME}-shm"}
_KNOWN = {*_RECORDS, *staged.FILES, *sessions.FILES, "seal", "changing", transaction.LOCK}
_FOLDERS = {"objects", "unfinished", "features", *SIDE_FOLDERS}

Problem = dict[str, str]


def check_workspace(
    folder: str | Path,
    *,
    repair: bool = False,
    replay: bool | Sequence[int | str] = False,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """:meth:`ecbm.Workspace.check`, also of a folder whose records are too damaged for being opened.

    Checks seal, database, chain of the ledger, versions, every file, the current model and data. What a dead
    process has left is tidied up first.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make a workspace with 'ecbm init'")
    if not (folder / database.NAME).is_file():
        raise InputError(f"{folder}: not a workspace (no {database.NAME}); make one with 'ecbm init'")
    numbers = _numbers(folder, replay)
    with _locked(folder) as writable:
        result = _check(folder, repair, writable, trust)
    # Without the lock: it may take as long as all trainings together.
    return result if numbers is None else _with_replay(folder, result, numbers, trust)


def _numbers(folder: Path, replay: bool | Sequence[int | str]) -> list[int] | None:
    """The versions to replay; ``None`` if that is not asked for."""
    if replay is False:
        return None
    try:
        records = Records(folder)
        if replay is True:
            return [version.version for version in records.versions()]
        return [records.version(number).version for number in replay]
    except DamagedError:  # the check itself will say so
        return []


def _with_replay(
    folder: Path, result: dict[str, Any], numbers: Sequence[int], trust: Sequence[str]
) -> dict[str, Any]:
    from ecbm.keep.replay import replay_versions
    from ecbm.keep.workspace import Workspace

    verdicts = replay_versions(Workspace(folder, trust=trust), numbers) if numbers else []
    problems = result["problems"] + [
        {"problem": f"version {one.version}: {one.why}", "repair": _BACKUP} for one in verdicts if one.same is False
    ]
    return result | {
        "ok": not problems,
        "problems": problems,
        "replayed": [dataclasses.asdict(one) for one in verdicts],
    }


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock, so that nothing changes meanwhile; false on a read-only disk, where nothing can."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(folder / transaction.LOCK))
            writable = True
        except OSError:
            writable = False
        yield writable


def _check(folder: Path, repair: bool, writable: bool, trust: Sequence[str]) -> dict[str, Any]:
    problems: list[Problem] = []
    notes: list[str] = []
    counts = {"versions": 0, "ledger_entries": 0, "files": 0}

    def run(what: str, part: Callable[[], Iterator[Problem]]) -> None:
        # Damage can surface as any exception: what cannot be read is a problem to report, not a crash.
        try:
            problems.extend(part())
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            problems.append({"problem": f"{what}: cannot be read ({reason})", "repair": _BACKUP})

    run("unfinished changes", lambda: _recovered(folder, notes, writable))
    seal = database.seal_problem(folder) if not database.changing_mark(folder).exists() else None
    run(database.NAME, lambda: _database(folder))
    run("ledger", lambda: _ledger(folder, counts))
    run("versions", lambda: _versions(folder, counts))
    run("files", lambda: _files(folder, counts, notes))
    if not problems:
        run("the current version", lambda: _current(folder, trust))
    if seal is not None:
        if repair and writable and not problems:
            _seal_again(folder)
            notes.append("the seal was made anew")
        else:
            hint = "'ecbm check --repair' seals it again" if not problems else _BACKUP
            problems.insert(0, {"problem": seal, "repair": hint})
    for path in sorted(folder.iterdir()):
        if path.name not in _KNOWN | _FOLDERS:
            notes.append(f"{path.name}: not made by ecbm; an erasure would not reach it")
    return {"ok": not problems, "problems": problems, "notes": notes, "checked": counts}


def _recovered(folder: Path, notes: list[str], writable: bool) -> Iterator[Problem]:
    if not database.changing_mark(folder).exists():
        return
    try:
        if not writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        with contextlib.closing(database.connect(folder)) as connection:
            if transaction.recover(folder, connection):
                notes.append("tidied up after a process that ended before it was done")
    except OSError as error:
        notes.append(f"a process ended before it was done; tidying up needs a writable folder ({error.strerror})")
    if database.changing_mark(folder).exists():
        with database.reading(folder) as connection:
            if connection.execute("SELECT 1 FROM meta WHERE name = 'erasing'").fetchone():
                yield {"problem": "an erasure is not finished", "repair": "run 'ecbm check' where it can write"}


def _database(folder: Path) -> Iterator[Problem]:
    with database.reading(folder) as connection:
        for (text,) in connection.execute("PRAGMA integrity_check(5)"):
            if text != "ok":
                yield {"problem": f"{database.NAME}: {text}", "repair": _BACKUP}
        found = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        if found is None or found[0] != database.FORMAT:
            yield {"problem": f"{database.NAME}: unknown format", "repair": _BACKUP}


def _ledger(folder: Path, counts: dict[str, int]) -> Iterator[Problem]:
    with database.reading(folder) as connection:
        for text in ledger.verify(connection):
            yield {"problem": text, "repair": f"{_BACKUP}; entries before it are sound"}
        last = connection.execute("SELECT sequence, public FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
        head = connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
        counts["ledger_entries"] = last[0] if last else 0
        if last is None or head is None or json.loads(last[1])["head"] != int(head[0]):
            yield {"problem": "the current version is not the one of the last ledger entry", "repair": _BACKUP}


def _versions(folder: Path, counts: dict[str, int]) -> Iterator[Problem]:
    with database.reading(folder) as connection:
        # From the ledger, not from the versions: a version whose row is gone must be noticed.
        made = {}
        for sequence, public in connection.execute("SELECT sequence, public FROM ledger"):
            entry = json.loads(public)
            if entry["kind"] not in ("undo", "redo", "export"):
                made[entry["version"]] = (sequence, entry)
        rows = {row[0]: row for row in connection.execute("SELECT * FROM versions")}
        facts = dict(connection.execute("SELECT sequence, content FROM details WHERE part = 'facts'").fetchall())
        counts["versions"] = len(rows)
        for number in sorted(made.keys() | rows.keys()):
            if number not in rows or number not in made:
                where = "versions" if number not in rows else "ledger"
                yield {"problem": f"version {number} is missing in the {where}", "repair": _BACKUP}
                continue
            sequence, entry = made[number]
            _, parent, kind, time, own, summary, model, data = rows[number]
            same = (parent, kind, time, own) == (entry["parent"], entry["kind"], entry["time"], sequence)
            same = same and digest_of(summary.encode()) == entry["summary"]
            if data is not None:
                digest = transaction.manifest_digest(model, data, summary)
                same = same and sequence in facts and json.loads(facts[sequence])["manifest"] == digest
            if not same:
                yield {"problem": f"version {number}: its record differs from the ledger", "repair": _BACKUP}


def _files(folder: Path, counts: dict[str, int], notes: list[str]) -> Iterator[Problem]:
    store = ObjectStore(folder)
    with database.reading(folder) as connection:
        known = {digest for (digest,) in connection.execute("SELECT digest FROM objects")}
        users = _users(connection)
        head = int(connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()[0])
    counts["files"] = len(known)
    broken: dict[str, str] = {}
    for digest in sorted(known | users.keys()):
        wrong = store.problem(digest)
        if wrong is not None:
            broken[digest] = wrong
        elif digest not in known:
            broken[digest] = "not recorded among the files"
    hurt = {version for digest in broken for version in users.get(digest, ())}
    whole = sorted({version for versions in users.values() for version in versions} - hurt)
    for digest, wrong in broken.items():
        mine = sorted(users.get(digest, ()))
        versions = f"used by version {', '.join(map(str, mine[:8]))}{' …' if len(mine) > 8 else ''}"
        if not mine:
            hint = "no version needs it"
        elif head not in mine:
            hint = f"the current version is whole; for the others, {_BACKUP}"
        elif whole:
            hint = f"{_BACKUP}, or go back with 'ecbm undo': version {whole[-1]} is whole"
        else:
            hint = _BACKUP
        yield {"problem": f"objects/{digest[:2]}/{digest}: {wrong}; {versions}", "repair": hint}
    strangers = store.strangers(known)
    if strangers:
        notes.append(f"{len(strangers)} unused files in the store; harmless, removed by the next change")


def _users(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """Which versions use each file."""
    found: dict[str, list[int]] = {}
    for version, model, data in connection.execute("SELECT version, model, data FROM versions"):
        for text in (model, data):
            for digest in set(digests_in(json.loads(text))) if text else ():
                found.setdefault(digest, []).append(version)
    return found


def _current(folder: Path, trust: Sequence[str]) -> Iterator[Problem]:
    from ecbm.keep.stored_datasets import fingerprint_of_bytes
    from ecbm.keep.workspace import Workspace

    workspace = Workspace(folder, trust=trust)
    version = workspace.version()
    facts = workspace.described([version])[0]["fingerprints"]
    if fingerprint_of_bytes(workspace.data(version.version)) != facts.get("data"):
        yield {"problem": f"version {version.version}: the data's fingerprint differs", "repair": _BACKUP}
    if version.model is not None and workspace.model(version.version).fingerprint != facts.get("model"):
        yield {"problem": f"version {version.version}: the model's fingerprint differs", "repair": _BACKUP}


def _seal_again(folder: Path) -> None:
    with contextlib.closing(database.connect(folder)) as connection:
        transaction.seal_up(folder, connection)
