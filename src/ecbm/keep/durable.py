"""The one door through which the workspace reaches the disk.

Every step that must survive a crash (a write, an fsync, a rename, a removal, a commit) is announced to a watcher
before it is done. Outside tests there is none. Tests put one in that fails or kills the process at the k-th step.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "flush_folder",
    "make_folder",
    "overwrite",
    "remove",
    "remove_tree",
    "rename",
    "replace_unflushed",
    "step",
    "watch",
    "write_new",
]

Watcher = Callable[[str, str], None]
_watcher: Watcher | None = None


def watch(watcher: Watcher | None) -> None:
    """Call ``watcher(operation, what)`` before every durable step; ``None`` ends it."""
    global _watcher
    _watcher = watcher


def step(operation: str, what: str | Path) -> None:
    """Announce one durable step."""
    if _watcher is not None:
        _watcher(operation, str(what))


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, and flush it to disk."""
    step("create", path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        # In two parts, so that tests can stop between them and leave half a file.
        middle = len(content) // 2
        for part in (content[:middle], content[middle:]):
            view = memoryview(part)
            while view:
                step("write", path)
                view = view[os.write(descriptor, view) :]
        step("fsync", path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename, replacing a file, and make it durable."""
    step("rename", target)
    os.replace(source, target)
    flush_folder(target.parent)


def replace_unflushed(path: Path, content: bytes) -> None:
    """For what can be computed again: a file that a crash has cut short is noticed when it is read."""
    draft = path.with_name(f"{uuid.uuid4().hex}.draft")
    step("write", draft)
    draft.write_bytes(content)
    step("rename", path)
    os.replace(draft, path)


def flush_folder(folder: Path) -> None:
    """Make renames and removals inside ``folder`` durable."""
    step("fsync folder", folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder (its parent exists) unless it is there."""
    if not folder.is_dir():
        step("mkdir", folder)
        folder.mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file; one that is gone already is fine."""
    step("unlink", path)
    path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything in it."""
    if folder.exists():
        step("remove folder", folder)
        shutil.rmtree(folder)


def overwrite(path: Path) -> None:
    """Put zeros where a file's bytes were. A best effort: some file systems write elsewhere."""
    size = path.stat().st_size
    step("overwrite", path)
    # The name may be linked elsewhere or the file read-only; removing it is what counts.
    try:
        with path.open("r+b") as file:
            for start in range(0, size, 1 << 20):
                file.write(bytes(min(1 << 20, size - start)))
            file.flush()
            os.fsync(file.fileno())
    except PermissionError:
        return
