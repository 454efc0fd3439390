"""Commands about what is kept: ``check`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecbm.show.cli.common import AuthorOption, JsonOption, ReasonOption, WorkspaceArgument, print_json, say

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Keep")(check)
    app.command(rich_help_panel="Keep")(export)


def check(
    workspace: WorkspaceArgument,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired without guessing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify everything that is kept: the ledger's chain, fingerprints and every file.

    Says what is wrong and what can be done about it. The exit status is 1 if there is a problem.
    """
    from ecbm.keep.checking import check_workspace

    result = check_workspace(workspace, repair=repair)
    if as_json:
        print_json(result)
    else:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in result["checked"].items())
        say(f"{'sound' if result['ok'] else 'NOT sound'}: {counts} checked")
        for item in result["problems"]:
            say(f"  problem: {item['problem']}", f"    repair: {item['repair']}")
        for note in result["notes"]:
            say(f"  note: {note}")
    if not result["ok"]:
        raise typer.Exit(1)


def export(
    workspace: WorkspaceArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)],
    version: Annotated[str | None, typer.Option("--version", help="The current one by default.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx (needs ecbm[onnx]).")] = False,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a version as a self-contained folder: weights, config, history and a model card.

    Load it with ecbm.load("DIR"), or its model.safetensors with any safetensors library. It holds no samples.
    An erasure reaches exports in WORKSPACE/exports, but not those elsewhere.
    """
    from ecbm.keep.workspace import Workspace

    result = Workspace(workspace).export(folder, version, onnx=onnx, reason=reason, author=author)
    if as_json:
        print_json(result)
        return
    say(f"version {result['version']} written to {folder}: {', '.join(result['files'])}")
