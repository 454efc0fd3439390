"""What the commands share: options, JSON output, figures and lines for people."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ecbm.keep.plain import plain

__all__ = [
    "AuthorOption", "ExpectOption", "JsonOption", "ReasonOption", "WorkspaceArgument",
    "figure", "print_json", "say",
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


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")


def figure(value: float | None) -> str:
    """A metric for people."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


def say(*lines: str) -> None:
    """Lines for people; long ones are left to the terminal, so that they can be searched for."""
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
