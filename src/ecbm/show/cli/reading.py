"""Options of every command that reads a table, and what the table was understood to be."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.show.cli.common import say
from ecbm.show.tables import print_table

if TYPE_CHECKING:
    from ecbm.read.reading import Asked, Column, Reading

__all__ = [
    "TABLE", "DecimalOption", "DelimiterOption", "EncodingOption", "FeaturesOption", "IdColumnOption",
    "IgnoreOption", "ImageColumnOption", "ImageSizeOption", "ImagesOption", "LabelColumnOption", "MissingOption",
    "SheetOption", "SplitColumnOption", "SplitsOption", "TypeOption", "asked_on_command_line", "feature_source",
    "show_reading", "told",
]  # fmt: skip

TABLE, _FILE = "Table", "File"
# So many columns of one kind are shown as one line.
_ALIKE = 4

FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Feature array (.npy, .npz), one row a sample; or columns of the table: age,bp. May be repeated.",
        metavar="FILE|COLUMNS",
    ),
]
ImagesOption = Annotated[Path | None, typer.Option(help="Folder or zip with the pictures.")]
ImageSizeOption = Annotated[int | None, typer.Option(help="Resize pictures to this height and width.")]
TypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="COLUMN=TYPE",
        help="What a concept column is: binary, categorical, ordinal or continuous. May be repeated. Values in "
        "order: pain=ordinal:none,mild,severe; a unit: size=continuous:mm. A label column that is continuous is a "
        "number to be predicted.",
        rich_help_panel=TABLE,
    ),
]
IdColumnOption = Annotated[str, typer.Option(help="Column with the samples' ids.", rich_help_panel=TABLE)]
LabelColumnOption = Annotated[
    str, typer.Option(help="Column with the classes, or the number to predict.", rich_help_panel=TABLE)
]
SplitColumnOption = Annotated[
    str, typer.Option(help="Column with train, val and test, if there is one.", rich_help_panel=TABLE)
]
ImageColumnOption = Annotated[str, typer.Option(help="Column with paths of pictures.", rich_help_panel=TABLE)]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMNS", help="Columns that are no concepts. May be repeated.", rich_help_panel=TABLE),
]
SplitsOption = Annotated[
    str | None,
    typer.Option(
        metavar="SHARES",
        help="Shares of train, val and test without a split column; by default 0.7,0.1,0.2.",
        rich_help_panel=TABLE,
    ),
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="More texts that mean missing. May be repeated.", rich_help_panel=_FILE),
]
EncodingOption = Annotated[str | None, typer.Option(help="Encoding of a text table.", rich_help_panel=_FILE)]
DelimiterOption = Annotated[
    str | None,
    typer.Option(help="What separates columns: comma, semicolon, tab or bar.", rich_help_panel=_FILE),
]
DecimalOption = Annotated[str | None, typer.Option(help="The decimal sign, '.' or ','.", rich_help_panel=_FILE)]
SheetOption = Annotated[str | None, typer.Option(help="Which sheet of a workbook.", rich_help_panel=_FILE)]


def feature_source(texts: Sequence[str] | None) -> Path | list[str] | None:
    """A feature file, or names of columns."""
    if not texts:
        return None
    files = [path for path in map(Path, texts) if path.suffix.lower() in (".npy", ".npz") or path.is_file()]
    if not files:
        return _names(texts)
    if len(texts) > 1:
        raise InputError(f"--features: {files[0]} is a file; give it alone, or columns of the table alone")
    return files[0]


def asked_on_command_line(
    *,
    features: Sequence[str] | None,
    images: Path | None,
    image_size: int | None,
    splits: str | None,
    ignore: Sequence[str] | None,
    types: Sequence[str] | None,
    missing: Sequence[str] | None,
    **others: Any,
) -> Asked:
    """The options as :func:`ecbm.read_dataset` takes them."""
    from ecbm.read.reading import Asked
    from ecbm.read.said_types import types_from_flags

    return Asked(
        features=feature_source(features),
        images=images,
        image_size=image_size,
        splits=_shares(splits),
        ignore=_names(ignore or []),
        types=types_from_flags(types or []),
        missing=tuple(missing or ()),
        **others,
    )


def _names(texts: Sequence[str]) -> list[str]:
    """Names separated by commas; one that contains a comma stands in quotation marks."""
    return [name.strip() for row in csv.reader(texts, skipinitialspace=True) for name in row if name.strip()]


def _shares(text: str | None) -> tuple[float, ...]:
    if text is None:
        return (0.7, 0.1, 0.2)
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option('splits', text)}: give three shares, such as 0.8,0.1,0.1") from None


def told(reading: Reading) -> dict[str, Any]:
    """What was understood, for ``--json``."""
    return {
        "columns": [
            {"name": c.name, "role": c.role, "type": c.kind, "why": c.why, "otherwise": c.otherwise}
            for c in reading.columns
        ],
        "understood": list(reading.remarks),
    }


def show_reading(reading: Reading) -> None:
    """What was understood, for people: a line for each remark and each column, columns alike together."""
    say(*reading.remarks)
    rows: list[list[str]] = []
    run: list[Column] = []
    for column in (*reading.columns, None):
        if run and (column is None or _sort(column) != _sort(run[0])):
            rows += _lines(run)
            run = []
        if column is not None:
            run.append(column)
    if rows:
        headers = ["column", "taken for", "because", "otherwise"]
        print_table(
            headers,
            rows,
            title="Columns",
            drop=(),
            names={"column": 16, "taken for": 12, "because": 24, "otherwise": 24},
        )


def _lines(run: list[Column]) -> list[list[str]]:
    if len(run) >= _ALIKE:
        first, last = run[0], run[-1]
        shown = f"{first.name} … {last.name} ({len(run)} columns)"
        same = all(column.why == first.why for column in run)
        why = first.why if same else f"{_sort(first)[2]}; some missing, replaced by the training mean"
        return [[shown, first.taken_for, why, first.otherwise]]
    return [[column.name, column.taken_for, column.why, column.otherwise] for column in run]


def _sort(column: Column) -> tuple[str, str, str]:
    """Columns of one sort are shown together; for a feature it makes no difference how many cells are missing."""
    why = column.why.partition(";")[0] if column.role == "feature" else column.why
    return column.role, column.kind, why
