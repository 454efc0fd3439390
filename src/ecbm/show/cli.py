"""The command line. Bad input ends with one clear line on standard error and exit status 2."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from ecbm._version import __version__
from ecbm.errors import EcbmError

__all__ = ["main"]

app = typer.Typer(
    help="Editable concept bottleneck models: train, look, correct.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _plain(value: Any) -> Any:
    """JSON has no NaN: figures that are not defined become null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output."""
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False) + "\n")


def _version(show: bool) -> None:
    if show:
        print(f"ecbm {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the drawings and of training.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train on drawn birds, correct a concept by hand, and write a page with the pictures (about a minute)."""
    from ecbm.show.demo import run_demo

    result = run_demo(folder, Console(quiet=as_json), seed)
    if as_json:
        print_json(result)


@app.command()
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


def main() -> None:
    """Entry point of the ``ecbm`` command."""
    # Not typer's own handling of errors: it draws a box of several lines around a wrong option.
    try:
        status = app(standalone_mode=False, prog_name="ecbm")
    except EcbmError as error:
        _stop(str(error))
    except BrokenPipeError:
        # The reader of our output has left (``| head``); its closing must not be reported a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _stop(f"{error.filename or 'the system'}: {error.strerror or error}")
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer raises for a wrong option or command
            raise
        _stop(f"{error.format_message().rstrip('.')}; see 'ecbm --help'")
    sys.exit(status if isinstance(status, int) else 0)


def _stop(message: str) -> NoReturn:
    print(f"ecbm: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
