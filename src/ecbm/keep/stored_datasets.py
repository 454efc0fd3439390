"""Datasets in a workspace: a table and input chunks that many versions share, and small deltas on top."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ecbm.keep import deltas
from ecbm.keep.ledger import canonical
from ecbm.keep.objects import ObjectStore
from ecbm.keep.stored_inputs import keep_rows, load_digests, load_inputs, store_inputs
from ecbm.keep.stored_tables import StoredTable, read_table, table_bytes
from ecbm.read.dataset import Dataset
from ecbm.read.digests import RowDigests
from ecbm.read.inputs import Inputs

__all__ = ["DatasetReader", "fingerprint_of_bytes", "known_ids", "rewrite_dataset", "store_dataset", "store_edited"]

Put = Callable[[bytes], str]
Manifest = dict[str, Any]

# After so many deltas they are merged into one, so that reading a version stays fast.
_MOST_DELTAS = 16
# A version and its parent.
_MOST_DATASETS = 2


def store_dataset(data: Dataset, put: Put) -> Manifest:
    """Put a whole dataset into the store; returns its manifest."""
    chunks = store_inputs(data.inputs, data.row_digests, put)
    return {"table": put(table_bytes(StoredTable.of(data))), "chunks": chunks, "deltas": []}


@dataclasses.dataclass
class _Loaded:
    table: StoredTable
    base: StoredTable
    chunks: list[dict[str, Any]]


def _load(manifest: Manifest, store: ObjectStore) -> _Loaded:
    base = table = read_table(store.get(manifest["table"]))
    chunks = list(manifest["chunks"])
    for entry in manifest["deltas"]:
        pool = sum(chunk["rows"] for chunk in chunks)
        table = deltas.apply(deltas.read_delta(store.get(entry["delta"])), table, pool)
        chunks += entry["chunks"]
    return _Loaded(table, base, chunks)


class DatasetReader:
    """Reads datasets of a workspace, bit for bit, and keeps what the next one is likely to share.

    Kept are the inputs that were read last and datasets made of them. When others are read they are dropped: after
    an erasure by another process nothing of the erased stays here longer than until the next dataset is read.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._chunks = ""
        self._pool: tuple[Inputs, RowDigests] | None = None
        self._datasets: dict[str, Dataset] = {}

    def read(self, manifest: Manifest) -> Dataset:
        """The dataset of a manifest."""
        key = canonical(manifest)
        data = self._datasets.get(key)
        if data is None:
            found = _load(manifest, self._store)
            data = found.table.dataset(*self._inputs(found.chunks))
            while len(self._datasets) >= _MOST_DATASETS:
                self._datasets.pop(next(iter(self._datasets)), None)
            self._datasets[key] = data
        return data

    def _inputs(self, chunks: Sequence[dict[str, Any]]) -> tuple[Inputs, RowDigests]:
        key = canonical(chunks)
        if self._pool is None or self._chunks != key:
            self.forget()
            self._pool = load_inputs(chunks, self._store), load_digests(chunks, self._store)
            self._chunks = key
        return self._pool

    def forget(self) -> None:
        """Drop everything."""
        self._pool = None
        self._datasets.clear()


def fingerprint_of_bytes(data: Dataset) -> str:
    """The fingerprint of a dataset that was read, with digests made anew from the inputs themselves."""
    bare = Dataset(
        data.ids,
        data.inputs,
        data.concepts,
        data.labels,
        data.concept_names,
        data.class_names,
        data.splits,
        data.layout.declared,
        data.layout.units,
        data.target,
        data.target_unit,
    )
    return bare.fingerprint


def known_ids(manifest: Manifest, store: ObjectStore) -> set[str]:
    """Every id that the files of a manifest hold, also those of samples that were removed."""
    found = set(read_table(store.get(manifest["table"])).ids)
    for entry in manifest["deltas"]:
        appended = deltas.read_delta(store.get(entry["delta"])).appended
        found |= set(appended.ids) if appended is not None else set()
    return found


def store_edited(manifest: Manifest, before: Dataset, after: Dataset, store: ObjectStore, put: Put) -> Manifest:
    """Put what an edit changed into the store; returns the manifest of the edited dataset.

    Parameters
    ----------
    manifest, before
        The dataset before the edit, and where it is kept.
    after
        The dataset after it.
    """
    if after.fingerprint == before.fingerprint:
        return manifest
    now = StoredTable.of(after)
    delta = deltas.between(StoredTable.of(before), now)
    if delta is None or not _same_inputs(before, after):
        return store_dataset(after, put)
    chunks = _store_appended(delta, after, put)
    if len(manifest["deltas"]) < _MOST_DELTAS:
        entry = {"delta": put(deltas.delta_bytes(delta)), "chunks": chunks}
        return manifest | {"deltas": [*manifest["deltas"], entry]}
    return _merge(manifest, delta, chunks, store, put)


def _same_inputs(before: Dataset, after: Dataset) -> bool:
    """Whether samples of both have the same input in both."""
    if before.row_digests is after.row_digests and before.ids == after.ids:
        return True
    known = dict(zip(before.ids, before.row_digests, strict=True))
    return all(known.get(name, digest) == digest for name, digest in zip(after.ids, after.row_digests, strict=True))


def _store_appended(delta: deltas.Delta, after: Dataset, put: Put) -> list[dict[str, Any]]:
    if delta.appended is None:
        return []
    rows = range(len(after) - len(delta.appended.ids), len(after))
    return store_inputs(after.inputs.subset(rows), after.row_digests[rows.start :], put)


def _merge(
    manifest: Manifest, delta: deltas.Delta, chunks: list[dict[str, Any]], store: ObjectStore, put: Put
) -> Manifest:
    """All deltas and one more as a single delta on the shared table."""
    found = _load(manifest, store)
    shared = sum(chunk["rows"] for chunk in manifest["chunks"])
    now = deltas.apply(delta, found.table, sum(chunk["rows"] for chunk in found.chunks))
    later = now.origin >= shared
    old = set(found.base.ids)
    merged = None
    # A sample that went and came back under its old id would be taken for the one in the table.
    if not any(name in old for name, new in zip(now.ids, later.tolist(), strict=True) if new):
        merged = deltas.between(found.base, now)
    if merged is None:
        entry = {"delta": put(deltas.delta_bytes(delta)), "chunks": chunks}
        return manifest | {"deltas": [*manifest["deltas"], entry]}
    added = [*found.chunks[len(manifest["chunks"]) :], *chunks]
    kept = keep_rows(added, (now.origin[later] - shared).tolist(), store, put)
    return manifest | {"deltas": [{"delta": put(deltas.delta_bytes(merged)), "chunks": kept}]}


def rewrite_dataset(
    manifest: Manifest, after: Dataset, store: ObjectStore, put: Put, *, forget: Sequence[str] = ()
) -> Manifest:
    """A manifest of ``after`` that shares no file with one that holds a removed sample.

    ``after`` is the manifest's dataset without some samples and perhaps with other labels or names. Chunks of
    inputs that held only samples which stay are shared; everything else is written anew.
    """
    found = _load(manifest, store)
    gone = set(forget)
    places = {
        name: int(row) for name, row in zip(found.table.ids, found.table.origin, strict=True) if name not in gone
    }
    rows = [places[name] for name in after.ids]
    chunks = keep_rows(found.chunks, sorted(rows), store, put)
    table = StoredTable.of(after)
    if not bool((np.diff(rows) > 0).all()):
        table = table.rows(np.argsort(np.asarray(rows)))
    return {"table": put(table_bytes(table)), "chunks": chunks, "deltas": []}
