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
from ecbm.options import named_as_flags
from ecbm.show.cli import (
    editing,
    history,
    influencing,
    keeping,
    looking,
    reporting,
    reproducing,
    serving,
    starting,
    suggesting,
    using,
    verifying,
)
from ecbm.show.cli.common import Interrupted, flowing, print_json
from ecbm.terminal import is_plain

__all__ = ["app", "main", "print_json"]

_INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C has ended

app = typer.Typer(
    help="Editable concept bottleneck models: train, look, correct.\n\n"
    "To begin: 'ecbm demo', or 'ecbm init ward --builtin birds' and 'ecbm train ward'. Every command has --help. "
    "Where the backbone is code of your own, every command takes --trust package.module to allow its import.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for family in (
    looking, serving, starting, using, suggesting, influencing, editing, verifying, history, reporting,
    keeping, reproducing,
):  # fmt: skip
    family.register(app)
for command in app.registered_commands:
    command.help = flowing(command.callback.__doc__ or "")


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
    if is_plain():
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    sys.argv[1:] = _trusting(sys.argv[1:])
    # Not typer's own handling of errors: it draws a box of several lines around a wrong option.
    try:
        with named_as_flags():
            status = app(standalone_mode=False, prog_name="ecbm")
    except Interrupted as stop:
        _stop(str(stop), _INTERRUPTED)
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
        message = error.format_message().rstrip(".")
        _stop(f"{message}{'' if message.endswith('?') else ';'} see 'ecbm --help'")
    if status == _INTERRUPTED:
        _stop("interrupted; nothing is left half done, the command can be given again", _INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _trusting(arguments: list[str]) -> list[str]:
    """The arguments without ``--trust MODULE``, which every command takes, and those modules allowed."""
    from ecbm.trust import allow

    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        name, equals, module = argument.partition("=")
        if name != "--trust":
            rest.append(argument)
            continue
        module = module if equals else next(given, "")
        if not module:
            _stop("--trust needs the module of a backbone of your own: --trust package.module")
        allow(module)
    return rest


def _stop(message: str, status: int = 2) -> NoReturn:
    text = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
    print(f"ecbm: {text}", file=sys.stderr)
    sys.exit(status)
