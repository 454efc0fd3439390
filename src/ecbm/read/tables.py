"""``read_dataset``: a table of labels with a feature array or with pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.columns import Table
from ecbm.read.data_frames import is_frame, table_of_frame
from ecbm.read.dataset import Dataset
from ecbm.read.features import given_features
from ecbm.read.inputs import ImageInputs, Inputs, TensorInputs
from ecbm.read.sidecar import Sidecar, find_table, read_sidecar
from ecbm.read.splits import SPLITS, split_by_id
from ecbm.read.table_files import read_table

if TYPE_CHECKING:
    import pandas

__all__ = ["read_dataset"]


def read_dataset(
    path: str | Path | pandas.DataFrame,
    *,
    features: str | Path | np.ndarray | Tensor | None = None,
    images: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    splits: Sequence[float] = (0.7, 0.1, 0.2),
    id_column: str = "id",
    label_column: str = "label",
    split_column: str = "split",
    image_column: str = "image",
    ignore: Sequence[str] = (),
) -> Dataset:
    """Read a dataset from a table and a feature array or pictures.

    The table (CSV in UTF-8, or Parquet) has one row a sample: a unique id, a class label, optionally a split
    (``train``, ``val``, ``test``), the picture's path if there are pictures; every other column is a concept,
    with cells 0, 1, a soft label between, or empty (missing). Ids and labels are text, exactly as written.

    Parameters
    ----------
    path
        The table, or a folder with ``samples.csv`` or ``samples.parquet`` and its inputs (``features.npy``,
        ``features.npz``, ``images.zip``, or pictures), such as :func:`ecbm.write_dataset` makes; or a pandas table.
    features
        ``.npy`` or ``.npz``, or an array; row i belongs to row i of the table.
    images
        Folder or zip archive; the table's image column holds paths inside it.
    image_size
        Side of a square, or (height, width), to which pictures are resized when decoded. ``None``: all
        pictures have one size already.
    splits
        Fractions (train, val, test) used when the table has no split column: a sample's split then follows
        from a hash of its id (see :func:`ecbm.read.splits.split_by_id`).
    id_column, label_column, split_column, image_column
        What these columns are called. A picture column is no concept, whether or not ``images`` is given.
    ignore
        Columns that are no concepts.

    Returns
    -------
    Dataset
        Classes are ordered by name, by number if all labels are integers.

    Raises
    ------
    InputError
        One line naming file, line and column, and what to do.

    Examples
    --------
    >>> import numpy, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "birds.csv").write_text("id,label,striped\\n007,wren,1\\n008,finch,\\n")
    >>> numpy.save(folder / "x.npy", numpy.zeros((2, 3)))
    >>> data = read_dataset(folder / "birds.csv", features=folder / "x.npy")
    >>> data.ids, data.class_names, data.concepts.tolist()
    (('007', '008'), ('finch', 'wren'), [[1.0], [nan]])
    """
    frame: Any = path if is_frame(path) else None
    path = _path_of(path)
    columns = {"id": id_column, "label": label_column, "split": split_column, "image": image_column}
    sidecar = None
    if frame is None and path.is_dir():
        sidecar = read_sidecar(path)
        if sidecar is not None:
            columns = sidecar.columns
        if features is None and images is None:
            features, images = _inputs_beside(path)
        path = find_table(path)
    if features is not None and images is not None:
        raise InputError("both features= and images= were given; a dataset has one kind of input")
    if features is None and images is None:
        if frame is None and not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path of the table")
        raise InputError(f"{path}: no inputs; pass features= (.npy, .npz) or images= (folder or zip)")

    if frame is not None:
        table = table_of_frame(frame, ignore)
    else:
        table = read_table(path, text=columns.values(), ignore=ignore)
    table.require(columns["id"], "id_column")
    table.require(columns["label"], "label_column")
    ids = table.text(columns["id"], "an id")
    _check_unique(table, columns["id"], ids)
    class_names, labels = _classes(table, columns["label"], sidecar)
    split_names = _splits(table, columns["split"], ids, splits)
    concept_names = [name for name in table.names if name not in columns.values()]
    if not concept_names:
        raise InputError(f"{path}: no concept column; add one column a concept beside {', '.join(table.names)}")
    types = {} if sidecar is None else sidecar.concept_types
    concepts = torch.from_numpy(table.fractions(concept_names, [n for n, t in types.items() if t == "continuous"]))
    inputs: Inputs
    if features is not None:
        pictures = None if sidecar is None else sidecar.inputs == "pixels"
        inputs = TensorInputs(given_features(features, len(table), str(path), pictures))
    else:
        table.require(columns["image"], "image_column")
        names = table.text(columns["image"], "a picture")
        inputs = ImageInputs(
            Path(images or ""),
            names,
            (image_size, image_size) if isinstance(image_size, int) else image_size,
            rows=table.places,
            table=f"{path}, {table.unit}",
        )
    units = None if sidecar is None else sidecar.units
    return Dataset(ids, inputs, concepts, labels, concept_names, class_names, split_names, types, units)


def _path_of(given: Any) -> Path:
    """The path of a table; a pandas table goes by its name in messages."""
    if is_frame(given):
        return Path("DataFrame")
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise InputError(
        f"read_dataset: expected the path of a table or folder, or a pandas DataFrame, got {type(given).__name__}"
    )


def _inputs_beside(folder: Path) -> tuple[Path | None, Path | None]:
    """The inputs that lie in the folder of a table: (features, images)."""
    for name in ("features.npy", "features.npz"):
        if (folder / name).is_file():
            return folder / name, None
    if (folder / "images.zip").is_file():
        return None, folder / "images.zip"
    return None, folder


def _check_unique(table: Table, column: str, ids: Sequence[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in seen:
            first = table.places[seen[name]]
            raise table.error(
                row, column, f"duplicate id {name!r}, first on {table.unit} {first}; ids must be unique"
            )
        seen[name] = row


def _classes(table: Table, column: str, sidecar: Sidecar | None) -> tuple[list[str], Tensor]:
    cells = table.text(column, "a class label")
    names = list(sidecar.class_names) if sidecar is not None else _ordered(set(cells))
    index = {name: position for position, name in enumerate(names)}
    unknown = next((row for row, name in enumerate(cells) if name not in index), None)
    if unknown is not None:
        where = f"{table.path}, {table.unit} {table.places[unknown]}, column {column!r}"
        raise unknown_name("class", cells[unknown], names, where=where)
    return names, torch.from_numpy(np.array([index[name] for name in cells], np.int64))


def _ordered(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def _splits(table: Table, column: str, ids: Sequence[str], fractions: Sequence[float]) -> list[str]:
    if column not in table.names:
        return split_by_id(ids, fractions)
    cells = table.text(column, f"a split ({', '.join(SPLITS)})")
    if not set(cells) <= set(SPLITS):
        row = next(row for row, name in enumerate(cells) if name not in SPLITS)
        where = f"{table.path}, {table.unit} {table.places[row]}, column {column!r}"
        raise unknown_name("split", cells[row], SPLITS, where=where)
    return cells
