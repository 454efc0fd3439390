"""Commands that need no workspace: ``demo`` and ``describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    path: Annotated[Path, typer.Argument(metavar="PATH", help="CSV, Parquet, or a folder written by ecbm.")],
    features: Annotated[Path | None, typer.Option(help="Feature array (.npy, .npz), one row a sample.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder or zip with the pictures.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize pictures to this height and width.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a dataset, check all of it (pictures too), and show what it holds.

    How many samples each class and split has, how often each concept is present and missing and in which class
    most, and which concepts go together.
    """
    from ecbm.read.overview import overview
    from ecbm.read.tables import read_dataset

    size = (image_size, image_size) if image_size else None
    data = read_dataset(path, features=features, images=images, image_size=size)
    result = overview(data)
    if as_json:
        print_json(result)
        return
    say(repr(data), f"fingerprint {data.fingerprint}")
    show_overview(result)
