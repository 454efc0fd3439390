"""New rows of a table, read as the columns of a dataset were: for predictions, without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.read.data_frames import NAME, frame_in, table_of_frame
from ecbm.read.dataset import Dataset
from ecbm.read.feature_columns import FeatureColumns
from ecbm.read.inputs import TensorInputs
from ecbm.read.table_files import FileOptions, read_table

__all__ = ["FEATURES", "new_rows", "read_inputs"]

FEATURES = "features.json"


def read_inputs(source: str | Path | Any, data: Dataset | str | Path) -> TensorInputs:
    """Rows of a table as inputs, read as the feature columns of ``data`` were.

    Parameters
    ----------
    source
        A table with (at least) the feature columns of ``data``: a file, a pandas table or a Hugging Face one.
    data
        A dataset that was read with ``features=`` columns of its table, or the folder of an exported model.

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
    return new_rows(source, data)[1]


def new_rows(source: str | Path | Any, data: Dataset | str | Path) -> tuple[list[str], TensorInputs]:
    """:func:`read_inputs`, with a name for every row: its id if the table has one, its number otherwise."""
    columns = _columns(data)
    frame = frame_in(source)
    path = NAME if frame is not None else Path(source)
    if columns is None:
        raise InputError(
            f"{path}: the model's inputs are no columns of a table; give an array with one row an input, or read "
            f"the data with {option('features')} columns"
        )
    names = [column.name for column in columns.columns]
    if frame is not None:
        table = table_of_frame(frame)
    else:
        table = read_table(path, text=["id"], only=[*names, "id"], options=FileOptions())
    ids = table.text("id", "an id") if "id" in table.names else [str(n) for n in range(1, len(table) + 1)]
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
