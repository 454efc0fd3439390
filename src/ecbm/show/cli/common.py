"""What the commands share: options, JSON output, figures and lines for people."""

from __future__ import annotations

import inspect
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ecbm.errors import EcbmError
from ecbm.keep.plain import plain
from ecbm.terminal import is_plain, new_console

__all__ = [
    "AuthorOption", "DeviceOption", "ExpectOption", "Interrupted", "JsonOption", "ReasonOption", "VersionOption",
    "WorkspaceArgument",
    "figure", "flowing", "print_json", "say", "styled",
]  # fmt: skip

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
WorkspaceArgument = Annotated[
    Path, typer.Argument(metavar="WORKSPACE", help="A workspace folder made by 'ecbm init'.", show_default=False)
]
ReasonOption = Annotated[str, typer.Option("--reason", "-m", help="Why; kept in the ledger.", show_default=False)]
AuthorOption = Annotated[
    str,
    typer.Option(
        "--author", help="Who; kept in the ledger. Default: $ECBM_AUTHOR or your user name.", show_default=False
    ),
]
ExpectOption = Annotated[
    int | None,
    typer.Option("--expect", help="Do it only if this is still the current version.", show_default=False),
]


DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="Where networks run: cpu (the default), auto, cuda or mps.", show_default=False),
]
VersionOption = Annotated[
    str | None,
    typer.Option("--version", help="A version's number; the current one by default.", show_default=False),
]


class Interrupted(EcbmError):
    """The user pressed Ctrl-C; the message says what is kept."""


def flowing(text: str) -> str:
    """A docstring for ``--help``: paragraphs in one line, so that the terminal breaks them where it ends.

    Lines of an example (they begin with a brace or a quotation mark) stay as they are.

    Examples
    --------
    >>> flowing("One. Two\\n    three.\\n\\n    Four.")
    'One. Two three.\\n\\nFour.'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part[:1] in ("{", '"') else " ".join(part.split()) for part in paragraphs)


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")


def figure(value: float | None) -> str:
    """A metric for people."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


def say(*lines: str) -> None:
    """Lines for people; long ones are left to the terminal, so that they can be searched for."""
    console = new_console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def styled(text: str, **style: Any) -> str:
    """Text in a style of :func:`typer.style`, where the terminal takes one."""
    return text if is_plain() else typer.style(text, **style)
