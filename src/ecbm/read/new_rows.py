"""New rows of a table, read as the columns of a dataset were: for predictions, without labels."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.read.columns import Habits
from ecbm.read.data_frames import NAME, frame_in, table_of_frame
from ecbm.read.dataset import Dataset
from ecbm.read.feature_columns import FeatureColumns
from ecbm.read.inputs import TensorInputs
from ecbm.read.table_files import FileOptions, read_table

__all__ = ["FEATURES", "new_rows", "read_inputs"]

FEATURES = "features.json"


def read_inputs(
    source: str | Path | Any,
    data: Dataset | str | Path,
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    missing: Collection[str] = (),
    sheet: str | None = None,
) -> TensorInputs:
    """Rows of a table as inputs, read as the feature columns of ``data`` were.

    Parameters
    ----------
    source
        A table with (at least) the feature columns of ``data``: a file, a pandas table or a Hugging Face one.
    data
        A dataset that was read with ``features=`` columns of its table, or the folder of an exported model.
    encoding, delimiter, decimal, missing, sheet
        As for :func:`ecbm.read_dataset`: what the file's looks leave open.

    Returns
    -------
    TensorInputs
        For ``model.predict`` and its kin. Missing cells are replaced by the model's training means.

    Examples
    --------
    >>> import pandas, ecbm
    >>> table = pandas.DataFrame({"label": ["x", "y"], "age": [30, 41], "sex": ["f", "m"], "crest": [0, 1]})
    >>> data = ecbm.read_dataset(table, features=["age", "sex"], types={"sex": "categorical"})
    >>> read_inputs(pandas.DataFrame({"sex": ["m"], "age": [52]}), data).tensor.tolist()
    [[52.0, 0.0, 1.0]]
    """
    said = FileOptions(encoding, delimiter, sheet, Habits.of(missing, decimal))
    return new_rows(source, data, said)[1]


def new_rows(
    source: str | Path | Any,
    data: Dataset | str | Path,
    said: FileOptions | None = None,
    id_column: str | None = None,
) -> tuple[list[str], TensorInputs]:
    """:func:`read_inputs`, with a name for every row: its id if the table has one, its number otherwise.

    Ids are in ``id_column``, which must be there, or in a column called ``id``, which need not.
    """
    columns, said = _columns(data), said or FileOptions()
    frame = frame_in(source)
    path = NAME if frame is not None else Path(source)
    if columns is None:
        raise InputError(
            f"{path}: the model's inputs are no columns of a table; give an array with one row an input, or read "
            f"the data with {option('features')} columns"
        )
    names = [column.name for column in columns.columns]
    id_name = id_column or "id"
    if frame is not None:
        table = table_of_frame(frame, habits=said.habits)
    else:
        table = read_table(path, text=[id_name], only=[*names, id_name], options=said)
    if id_column is not None:
        table.require(id_column, "id_column")
    ids = table.text(id_name, "an id") if id_name in table.names else [str(n) for n in range(1, len(table) + 1)]
    return ids, TensorInputs(columns.read(table), columns=columns)


def _columns(data: Dataset | str | Path) -> FeatureColumns | None:
    if isinstance(data, Dataset):
        return data.inputs.columns if isinstance(data.inputs, TensorInputs) else None
    path = Path(data) / FEATURES
    if not path.is_file():
        raise InputError(
            f"{data}: no {FEATURES} in this folder; give a dataset, or an exported model of one with columns"
        )
    try:
        return FeatureColumns.from_bytes(path.read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: damaged; export the model again") from None
