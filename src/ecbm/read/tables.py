"""``read_dataset``: a table of labels with a feature array or with pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ecbm.errors import unknown_name
from ecbm.read.dataset import Dataset
from ecbm.read.reading import Asked, Reading, read_and_tell

if TYPE_CHECKING:
    import pandas

__all__ = ["describe", "read_dataset"]


def read_dataset(
    path: str | Path | pandas.DataFrame | Any,
    *,
    features: str | Path | np.ndarray | Tensor | Sequence[str] | None = None,
    images: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    splits: Sequence[float] = (0.7, 0.1, 0.2),
    id_column: str = "id",
    label_column: str = "label",
    split_column: str = "split",
    image_column: str = "image",
    ignore: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] = (),
    sheet: str | None = None,
    label_type: str | None = None,
) -> Dataset:
    """Read a dataset from a table, with features among its columns or in an array, or with pictures.

    The table (a text file, Parquet, or an Excel sheet) has one row a sample: a class label, optionally a unique id,
    a split (``train``, ``val``, ``test``), the picture's path if there are pictures; every other column is a
    concept or a feature. A concept column's type follows from its cells where they leave no doubt; where they do,
    the error says what to give as ``types``. Ids and labels are text, exactly as written.

    Parameters
    ----------
    path
        The table, or a folder with ``samples.csv`` or ``samples.parquet`` and its inputs (``features.npy``,
        ``features.npz``, ``images.zip``, or pictures), such as :func:`ecbm.write_dataset` makes; or a pandas
        table, or one of Hugging Face ``datasets`` (or several by split).
    features
        ``.npy`` or ``.npz``, or an array, where row i belongs to row i of the table; or names of columns of the
        table: numbers, or words, which become one feature a word. Missing cells are replaced by training means.
    images
        Folder or zip archive; the table's image column holds paths inside it.
    image_size
        Side of a square, or (height, width), to which pictures are resized when decoded. ``None``: all
        pictures have one size already.
    splits
        Fractions (train, val, test) used when the table has no split column: a sample's split then follows
        from a hash of its id (see :func:`ecbm.read.splits.split_by_id`).
    id_column, label_column, split_column, image_column
        What these columns are called. A picture column is no concept, whether or not ``images`` is given. Without
        an id column samples are called ``row-1`` and so on; without a picture column pictures are found by id;
        without a label column the class is the folder in which a picture lies.
    ignore
        Columns that are no concepts.
    types
        From columns (or groups of columns) to ``"binary"``, ``"categorical"``, ``"ordinal"`` or ``"continuous"``.
        The values of words may follow: ``"ordinal:none,mild,severe"`` (lowest first), ``"binary:left,right"`` (0
        first); and so may a unit: ``"continuous:mm"``.
    encoding, delimiter, decimal, missing, sheet
        What the file's looks leave open: its encoding, what separates columns, the decimal sign, more texts that
        mean missing, and which sheet of a workbook.
    label_type
        ``"number"`` where the label is a number to be predicted, ``"class"`` where it names a class. A type of the
        label column says the same, and its unit: ``types={"price": "continuous:EUR"}``. A column of many different
        numbers is never taken for classes unasked.

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
    return read_and_tell(
        path,
        Asked(
            features,
            images,
            image_size,
            splits,
            id_column,
            label_column,
            split_column,
            image_column,
            ignore,
            types,
            encoding,
            delimiter,
            decimal,
            missing,
            sheet,
            label_type,
        ),
    ).data


def describe(path: str | Path | pandas.DataFrame | Any, **options: Any) -> Reading:
    """What :func:`read_dataset` makes of a table: what each column is taken for, why, and how to say otherwise.

    Parameters
    ----------
    path, options
        As for :func:`read_dataset`.

    Returns
    -------
    Reading
        ``columns`` (name, role, kind, why, otherwise), ``remarks`` and ``data``; printed, all of it in words.

    Examples
    --------
    >>> import pandas
    >>> table = pandas.DataFrame({"id": [1, 2], "label": ["x", "y"], "age": [30, 41], "crest": ["no", "yes"]})
    >>> print(describe(table, features=["age"], splits=(1, 0, 0)))
    no column 'split': splits by a hash of the id (train 100%, val 0%, test 0%); other shares: splits=
    id: id, called 'id' (another column: id_column='NAME')
    label: label, called 'label' (another column: label_column='NAME')
    age: feature: number, numbers
    crest: concept: binary, 'no' and 'yes'
    """
    known = {field.name for field in dataclasses.fields(Asked)}
    for name in options:
        if name not in known:
            raise unknown_name("option", name, known, "describe")
    return read_and_tell(path, Asked(**options))
