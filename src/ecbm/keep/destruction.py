"""Destruction of bytes: what an erasure has left in files and free pages.

Files that no version uses any more are overwritten and removed, and SQLite's file is rebuilt (VACUUM) so that no
free page holds an old row. A process that dies in between leaves the mark ``erasing``; whoever comes next finishes
the work.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from ecbm.errors import EcbmError
from ecbm.keep import database, durable
from ecbm.keep.objects import ObjectStore
from ecbm.keep.staged import NAME as STAGED
from ecbm.keep.staged import forget_strangers
from ecbm.read.digests import RowDigests

__all__ = ["SIDE_FOLDERS", "finish_erasure"]

# What lies beside the versions and may show a sample: models that were exported, unfinished trainings, thumbnails,
# what reference models of audits said.
SIDE_FOLDERS = ("exports", "cache", "thumbnails", "references")


def _kept_inputs(connection: sqlite3.Connection, store: ObjectStore) -> RowDigests:
    """Digests of the inputs that the versions which are left still have."""
    from ecbm.keep.stored_inputs import load_digests

    chunks: list[dict[str, Any]] = []
    for (text,) in connection.execute("SELECT data FROM versions WHERE data IS NOT NULL"):
        manifest = json.loads(text)
        chunks += [*manifest["chunks"], *(chunk for delta in manifest["deltas"] for chunk in delta["chunks"])]
    return load_digests(chunks, store)


def _forget_staged(folder: Path, connection: sqlite3.Connection, store: ObjectStore) -> None:
    """Destroy what was staged about samples or concepts that the versions which are left do not have."""
    if not (folder / STAGED).exists():
        return
    from ecbm.keep.stored_datasets import DatasetReader

    samples: set[str] = set()
    concepts: set[str] = set()
    for (text,) in connection.execute("SELECT data FROM versions WHERE data IS NOT NULL"):
        data = DatasetReader(store).read(json.loads(text))
        samples |= set(data.ids)
        concepts |= {*data.concept_names, *data.layout.by_name}
    forget_strangers(folder, samples, concepts)


def finish_erasure(folder: Path, connection: sqlite3.Connection) -> bool:
    """Destroy the bytes of an erasure that has been committed. The caller holds the lock.

    Returns whether there was one to finish.
    """
    if connection.execute("SELECT 1 FROM meta WHERE name = 'erasing'").fetchone() is None:
        return False
    from ecbm.keep.stored_features import destroy_features

    store = ObjectStore(folder)
    known = {digest for (digest,) in connection.execute("SELECT digest FROM objects")}
    store.discard(store.strangers(known), shred=True)
    destroy_features(folder, _kept_inputs(connection, store))
    for name in SIDE_FOLDERS:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and not path.is_symlink():
                durable.overwrite(path)
        durable.remove_tree(folder / name)
    _forget_staged(folder, connection, store)
    durable.flush_folder(folder)
    durable.step("sqlite vacuum", database.NAME)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("VACUUM")
    if not database.fold(connection):
        raise EcbmError(
            f"{folder}: the erasure is recorded, but another process is reading the workspace and old pages are "
            "still in its log; close it and run 'ecbm check', which finishes the erasure"
        )
    with database.atomically(connection):
        connection.execute("DELETE FROM meta WHERE name = 'erasing'")
    return True
