"""A dataset as plain arrays, which tables and deltas are made of and applied to."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray

from ecbm.read.arrow_memory import arrow_stream
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs

__all__ = ["Frame", "read_table", "table_bytes"]


@dataclasses.dataclass
class Frame:
    """A dataset, with the place of every row among all rows ever kept (``origin``)."""

    ids: list[str]
    splits: list[str]
    labels: NDArray[np.int64]
    concepts: NDArray[np.float32]
    concept_names: list[str]
    class_names: list[str]
    origin: NDArray[np.int64]

    @classmethod
    def of(cls, data: Dataset) -> Frame:
        return cls(
            list(data.ids),
            list(data.splits),
            data.labels.numpy(),
            data.concepts.numpy(),
            list(data.concept_names),
            list(data.class_names),
            np.arange(len(data)),
        )

    def rows(self, wanted: NDArray[np.int64]) -> Frame:
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

    def dataset(self, inputs: Inputs, digests: list[bytes]) -> Dataset:
        """The dataset, given the inputs and input digests of all rows ever kept."""
        whole = len(self.origin) == len(inputs) and bool((self.origin == np.arange(len(inputs))).all())
        rows = self.origin.tolist()
        data = Dataset(
            self.ids,
            inputs if whole else inputs.subset(rows),
            torch.from_numpy(np.ascontiguousarray(self.concepts)),
            torch.from_numpy(np.ascontiguousarray(self.labels)),
            self.concept_names,
            self.class_names,
            self.splits,
        )
        # Known already: without them the fingerprint would have to decode every picture.
        data.__dict__["row_digests"] = tuple(digests[row] for row in rows)
        return data


def table_bytes(frame: Frame) -> bytes:
    """The frame as Parquet. Columns are numbered: a concept may be called like another column."""
    arrays: dict[str, Any] = {
        "id": pa.array(frame.ids, pa.string()),
        "split": pa.array(frame.splits, pa.string()).dictionary_encode(),
        "label": pa.array(frame.labels, pa.int64()),
    }
    for column in range(len(frame.concept_names)):
        # Bits, not numbers: Parquet's missing values would not give back the same NaN.
        bits = np.ascontiguousarray(frame.concepts[:, column]).view(np.uint32)
        arrays[f"concept{column}"] = pa.array(bits, pa.uint32())
    names = json.dumps({"concepts": frame.concept_names, "classes": frame.class_names})
    buffer = io.BytesIO()
    pa.parquet.write_table(pa.table(arrays).replace_schema_metadata({"names": names}), buffer, compression="zstd")
    return buffer.getvalue()


def read_table(content: bytes) -> Frame:
    """Inverse of :func:`table_bytes`."""
    table = pa.parquet.ParquetFile(arrow_stream(content)).read(use_threads=False)
    names = json.loads(table.schema.metadata[b"names"])
    columns = [table.column(f"concept{column}").to_numpy() for column in range(len(names["concepts"]))]
    bits = np.stack(columns, axis=1) if columns else np.zeros((len(table), 0), np.uint32)
    return Frame(
        table.column("id").to_pylist(),
        table.column("split").to_pylist(),
        table.column("label").to_numpy().astype(np.int64),
        np.ascontiguousarray(bits).view(np.float32),
        list(names["concepts"]),
        list(names["classes"]),
        np.arange(len(table)),
    )
