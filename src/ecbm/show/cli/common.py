"""What the commands share: options, JSON output, figures and lines for people."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ecbm.errors import EcbmError
from ecbm.terminal import is_plain, new_console

__all__ = [
    "AuthorOption", "ExpectOption", "Interrupted", "JsonOption", "ReasonOption", "VersionOption",
    "WorkspaceArgument",
    "figure", "print_json", "say", "styled",
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


VersionOption = Annotated[
    str | None,
    typer.Option("--version", help="A version's number; the current one by default.", show_default=False),
]


class Interrupted(EcbmError):
    """The user pressed Ctrl-C; the message says what is kept."""


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
