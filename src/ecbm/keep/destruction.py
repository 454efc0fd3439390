"""Destruction of bytes: what an erasure has left in files and free pages.

Files that no version uses any more are overwritten and removed, and SQLite's file is rebuilt (VACUUM) so that no
free page holds an old row. A process that dies in between leaves the mark ``erasing``; whoever comes next finishes
the work.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ecbm.errors import EcbmError
from ecbm.keep import database, durable
from ecbm.keep.objects import ObjectStore

__all__ = ["SIDE_FOLDERS", "finish_erasure"]

# What lies beside the versions and may show a sample: models that were exported, unfinished trainings, thumbnails.
SIDE_FOLDERS = ("exports", "cache", "thumbnails")


def finish_erasure(folder: Path, connection: sqlite3.Connection) -> bool:
    """Destroy the bytes of an erasure that has been committed. The caller holds the lock.

    Returns whether there was one to finish.
    """
    if connection.execute("SELECT 1 FROM meta WHERE name = 'erasing'").fetchone() is None:
        return False
    store = ObjectStore(folder)
    known = {digest for (digest,) in connection.execute("SELECT digest FROM objects")}
    store.discard(store.strangers(known), shred=True)
    for name in SIDE_FOLDERS:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and not path.is_symlink():
                durable.overwrite(path)
        durable.remove_tree(folder / name)
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
