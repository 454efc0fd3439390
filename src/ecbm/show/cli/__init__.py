"""The command line. Bad input ends with one clear line on standard error and exit status 2.

Each file here is a family of commands. They import what they need when they run: ``ecbm log`` must not wait for
torch.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from ecbm._version import __version__
from ecbm.errors import EcbmError
from ecbm.show.cli import editing, history, keeping, looking, starting, using
from ecbm.show.cli.common import print_json

__all__ = ["app", "main", "print_json"]

app = typer.Typer(
    help="Editable concept bottleneck models: train, look, correct.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for family in (looking, starting, using, editing, history, keeping):
    family.register(app)


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
    text = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
    print(f"ecbm: {text}", file=sys.stderr)
    sys.exit(2)
