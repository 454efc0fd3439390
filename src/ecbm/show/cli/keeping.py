"""Commands about what is kept: ``check`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ecbm.errors import InputError
from ecbm.show.cli.common import (
    AuthorOption,
    JsonOption,
    ReasonOption,
    VersionOption,
    WorkspaceArgument,
    print_json,
    say,
)  # fmt: skip

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Keep")(check)
    app.command(rich_help_panel="Keep")(export)


def check(
    workspace: WorkspaceArgument,
    versions: Annotated[
        list[str] | None,
        typer.Argument(metavar="VERSION", help="With --replay: only these versions.", show_default=False),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Also compute versions again and compare them to the bit.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired without guessing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify everything that is kept: the ledger's chain, fingerprints and every file.

    With --replay, versions are also computed again from their parents, which takes as long as making them took;
    what cannot be compared (made on another machine type or with other libraries, say) is said with the reason.
    Says what is wrong and what can be done about it. The exit status is 1 if there is a problem.
    """
    from ecbm.keep.checking import check_workspace

    if versions and not replay:
        raise InputError("check: versions are given to be computed again; add --replay")
    # Not a verb of the workspace: one that is too damaged for being opened must be checked, too.
    result = check_workspace(workspace, repair=repair, replay=versions or replay)
    if as_json:
        print_json(result)
    else:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in result["checked"].items())
        say(f"{'sound' if result['ok'] else 'NOT sound'}: {counts} checked")
        for item in result["problems"]:
            say(f"  problem: {item['problem']}", f"    repair: {item['repair']}")
        for note in result["notes"]:
            say(f"  note: {note}")
        for item in result.get("replayed", ()):
            verdict = {True: "the same", False: "DIFFERENT", None: "cannot be compared"}[item["same"]]
            say(f"  version {item['version']}: {verdict}; {item['why']}")
    if not result["ok"]:
        raise typer.Exit(1)


def export(
    workspace: WorkspaceArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)],
    version: VersionOption = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help=escape("Also write model.onnx (needs: pip install 'ecbm[onnx]')."))
    ] = False,
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
