"""``write_dataset``: a dataset as a folder that reads back equal to the bit."""

from __future__ import annotations

import io
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from PIL import Image

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import ImageInputs, Inputs, TensorInputs
from ecbm.read.sidecar import Sidecar, write_sidecar

__all__ = ["write_dataset"]

_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def write_dataset(data: Dataset, folder: str | Path, *, table: Literal["csv", "parquet"] = "csv") -> Path:
    """Write a dataset to a new folder, so that ``read_dataset(folder) == data``.

    The folder holds ``samples.csv`` or ``samples.parquet``, the inputs (``features.npy``, or ``images/`` with
    the original files, or PNG where pictures were resized or drawn), and ``dataset.json`` with what a table
    cannot say: the order of the classes, those that occur in no row, types of concepts that are not binary, and
    the dataset's fingerprint.

    Nothing appears under the folder's name until all of it is written.

    Parameters
    ----------
    data
        What to write.
    folder
        Where; must not exist, or be empty.
    table
        Kind of table.

    Returns
    -------
    pathlib.Path
        The folder.

    Examples
    --------
    >>> import tempfile, torch
    >>> from ecbm.read.tables import read_dataset
    >>> concepts = torch.tensor([[0.1], [torch.nan]])
    >>> labels = torch.tensor([0, 1])
    >>> data = Dataset(["a", "b"], torch.zeros(2, 3), concepts, labels, ["crest"], ["wren", "owl"])
    >>> read_dataset(write_dataset(data, tempfile.mkdtemp() + "/copy")) == data
    True
    """
    folder = Path(folder).resolve()
    if table not in ("csv", "parquet"):
        raise InputError(f"table={table!r}: give 'csv' or 'parquet'")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder}: exists already and is not empty; give a new folder")
    if not len(data) or not data.concept_names:
        raise InputError(f"{folder}: a dataset without samples or without concepts cannot be written")
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror}); give another folder") from None
    try:
        kind, pictures = _write_inputs(data, draft)
        columns = _column_names(data)
        _write_table(data, draft, table, columns, pictures)
        size = (data.inputs.shape[1], data.inputs.shape[2]) if kind == "images" else None
        write_sidecar(
            draft,
            Sidecar(
                kind,
                data.class_names,
                data.concept_names,
                columns,
                data.fingerprint,
                size,
                data.layout.declared,
                data.layout.units,
                data.inputs.columns if isinstance(data.inputs, TensorInputs) else None,
                data.target,
                data.target_unit,
            ),
        )
        if folder.is_dir():
            folder.rmdir()  # empty, as checked above; some systems do not rename onto a folder
        os.replace(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return folder


def _write_inputs(data: Dataset, draft: Path) -> tuple[str, list[str] | None]:
    """Write the inputs; returns their kind and, for pictures, their paths."""
    inputs = data.inputs
    if isinstance(inputs, ImageInputs) and not inputs.resizes:
        suffixes = [PurePosixPath(name).suffix.lower() for name in inputs.names]
        files = (inputs.encoded(row) for row in range(len(inputs)))
        return "images", _write_pictures(draft, files, suffixes)
    stored = inputs.raw(range(min(1, len(inputs))))
    if stored.dtype != torch.uint8:
        _write_array(draft / "features.npy", inputs)
        return "features", None
    if len(inputs.shape) == 3 and inputs.shape[0] == 3 and min(inputs.shape) > 0:
        return "images", _write_pictures(draft, _as_png(data), [".png"] * len(inputs))
    _write_array(draft / "features.npy", inputs)
    return "pixels", None


def _write_array(path: Path, inputs: Inputs, chunk: int = 256) -> None:
    """Write piece by piece: inputs that are read from files when needed may not fit in memory together."""
    kind = inputs.raw([0]).numpy().dtype
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (len(inputs), *inputs.shape)})
        for start in range(0, len(inputs), chunk):
            block = inputs.raw(range(start, min(start + chunk, len(inputs)))).numpy()
            file.write(np.ascontiguousarray(block).tobytes())


def _as_png(data: Dataset) -> Iterator[bytes]:
    for row in range(len(data)):
        pixels = data.inputs.raw([row])[0].permute(1, 2, 0).contiguous().numpy()
        buffer = io.BytesIO()
        Image.fromarray(pixels, "RGB").save(buffer, "PNG")
        yield buffer.getvalue()


def _write_pictures(draft: Path, files: Iterator[bytes], suffixes: Sequence[str]) -> list[str]:
    # Numbered, because names that differ for one file system may be equal, or not allowed, for another.
    (draft / "images").mkdir()
    width = max(4, len(str(len(suffixes))))
    names = [f"images/{row:0{width}d}{suffix}" for row, suffix in enumerate(suffixes, 1)]
    for name, content in zip(names, files, strict=True):
        (draft / name).write_bytes(content)
    return names


def _column_names(data: Dataset) -> dict[str, str]:
    """Names for the columns that are no concepts; a concept of the same name keeps it."""
    columns = {}
    for name in ("id", "split", "label", "image"):
        free = name
        while free in data.concept_names:
            free += "_"
        columns[name] = free
    return columns


def _write_table(
    data: Dataset, draft: Path, kind: str, columns: dict[str, str], pictures: Sequence[str] | None
) -> None:
    text = {
        columns["id"]: list(data.ids),
        columns["split"]: list(data.splits),
        columns["label"]: [str(label) for label in data.said_labels()],
    }
    if pictures is not None:
        text[columns["image"]] = list(pictures)
    concepts = data.concepts.numpy()
    if kind == "parquet":
        arrays = {name: pa.array(cells, pa.string()) for name, cells in text.items()}
        for position, name in enumerate(data.concept_names):
            arrays[name] = pa.array(concepts[:, position], pa.float32(), from_pandas=True)
        pa.parquet.write_table(pa.table(arrays), draft / "samples.parquet")
        return
    cells = [[_quoted(cell) for cell in column] for column in text.values()]
    cells += [_number_cells(concepts[:, position]) for position in range(concepts.shape[1])]
    with (draft / "samples.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(_quoted(name) for name in [*text, *data.concept_names]) + "\n")
        file.writelines(",".join(row) + "\n" for row in zip(*cells, strict=True))


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _NEEDS_QUOTES.search(cell) else cell


def _number_cells(column: np.ndarray) -> list[str]:
    """Shortest text that reads back as the same float32; empty for missing."""
    values, codes = np.unique(column, return_inverse=True)
    texts = ["" if np.isnan(value) else f"{value:.0f}" if value in (0, 1) else str(value) for value in values]
    return [texts[code] for code in codes.tolist()]
