"""A dataset as plain arrays, which tables and deltas are made of and applied to."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray

from ecbm.read.arrow_memory import arrow_stream
from ecbm.read.dataset import Dataset
from ecbm.read.digests import RowDigests
from ecbm.read.inputs import Inputs

__all__ = ["StoredTable", "read_table", "table_bytes"]

T = TypeVar("T", bound=np.generic)


@dataclasses.dataclass
class StoredTable:
    """A dataset, with the place of every row among all rows ever kept (``origin``)."""

    ids: list[str]
    splits: list[str]
    labels: NDArray[np.int64] | NDArray[np.float64]
    concepts: NDArray[np.float32]
    concept_names: list[str]
    class_names: list[str]
    origin: NDArray[np.int64]
    concept_types: dict[str, str] = dataclasses.field(default_factory=dict)
    units: dict[str, str] = dataclasses.field(default_factory=dict)
    target: str = "class"
    target_unit: str = ""

    @classmethod
    def of(cls, data: Dataset) -> StoredTable:
        return cls(
            list(data.ids),
            list(data.splits),
            data.labels.numpy(),
            data.concepts.numpy(),
            list(data.concept_names),
            list(data.class_names),
            np.arange(len(data)),
            data.layout.declared,
            data.layout.units,
            data.target,
            data.target_unit,
        )

    def rows(self, wanted: NDArray[np.int64]) -> StoredTable:
        """Some rows, in that order."""
        places = wanted.tolist()
        return dataclasses.replace(
            self,
            ids=[self.ids[row] for row in places],
            splits=[self.splits[row] for row in places],
            labels=self.labels[wanted],
            concepts=self.concepts[wanted],
            origin=self.origin[wanted],
        )

    def dataset(self, inputs: Inputs, digests: RowDigests) -> Dataset:
        """The dataset, given the inputs and input digests of all rows ever kept."""
        whole = len(self.origin) == len(inputs) and bool((self.origin == np.arange(len(inputs))).all())
        data = Dataset(
            self.ids,
            inputs if whole else inputs.subset(self.origin.tolist()),
            # Copied into memory of torch's own: bits of results may depend on how arrays are aligned.
            torch.from_numpy(np.ascontiguousarray(self.concepts)).clone(),
            torch.from_numpy(np.ascontiguousarray(self.labels)).clone(),
            self.concept_names,
            self.class_names,
            self.splits,
            self.concept_types,
            self.units,
            self.target,
            self.target_unit,
        )
        # Known already: without them the fingerprint would have to decode every picture.
        data.__dict__["row_digests"] = digests if whole else digests.take(self.origin)
        return data


# Columns are made from and read as plain memory: Arrow's own conversions import pandas, which takes longer than all
# the rest.


def _number_column(numbers: NDArray[Any], kind: Any) -> Any:
    content = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, content])


def _text_column(texts: Sequence[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    content = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), content)


def _numbers(column: Any, kind: type[T]) -> NDArray[T]:
    parts = [
        np.frombuffer(part.buffers()[1], kind)[part.offset : part.offset + len(part)]
        for part in column.chunks
        if len(part)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def _labels(column: Any, target: str) -> NDArray[np.int64] | NDArray[np.float64]:
    return _numbers(column, np.float64) if target == "number" else _numbers(column, np.int64)


def _texts(column: Any) -> list[str]:
    found: list[str] = []
    for part in column.chunks:
        if not hasattr(part, "indices"):
            found += part.to_pylist()
            continue
        names = part.dictionary.to_pylist()
        found += [names[number] for number in part.indices.to_pylist()]
    return found


def table_bytes(table: StoredTable) -> bytes:
    """The table as Parquet. Columns are numbered: a concept may be called like another column."""
    arrays: dict[str, Any] = {
        "id": _text_column(table.ids),
        "split": _text_column(table.splits).dictionary_encode(),
        "label": _number_column(table.labels, pa.float64() if table.target == "number" else pa.int64()),
    }
    for column in range(len(table.concept_names)):
        # Bits, not numbers: Parquet's missing values would not give back the same NaN.
        bits = np.ascontiguousarray(table.concepts[:, column]).view(np.uint32)
        arrays[f"concept{column}"] = _number_column(bits, pa.uint32())
    said: dict[str, Any] = {"concepts": table.concept_names, "classes": table.class_names}
    # Only where there are any: tables of binary concepts keep their bytes.
    said |= {"types": table.concept_types} if table.concept_types else {}
    said |= {"units": table.units} if table.units else {}
    said |= {"target": table.target, "target_unit": table.target_unit} if table.target != "class" else {}
    names = json.dumps(said)
    buffer = io.BytesIO()
    pa.parquet.write_table(pa.table(arrays).replace_schema_metadata({"names": names}), buffer, compression="zstd")
    return buffer.getvalue()


def read_table(content: bytes) -> StoredTable:
    """Inverse of :func:`table_bytes`."""
    table = pa.parquet.ParquetFile(arrow_stream(content)).read(use_threads=False)
    names = json.loads(table.schema.metadata[b"names"])
    columns = [_numbers(table.column(f"concept{column}"), np.uint32) for column in range(len(names["concepts"]))]
    bits = np.stack(columns, axis=1) if columns else np.zeros((len(table), 0), np.uint32)
    return StoredTable(
        _texts(table.column("id")),
        _texts(table.column("split")),
        _labels(table.column("label"), names.get("target", "class")),
        np.ascontiguousarray(bits).view(np.float32),
        list(names["concepts"]),
        list(names["classes"]),
        np.arange(len(table)),
        names.get("types", {}),
        names.get("units", {}),
        names.get("target", "class"),
        names.get("target_unit", ""),
    )
