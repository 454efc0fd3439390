"""Features of a frozen network, kept in a workspace: computed once for each picture, found by its digest.

For each network there are two files in the folder ``features``: one of rows, one row behind another, and an index
with the digest of the picture and a checksum of the row. Rows are written and flushed before their index entries,
so that a process that is killed leaves a whole index. Nothing depends on these files: a row that is damaged or
missing is computed again. An erasure puts zeros over the rows of pictures that are gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.keep import durable
from ecbm.keep.lock import exclusive
from ecbm.read.dataset import Dataset
from ecbm.read.digests import DIGEST_SIZE, RowDigests
from ecbm.train.feature_rows import MemoryRows
from ecbm.train.front import Front
from ecbm.train.model import ConceptBottleneck

__all__ = ["FOLDER", "StoredRows", "attach_features", "destroy_features", "keep_features", "open_features"]

FOLDER = "features"
_CHECKSUM = 16
_ENTRY = DIGEST_SIZE + _CHECKSUM


class StoredRows:
    """Rows in a workspace (:class:`~ecbm.train.feature_rows.FeatureRows`).

    Parameters
    ----------
    folder
        The workspace's folder of features.
    front
        Whose features these are.
    writes
        Whether new rows go to disk at once (a training, which may be interrupted) or stay in memory until
        :meth:`keep` (an edit, which may never be committed).
    """

    shared: bool

    def __init__(self, folder: Path, front: Front, *, writes: bool) -> None:
        name = front.settings.identity[:24]
        self._rows, self._index = folder / f"{name}.rows", folder / f"{name}.index"
        self._about = folder / f"{name}.json"
        self._shape, self._writes, self._front = front.shape, writes, front
        self.shared = writes
        self._kind = np.dtype(np.float16 if front.precision == torch.float16 else np.float32)
        self._size = self._kind.itemsize * int(np.prod(front.shape))
        self._fresh = MemoryRows(front.shape, front.precision)
        self._unwritten: list[RowDigests] = []
        self._places: dict[bytes, int] = {}
        self._sums: list[bytes] = []
        self._read_index()

    def _read_index(self) -> None:
        """Read entries that are not known yet: all of them, or those that another process has added."""
        known = len(self._sums)
        try:
            with self._index.open("rb") as file:
                file.seek(known * _ENTRY)
                content = file.read()
            rows = self._rows.stat().st_size // self._size
        except FileNotFoundError:
            return
        for place in range(min(len(content) // _ENTRY, rows - known)):
            entry = content[place * _ENTRY : (place + 1) * _ENTRY]
            self._sums.append(entry[DIGEST_SIZE:])
            self._places[entry[:DIGEST_SIZE]] = known + place
        self._places.pop(bytes(DIGEST_SIZE), None)  # erased

    def __len__(self) -> int:
        return len(self._places)

    def has(self, digests: RowDigests) -> NDArray[np.bool_]:
        kept = np.fromiter((digest in self._places for digest in digests), bool, len(digests))
        return kept | self._fresh.has(digests)

    def fetch(self, digests: RowDigests) -> tuple[Tensor, NDArray[np.bool_]]:
        values, found = self._fresh.fetch(digests)
        wanted = [
            (row, self._places[digest])
            for row, (digest, there) in enumerate(zip(digests, found.tolist(), strict=True))
            if not there and digest in self._places
        ]
        if not wanted:
            return values, found
        found = found.copy()
        out = values.numpy()
        try:
            with self._rows.open("rb", buffering=0) as file:
                for row, place in wanted:
                    file.seek(place * self._size)
                    content = file.read(self._size)
                    digest = digests[row]
                    if _checksum(digest, content) == self._sums[place]:
                        out[row] = np.frombuffer(content, self._kind).reshape(self._shape)
                        found[row] = True
                    else:
                        self._places.pop(digest)  # damaged: computed again
        except FileNotFoundError:
            self._places.clear()
        return values, found

    def add(self, digests: RowDigests, rows: Tensor) -> None:
        new = np.flatnonzero(~self.has(digests))
        if not len(new):
            return
        digests, rows = digests.take(new), rows[torch.from_numpy(new)]
        if self._writes:
            self._write(digests, rows)
        else:
            self._fresh.add(digests, rows)
            self._unwritten.append(digests)

    def keep(self, wanted: RowDigests) -> None:
        """Write rows that are only in memory, of these pictures alone."""
        allowed = set(wanted)
        for digests in self._unwritten:
            here = digests.take([row for row, digest in enumerate(digests) if digest in allowed])
            rows, _ = self._fresh.fetch(here)
            self._write(here, rows)
        self._unwritten, self._fresh = [], MemoryRows(self._front.shape, self._front.precision)

    def _write(self, digests: RowDigests, rows: Tensor) -> None:
        if not len(digests):
            return
        durable.make_folder(self._about.parent)
        with exclusive(self._about.with_suffix(".lock")):
            if not self._about.exists():
                about = json.dumps(self._front.settings.to_dict(), indent=1).encode()
                durable.write_new(self._about, about)
            self._read_index()
            self._append(digests, rows)

    def refresh(self) -> None:
        self._read_index()

    def _append(self, digests: RowDigests, rows: Tensor) -> None:
        contents = [row.tobytes() for row in rows.cpu().contiguous().numpy().astype(self._kind)]
        entries = [digest + _checksum(digest, row) for digest, row in zip(digests, contents, strict=True)]
        first = len(self._sums)
        _append(self._rows, first * self._size, b"".join(contents))
        _append(self._index, first * _ENTRY, b"".join(entries))
        for place, entry in enumerate(entries, first):
            self._places[entry[:DIGEST_SIZE]] = place
            self._sums.append(entry[DIGEST_SIZE:])


def _checksum(digest: bytes, row: bytes) -> bytes:
    return hashlib.blake2b(row, digest_size=_CHECKSUM, key=digest).digest()


def _append(path: Path, at: int, content: bytes) -> None:
    """Write behind what is known to be whole; what a killed process left there is written over."""
    durable.step("append", path)
    path.touch()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def open_features(workspace: Path, front: Front, *, writes: bool = False) -> StoredRows:
    """The features of a network in a workspace."""
    return StoredRows(workspace / FOLDER, front, writes=writes)


def attach_features(workspace: Path, model: ConceptBottleneck) -> None:
    """Have a model find features that the workspace keeps."""
    if model.front is not None and model.front.keeps:
        model.front.rows = open_features(workspace, model.front)


def keep_features(model: ConceptBottleneck, data: Dataset) -> None:
    """Write features of a dataset that an edit has computed; a full disk is no reason to fail."""
    if model.front is not None and isinstance(model.front.rows, StoredRows):
        with contextlib.suppress(OSError):
            model.front.rows.keep(RowDigests.of(data.row_digests))


def destroy_features(workspace: Path, kept: RowDigests) -> None:
    """Put zeros over the rows of all pictures but ``kept`` ones; files that nothing can be told of are removed."""
    stay = set(kept)
    for index in sorted((workspace / FOLDER).glob("*.index")):
        rows, about = index.with_suffix(".rows"), index.with_suffix(".json")
        try:
            settings = json.loads(about.read_bytes())
            size = int(np.prod(settings["shape"])) * (2 if settings["precision"] == "float16" else 4)
            _destroy_rows(index, rows, size, stay)
        except (OSError, ValueError, KeyError, TypeError):
            for path in (index, rows, about):
                if path.is_file():
                    durable.overwrite(path)
                durable.remove(path)
    known = {path.stem for path in (workspace / FOLDER).glob("*.index")}
    for path in sorted((workspace / FOLDER).glob("*")):
        if path.stem not in known and path.is_file():
            durable.overwrite(path)
            durable.remove(path)


def _destroy_rows(index: Path, rows: Path, size: int, stay: set[bytes]) -> None:
    content = index.read_bytes()
    count = len(content) // _ENTRY
    gone = [place for place in range(count) if content[place * _ENTRY : place * _ENTRY + DIGEST_SIZE] not in stay]
    for path, width in ((rows, size), (index, _ENTRY)):
        durable.step("overwrite", path)
        with path.open("r+b") as file:
            for place in gone:
                file.seek(place * width)
                file.write(bytes(width))
            # What a killed process left behind the last entry.
            file.truncate(count * width)
            file.flush()
            os.fsync(file.fileno())
