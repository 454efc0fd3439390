"""OAI knee radiographs as preprocessed for Koh et al. (2020): a folder a split, an ``.npz`` a picture.

Each split's folder holds ``image_0.npz``, ``image_1.npz``, ... (array ``arr_0``), ``image_codes.pkl`` (a list
of "barcode*side", in the same order) and ``non_image_data.csv`` (readings, in the same order). The data are
restricted; this reader was written to the layout that Koh's public code reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.array_files import ArrayFileInputs
from ecbm.read.columns import Table
from ecbm.read.dataset import Dataset
from ecbm.read.features import given_features
from ecbm.read.inputs import Inputs, TensorInputs
from ecbm.read.restricted_pickle import load_plain_pickle
from ecbm.read.splits import SPLITS
from ecbm.read.table_files import read_table

__all__ = ["OAI_CONCEPTS", "oai"]

OAI_CONCEPTS = [
    "xrosfm",
    "xrscfm",
    "xrjsm",
    "xrostm",
    "xrsctm",
    "xrosfl",
    "xrscfl",
    "xrjsl",
    "xrostl",
    "xrsctl",
]
_LABEL, _BARCODE, _SIDE = "xrkl", "barcdbu", "side"
_GRADES = 4  # every concept is graded 0, 1, 2 or 3
_BARCODE_DIGITS = 12


def oai(
    root: str | Path,
    *,
    concepts: Sequence[str] = OAI_CONCEPTS,
    encoding: Literal["fraction", "onehot", "atleast", "ordinal"] = "fraction",
    merge_grades: bool = True,
    features: str | Path | Tensor | NDArray[np.generic] | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Read OAI in Koh's layout.

    The class is the Kellgren-Lawrence grade ``xrkl``. Concepts are graded 0 to 3; odd decimals are cut off,
    as in Koh's code. Pictures are read when they are needed and are given three equal channels; their values
    are those of the files, already normalised.

    Parameters
    ----------
    root
        Folder with ``train``, ``val`` and ``test``; the files may lie in a subfolder of each.
    concepts
        Columns of ``non_image_data.csv`` that are concepts.
    encoding
        How a grade becomes numbers in [0, 1]. ``"fraction"``: grade / 3, one soft concept a column.
        ``"onehot"``: ``xrosfm=0`` ... ``xrosfm=3``, one group a column. ``"atleast"``: ``xrosfm::>=1`` ...
        ``xrosfm::>=3``, one group a column that keeps the order of grades. ``"ordinal"``: the same columns as one
        graded concept each, which is what they are.
    merge_grades
        Whether grades 0 and 1 are one class (four classes) or two (five).
    features
        An array, or ``.npy``/``.npz`` file, used in place of pictures; rows are those of train, val and test.
    image_size
        Side, or (height, width), to which pictures are resized; ``None`` keeps their size.

    Returns
    -------
    Dataset
        Ids are the image codes ("barcode*side").
    """
    if encoding not in ("fraction", "onehot", "atleast", "ordinal"):
        raise unknown_name("encoding", encoding, ["fraction", "onehot", "atleast", "ordinal"])
    if _LABEL in concepts or not concepts:
        raise InputError(f"concepts={list(concepts)!r}: give at least one column, and not the label {_LABEL!r}")
    ids: list[str] = []
    splits: list[str] = []
    paths: list[Path] = []
    grades, labels = [], []
    for split in SPLITS:
        folder = _split_folder(Path(root) / split)
        table = read_table(
            folder / "non_image_data.csv",
            text=[_BARCODE, _SIDE],
            only=[_BARCODE, _SIDE, _LABEL, *concepts],
        )
        codes = _codes(folder, table)
        ids += codes
        splits += [split] * len(codes)
        paths += [folder / f"image_{row}.npz" for row in range(len(codes))]
        grades.append(np.stack([_graded(table, name, _GRADES - 1) for name in concepts], 1))
        labels.append(_graded(table, _LABEL, 4, required=True))
    label = np.concatenate(labels).astype(np.int64)
    if merge_grades:
        label = np.maximum(label - 1, 0)
    inputs: Inputs
    if features is not None:
        inputs = TensorInputs(given_features(features, len(ids), str(root)))
    else:
        _check_present(paths)
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        inputs = ArrayFileInputs(paths, size)
    names, values = _encode(concepts, np.concatenate(grades), "atleast" if encoding == "ordinal" else encoding)
    class_names = ["KLG 0-1", "KLG 2", "KLG 3", "KLG 4"] if merge_grades else [f"KLG {g}" for g in range(5)]
    types = dict.fromkeys(concepts, "ordinal") if encoding == "ordinal" else None
    return Dataset(
        ids, inputs, torch.from_numpy(values), torch.from_numpy(label), names, class_names, splits, types
    )


