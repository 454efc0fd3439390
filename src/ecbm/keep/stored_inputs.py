"""Inputs in a workspace: chunks of rows, each one file, so that erasing a sample rewrites its chunk alone.

Feature rows and drawn pictures are safetensors. Picture files keep their original bytes, in zip files whose members
are numbered: the names they came with may say whose they are.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensor_bytes

from ecbm.keep.objects import ObjectStore
from ecbm.read.inputs import ImageInputs, Inputs, JoinedInputs, TensorInputs

__all__ = ["keep_rows", "load_digests", "load_inputs", "store_inputs"]

Put = Callable[[bytes], str]
Chunk = dict[str, Any]

_CHUNK_BYTES = 4 << 20
_MOST_ROWS = 8192
_PICTURE_ROWS = 1024


def _zip(files: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for index, content in enumerate(files):
            # A fixed date: equal pictures give an equal file.
            archive.writestr(zipfile.ZipInfo(f"{index:05d}", (1980, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def _digest_bytes(digests: Sequence[bytes]) -> bytes:
    table = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
    return tensor_bytes({"digests": torch.from_numpy(table.copy())})


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
            chunk = {"kind": "tensor", "data": put(tensor_bytes({"x": inputs.raw(wanted).contiguous()}))}
        chunks.append(chunk | {"rows": len(wanted), "digests": put(_digest_bytes(digests[start : wanted.stop]))})
    return chunks


def load_inputs(chunks: Sequence[Chunk], store: ObjectStore) -> Inputs:
    """The inputs of chunks, one after another."""
    parts: list[Inputs] = []
    tensors: list[torch.Tensor] = []

    def close() -> None:
        if tensors:
            parts.append(TensorInputs(torch.cat(tensors) if len(tensors) > 1 else tensors[0]))
            tensors.clear()

    for chunk in chunks:
        if chunk["kind"] == "tensor":
            tensors.append(tensors_from(store.get(chunk["data"]))["x"])
            continue
        close()
        size = tuple(chunk["size"]) if chunk["size"] else None
        names = [f"{index:05d}" for index in range(chunk["rows"])]
        parts.append(ImageInputs(store.path(chunk["data"]), names, size))
    close()
    whole = parts[0] if parts else TensorInputs(torch.zeros(0, 1))
    return whole if len(parts) < 2 else JoinedInputs(parts)


def load_digests(chunks: Sequence[Chunk], store: ObjectStore) -> list[bytes]:
    """The digest of every input of chunks."""
    found: list[bytes] = []
    for chunk in chunks:
        table = tensors_from(store.get(chunk["digests"]))["digests"].numpy()
        found += [row.tobytes() for row in table]
    return found


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
            kept += store_inputs(part, [digests[row] for row in mine], put)
    return kept
