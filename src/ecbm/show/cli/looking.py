"""Commands that need no workspace: ``demo`` and ``describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ecbm.show.cli.common import JsonOption, print_json

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

    result = run_demo(folder, Console(quiet=as_json), seed)
    if as_json:
        print_json(result)


def describe(
    path: Annotated[Path, typer.Argument(help="CSV, Parquet, or a folder written by ecbm.")],
    features: Annotated[Path | None, typer.Option(help="Feature array (.npy, .npz), one row a sample.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder or zip with the pictures.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize pictures to this height and width.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a dataset, check all of it (pictures too), and show what it holds."""
    from ecbm.read.tables import read_dataset

    size = (image_size, image_size) if image_size else None
    data = read_dataset(path, features=features, images=images, image_size=size)
    known = ~data.concepts.isnan()
    shares = data.concepts.nanmean(0).tolist()
    missing = (1 - known.double().mean(0)).tolist()
    concepts = {
        name: {"mean": share, "missing": gone}
        for name, share, gone in zip(data.concept_names, shares, missing, strict=True)
    }
    result: dict[str, Any] = {
        "samples": len(data),
        "splits": data.split_sizes,
        "input_shape": list(data.inputs.shape),
        "classes": {name: int((data.labels == index).sum()) for index, name in enumerate(data.class_names)},
        "groups": {group: list(members) for group, members in data.groups.items()},
        "concepts": concepts,
        "fingerprint": data.fingerprint,
    }
    if as_json:
        print_json(result)
        return
    console = Console()
    console.print(repr(data))
    console.print(f"fingerprint {data.fingerprint}")
    table = Table("concept", "mean", "missing", title="Concepts", title_justify="left")
    for name, row in concepts.items():
        table.add_row(name, f"{row['mean']:.3f}", f"{row['missing']:.1%}")
    console.print(table)
