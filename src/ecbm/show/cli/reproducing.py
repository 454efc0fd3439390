"""``reproduce``: the paper's experiments with the controls it lacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import Interrupted, JsonOption, print_json, say
from ecbm.show.reproduce.settings import NAMES, check_name, read_settings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Look")(reproduce)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"{', '.join(NAMES)}, or all.", show_default=False)
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="birds or breast_cancer (built in), a dataset folder or table of samples, or the folder of CUB, "
            "CelebA or OAI in its official layout."
        ),
    ] = "birds",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Repetitions, each with an edit and a seed of its own.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The short form: less data, fewer seeds.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results; results/reproduce/DATA by default.", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="What there is, what it needs, how long it takes.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only every n-th repetition; the last one writes.", show_default=False),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Of the recipe; by default that of the settings.", show_default=False)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of a deep backbone.", show_default=False)] = None,
    image_size: Annotated[
        int | None, typer.Option(min=8, help="Side to which pictures are resized.", show_default=False)
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="A settings file of your own (TOML).", show_default=False)
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of one thread each; by default 2 at most.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run one of the paper's experiments, or all, and write tables, figures and a report.

    Everything that is finished is kept: an interrupted run goes on where it stopped. Under torchrun, or with
    --shard, repetitions are spread over processes or machines that share the folder.
    """
    tables = read_settings(settings)
    if show:
        _show(tables, as_json)
        return
    if name is None:
        raise InputError(f"give an experiment ({', '.join(NAMES)}), all, or --list")
    check_name(name)
    from ecbm.show.reproduce import run

    folder = out or run.default_folder(data, quick)
    try:
        result = run.reproduce(
            name, data, seeds=seeds, quick=quick, out=folder, backbone=backbone, epochs=epochs,
            image_size=image_size, settings=settings, shard=shard,
            processes=processes or min(2, os.cpu_count() or 1),
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; what is finished is kept in {folder}, the same command goes on") from None
    if as_json:
        print_json(result)
        return
    for experiment, found in result["findings"].items():
        say(*(found["sentences"] if name != "all" else [f"{experiment}: {found['summary']}"]))
    for missing, number in result["missing"].items():
        say(f"{missing}: {number} pieces of other shards are missing; the last to finish writes the tables")
    if "report" in result:
        say(f"written to {folder}; the report is {result['report']}")


def _show(tables: dict[str, Any], as_json: bool) -> None:
    """What there is, without waiting for torch."""
    found = [
        {key: tables[name].get(key, "") for key in ("title", "what", "needs", "time")} | {"name": name}
        for name in NAMES
    ]
    if as_json:
        print_json({"experiments": found})
        return
    for one in found:
        say(f"{one['name']}: {one['what']}", f"    needs {one['needs']}; {one['time']}")
    say(f"all: every one of them, and one report; {tables['all']['time']}")
