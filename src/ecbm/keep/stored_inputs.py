"""Inputs in a workspace: chunks of rows, each one file, so that erasing a sample rewrites its chunk alone.

Feature rows and drawn pictures are safetensors; features that were given in half precision are kept so. Picture
files keep their original bytes, in zip files whose members are numbered: the names they came with may say whose
they are.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensor_bytes

from ecbm.keep.objects import ObjectStore
from ecbm.read.digests import DIGEST_SIZE, RowDigests
from ecbm.read.feature_columns import FeatureColumns
from ecbm.read.inputs import ImageInputs, Inputs, JoinedInputs, TensorInputs

__all__ = ["keep_rows", "load_digests", "load_inputs", "store_inputs"]

Put = Callable[[bytes], str]
Chunk = dict[str, Any]

_CHUNK_BYTES = 4 << 20
_MOST_ROWS = 8192
_PICTURE_ROWS = 1024
# What the files call these kinds of numbers.
_KINDS = {"F16": np.float16, "F32": np.float32, "U8": np.uint8}


def _zip(files: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for index, content in enumerate(files):
            # A fixed date: equal pictures give an equal file.
            archive.writestr(zipfile.ZipInfo(f"{index:05d}", (1980, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def _digest_bytes(digests: Sequence[bytes]) -> bytes:
    return tensor_bytes({"digests": torch.from_numpy(RowDigests.of(digests).table.copy())})


def _row_bytes(rows: torch.Tensor) -> bytes:
    """Rows as safetensors, in half precision where that gives back the same bits: half as much to read and hash."""
    half = rows.half() if rows.dtype == torch.float32 else rows
    same = half.dtype == torch.float16 and torch.equal(half.float(), rows)
    return tensor_bytes({"x": (half if same else rows).contiguous()})


def _rows_of(content: bytes) -> NDArray[Any]:
    """The rows of :func:`_row_bytes`, where they lie: safetensors' own reader would copy them once more."""
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])["x"]
    shape = entry["shape"]
    first, end = entry["data_offsets"]
    kind = np.dtype(_KINDS[entry["dtype"]])
    if end - first != kind.itemsize * math.prod(shape):
        raise ValueError("the header of a tensor file does not fit its content")
    return np.frombuffer(content, kind, math.prod(shape), start + first).reshape(shape)


def store_inputs(inputs: Inputs, digests: Sequence[bytes], put: Put) -> list[Chunk]:
    """Put inputs into the store; returns their chunks.

    Parameters
    ----------
    inputs, digests
        The inputs and the digest of each (``Dataset.row_digests``).
    put
        Keeps a file's content and returns its name.
    """
    if isinstance(inputs, JoinedInputs):
        chunks, offset = [], 0
        for part in inputs._parts:
            chunks += store_inputs(part, digests[offset : offset + len(part)], put)
            offset += len(part)
        return chunks
    pictures = isinstance(inputs, ImageInputs)
    row_bytes = 4 * max(1, int(np.prod(inputs.shape)))
    rows = _PICTURE_ROWS if pictures else min(_MOST_ROWS, max(1, _CHUNK_BYTES // row_bytes))
    chunks = []
    for start in range(0, len(inputs), rows):
        wanted = range(start, min(start + rows, len(inputs)))
        if isinstance(inputs, ImageInputs):
            size = list(inputs.shape[1:]) if inputs.resizes else None
            chunk = {"kind": "pictures", "size": size, "data": put(_zip([inputs.encoded(row) for row in wanted]))}
        else:
            chunk = {"kind": "tensor", "data": put(_row_bytes(inputs.raw(wanted)))}
            if isinstance(inputs, TensorInputs) and inputs.columns is not None:
                chunk["columns"] = put(inputs.columns.to_bytes())
        chunks.append(chunk | {"rows": len(wanted), "digests": put(_digest_bytes(digests[start : wanted.stop]))})
    return chunks


def load_inputs(chunks: Sequence[Chunk], store: ObjectStore) -> Inputs:
    """The inputs of chunks, one after another."""
    parts: list[Inputs] = []
    for tensors, run in itertools.groupby(chunks, lambda chunk: chunk["kind"] == "tensor"):
        if tensors:
            rows = list(run)
            named = rows[0].get("columns")
            columns = None if named is None else FeatureColumns.from_bytes(store.get(named))
            parts.append(TensorInputs(_load_rows(rows, store), columns=columns))
            continue
        for chunk in run:
            size = tuple(chunk["size"]) if chunk["size"] else None
            names = [f"{index:05d}" for index in range(chunk["rows"])]
            parts.append(ImageInputs(store.path(chunk["data"]), names, size))
    whole = parts[0] if parts else TensorInputs(torch.zeros(0, 1))
    return whole if len(parts) < 2 else JoinedInputs(parts)


def _load_rows(chunks: Sequence[Chunk], store: ObjectStore) -> torch.Tensor:
    """Chunks of rows as one tensor, each read straight into its place."""
    whole: torch.Tensor | None = None
    at = 0
    for chunk in chunks:
        rows = _rows_of(store.get(chunk["data"]))
        if whole is None:
            kind = torch.uint8 if rows.dtype == np.uint8 else torch.float32
            whole = torch.empty(sum(one["rows"] for one in chunks), *rows.shape[1:], dtype=kind)
        whole.numpy()[at : at + len(rows)] = rows
        at += len(rows)
    assert whole is not None
    return whole


def load_digests(chunks: Sequence[Chunk], store: ObjectStore) -> RowDigests:
    """The digest of every input of chunks."""
    tables = [tensors_from(store.get(chunk["digests"]))["digests"].numpy() for chunk in chunks]
    return RowDigests(np.concatenate(tables) if tables else np.zeros((0, DIGEST_SIZE), np.uint8))


def keep_rows(chunks: Sequence[Chunk], rows: Sequence[int], store: ObjectStore, put: Put) -> list[Chunk]:
    """Chunks of the given rows alone (ascending); those that lose none are shared."""
    wanted = np.asarray(rows, np.int64)
    kept, offset = [], 0
    for chunk in chunks:
        mine = (wanted[(wanted >= offset) & (wanted < offset + chunk["rows"])] - offset).tolist()
        offset += chunk["rows"]
        if len(mine) == chunk["rows"]:
            kept.append(chunk)
        elif mine:
            digests = load_digests([chunk], store)
            part = load_inputs([chunk], store).subset(mine)
            kept += store_inputs(part, digests.take(mine), put)
    return kept