def _split_folder(base: Path) -> Path:
    """The folder with the files of a split: the split's own, or the only one below it that has them."""
    found = [base] if (base / "non_image_data.csv").is_file() else []
    found = found or sorted(path.parent for path in base.glob("*/non_image_data.csv"))
    if len(found) != 1:
        problem = "several folders with" if found else "no"
        raise InputError(f"{base}: {problem} non_image_data.csv; give the folder that holds train, val and test")
    return found[0]


def _codes(folder: Path, table: Table) -> list[str]:
    """The image codes, checked against the table line by line as Koh's code does."""
    path = folder / "image_codes.pkl"
    if not path.is_file():
        raise InputError(f"{path}: no such file; it comes with the preprocessed pictures")
    loaded = load_plain_pickle(path)
    codes = loaded.tolist() if isinstance(loaded, np.ndarray) else loaded
    if not isinstance(codes, (list, tuple)) or not all(isinstance(code, str) for code in codes):
        raise InputError(f"{path}: not a list of image codes ('barcode*side')")
    if len(codes) != len(table):
        raise InputError(f"{path}: {len(codes)} image codes but {table.path} has {len(table)} rows")
    table.require(_BARCODE, "the OAI column")
    table.require(_SIDE, "the OAI column")
    barcodes, sides = table.text(_BARCODE, "a barcode"), table.text(_SIDE, "a side")
    for row, code in enumerate(codes):
        # The table's barcodes were numbers once and have lost a leading zero.
        expected = f"{barcodes[row].zfill(_BARCODE_DIGITS)}*{sides[row]}"
        if code != expected:
            raise table.error(row, _BARCODE, f"{expected!r} but image {row} of {path.name} is {code!r}")
    return [str(code) for code in codes]


def _graded(table: Table, column: str, highest: int, *, required: bool = False) -> NDArray[np.float64]:
    if column not in table.names:
        raise unknown_name("column", column, table.names, where=str(table.path))
    values = np.trunc(table.numbers(column))
    missing = np.isnan(values)
    wrong = missing & required | ~missing & ~((values >= 0) & (values <= highest))
    if wrong.any():
        row = int(wrong.argmax())
        problem = "empty" if missing[row] else f"grade {values[row]:g} is not in 0..{highest}"
        raise table.error(row, column, f"{problem}; repair the row or leave it out")
    return values


def _check_present(paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such picture; unpack the archive again, or pass features=")


def _encode(
    names: Sequence[str], grades: NDArray[np.float64], encoding: str
) -> tuple[list[str], NDArray[np.float32]]:
    if encoding == "fraction":
        return list(names), (grades / (_GRADES - 1)).astype(np.float32)
    steps = np.arange(_GRADES) if encoding == "onehot" else np.arange(1, _GRADES)
    each = grades[:, :, None]
    holds = each == steps if encoding == "onehot" else each >= steps
    values = np.where(np.isnan(each), np.nan, holds).astype(np.float32)
    between = "=" if encoding == "onehot" else "::>="
    return [f"{name}{between}{step}" for name in names for step in steps], values.reshape(len(grades), -1)
