"""A person who may write to the folder: arrays are exchanged, and everything that vouches for them is made anew."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ecbm.keep import database, ledger, transaction
from ecbm.keep.objects import ObjectStore
from ecbm.keep.stored_datasets import store_dataset
from ecbm.keep.stored_models import store_model
from ecbm.keep.workspace import Workspace


def flip_weight(folder: Path, number: int, part: str = "label_head") -> None:
    """Change the last bit of one weight of a version's model."""
    model = Workspace(folder).model(number)
    weight = getattr(model, part).weight
    with torch.no_grad():
        weight.view(torch.int64)[0, 0] ^= 1
    _resign(folder, number, lambda put: {"model": store_model(model, put)}, {"model": model.fingerprint})


def flip_label(folder: Path, number: int) -> None:
    """Give one sample of a version another class."""
    data = Workspace(folder).data(number)
    labels = data.labels.clone()
    labels[0] = (labels[0] + 1) % len(data.class_names)
    other = data.replace(labels=labels)
    _resign(folder, number, lambda put: {"data": store_dataset(other, put)}, {"data": other.fingerprint})


def _resign(
    folder: Path, number: int, arrays: Callable[[Callable[[bytes], str]], dict[str, Any]], facts: dict[str, str]
) -> None:
    """Keep other arrays for a version, with digests, record, facts, chain and seal that fit them."""
    store = ObjectStore(folder)
    sizes: dict[str, int] = {}

    def put(content: bytes) -> str:
        digest = store.put(content)
        sizes[digest] = len(content)
        return digest

    manifests = {name: ledger.canonical(value) for name, value in arrays(put).items()}
    with contextlib.closing(database.connect(folder)) as connection:
        with database.atomically(connection):
            connection.executemany("INSERT OR IGNORE INTO objects VALUES (?, ?)", sizes.items())
            for name, text in manifests.items():
                connection.execute(f"UPDATE versions SET {name} = ? WHERE version = ?", (text, number))
            sequence, model, data, summary = connection.execute(
                "SELECT sequence, model, data, summary FROM versions WHERE version = ?", (number,)
            ).fetchone()
            facts = facts | {"manifest": transaction.manifest_digest(model, data, summary)}
            _rewrite_facts(connection, sequence, facts)
            _rewrite_chain(connection)
        assert database.fold(connection)
    database.seal(folder)


def _rewrite_facts(connection: Any, sequence: int, facts: dict[str, str]) -> None:
    position, salt, content = connection.execute(
        "SELECT position, salt, content FROM details WHERE sequence = ? AND part = 'facts'", (sequence,)
    ).fetchone()
    text = ledger.canonical(json.loads(content) | facts)
    connection.execute(
        "UPDATE details SET content = ? WHERE sequence = ? AND position = ?", (text, sequence, position)
    )
    (commitments,) = connection.execute("SELECT commitments FROM ledger WHERE sequence = ?", (sequence,)).fetchone()
    whole = bytearray(commitments)
    whole[32 * position : 32 * position + 32] = ledger._commitment(salt, "facts", None, text)
    connection.execute("UPDATE ledger SET commitments = ? WHERE sequence = ?", (bytes(whole), sequence))


def _rewrite_chain(connection: Any) -> None:
    previous = bytes(32)
    for sequence, public, commitments in connection.execute(
        "SELECT sequence, public, commitments FROM ledger ORDER BY sequence"
    ).fetchall():
        previous = ledger._entry_hash(previous, sequence, public, commitments)
        connection.execute("UPDATE ledger SET hash = ? WHERE sequence = ?", (previous, sequence))
