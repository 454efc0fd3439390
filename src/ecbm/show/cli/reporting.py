"""The command ``report``: a version as a page for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import JsonOption, WorkspaceArgument, print_json, say
from ecbm.show.cli.history import VersionArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="History")(report)


def report(
    workspace: WorkspaceArgument,
    version: VersionArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="NAME.html: the page, and NAME.json beside it. NAME.json: only that.",
                     show_default=False),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", help="Output of 'ecbm verify --json' to show instead.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Write a version as a page for readers who did not make it.

    What was changed, by whom and why; figures with 95 % intervals before and after; pictures of what changed and of
    what is decided differently; what is proven and what is not; the history and whether it is unbroken. One file
    without scripts that fetches nothing and prints on A4. Nothing that an erasure has destroyed appears.
    """
    if out is None and not as_json:
        raise InputError("report: say where to write it, --out NAME.html, or --json for standard output")
    from ecbm.show.report.make import report as make_report

    content = make_report(workspace, version, out=out, audit=audit)
    if as_json:
        print_json(content)
        return
    assert out is not None
    say(
        content["summary"],
        f"written to {out}" + ("" if out.suffix == ".json" else f" and {out.with_suffix('.json')}"),
    )
