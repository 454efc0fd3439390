"""Commands that need no workspace: ``demo`` and ``describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecbm.show.cli import reading
from ecbm.show.cli.common import JsonOption, print_json, say
from ecbm.show.cli.describing import show_overview
from ecbm.terminal import new_console

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Look")(demo)
    app.command(rich_help_panel="Look")(describe)


def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the drawings and of training.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Repair a model that learnt careless labels, compare with retraining, and write a page (about two minutes)."""
    from ecbm.show.demo import run_demo

    result = run_demo(folder, new_console(quiet=as_json), seed)
    if as_json:
        print_json(result)


def describe(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="CSV, Excel, Parquet, or a folder written by ecbm.")],
    features: reading.FeaturesOption = None,
    images: reading.ImagesOption = None,
    image_size: reading.ImageSizeOption = None,
    types: reading.TypeOption = None,
    id_column: reading.IdColumnOption = "id",
    label_column: reading.LabelColumnOption = "label",
    split_column: reading.SplitColumnOption = "split",
    image_column: reading.ImageColumnOption = "image",
    ignore: reading.IgnoreOption = None,
    splits: reading.SplitsOption = None,
    missing: reading.MissingOption = None,
    encoding: reading.EncodingOption = None,
    delimiter: reading.DelimiterOption = None,
    decimal: reading.DecimalOption = None,
    sheet: reading.SheetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a dataset, check all of it (pictures too), and show what it holds.

    What each column was taken for and why, how many samples each class and split has, how often each concept is
    present and missing and in which class most, and which concepts go together.
    """
    from ecbm.read.overview import overview
    from ecbm.read.reading import read_and_tell

    asked = reading.asked_on_command_line(
        features=features, images=images, image_size=image_size, types=types, id_column=id_column,
        label_column=label_column, split_column=split_column, image_column=image_column, ignore=ignore,
        splits=splits, missing=missing, encoding=encoding, delimiter=delimiter, decimal=decimal, sheet=sheet,
    )  # fmt: skip
    found = read_and_tell(path, asked)
    result = overview(found.data)
    if as_json:
        print_json(result | reading.told(found))
        return
    say(repr(found.data), f"fingerprint {found.data.fingerprint}")
    reading.show_reading(found)
    show_overview(result)
