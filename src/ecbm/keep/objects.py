"""Files named by the digest of their content: written once, never changed, shared by all versions that use them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from ecbm.errors import EcbmError
from ecbm.keep import durable

__all__ = ["DamagedError", "ObjectStore", "digest_of"]


class DamagedError(EcbmError):
    """A file of the workspace is missing or not what it was; ``ecbm check`` tells more."""


def digest_of(content: bytes) -> str:
    """The name of an object with this content."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


class ObjectStore:
    """The folder ``objects`` of a workspace.

    An object is written under ``unfinished``, flushed, and then renamed to its digest: under its name it is whole.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.unfinished = folder / "objects", folder / "unfinished"

    def create(self) -> None:
        durable.make_folder(self.folder)
        durable.make_folder(self.unfinished)

    def path(self, digest: str) -> Path:
        """Where the object lies."""
        return self.folder / digest[:2] / digest

    def put(self, content: bytes) -> str:
        """Keep ``content``; returns its digest. What is there already is not written again."""
        digest = digest_of(content)
        target = self.path(digest)
        if not target.exists():
            draft = self.unfinished / uuid.uuid4().hex
            durable.write_new(draft, content)
            if not target.parent.is_dir():
                durable.make_folder(target.parent)
                durable.flush_folder(self.folder)
            durable.rename(draft, target)
        return digest

    def get(self, digest: str) -> bytes:
        """The content of an object, checked against its digest."""
        try:
            content = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise DamagedError(f"{self.path(digest)}: missing; run 'ecbm check' on the workspace") from None
        if digest_of(content) != digest:
            raise DamagedError(f"{self.path(digest)}: damaged (its digest differs); run 'ecbm check'")
        return content

    def problem(self, digest: str) -> str | None:
        """What is wrong with an object, if anything."""
        path = self.path(digest)
        if not path.is_file():
            return "missing"
        total = hashlib.blake2b(digest_size=32)
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return None if total.hexdigest() == digest else "damaged (its content no longer has the digest in its name)"

    def files(self) -> Iterator[Path]:
        """Every file that lies in the store, finished or not."""
        for folder in (self.folder, self.unfinished):
            if folder.is_dir():
                yield from (path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())

    def strangers(self, known: set[str]) -> list[Path]:
        """Files that no version uses: left by a process that died before it was done."""
        return [path for path in self.files() if path.parent == self.unfinished or path.name not in known]

    def discard(self, paths: list[Path], *, shred: bool = False) -> None:
        """Remove files; with ``shred``, zeros are written over them first."""
        folders = set()
        for path in paths:
            if shred and path.is_file() and not path.is_symlink():
                durable.overwrite(path)
            durable.remove(path)
            folders.add(path.parent)
        for folder in folders:
            if folder != self.unfinished and not any(folder.iterdir()):
                durable.step("rmdir", folder)
                folder.rmdir()
            else:
                durable.flush_folder(folder)
