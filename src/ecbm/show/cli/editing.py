"""Commands that change the model: ``edit``, ``undo``, ``redo`` and ``erase``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecbm.show.cli.common import (
    AuthorOption,
    ExpectOption,
    JsonOption,
    ReasonOption,
    WorkspaceArgument,
    print_json,
    say,
)  # fmt: skip

if TYPE_CHECKING:
    from ecbm.keep.workspace import Workspace

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (edit, undo, redo, erase):
        app.command(rich_help_panel="Correct")(command)


def edit(
    workspace: WorkspaceArgument,
    file: Annotated[Path, typer.Argument(metavar="EDIT.json", help="The edit, as JSON.", show_default=False)],
    method: Annotated[str, typer.Option(help="auto, exact, ekfac, hessian or retrain.")] = "auto",
    preview: Annotated[bool, typer.Option("--preview", help="Only report what would change.")] = False,
    budget: Annotated[
        float, typer.Option(help="For auto: a share of the cost of retraining (below 1), or seconds (1 and more).")
    ] = 0.05,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply an edit and keep the result as a new version.

    The file names what should be different, any mix of levels in one edit:

    {"correct_concepts": [{"id": "id17", "concept": "crest=yes", "value": 1}],
    "correct_labels": [{"id": "id4", "label": "sparrow"}],
    "remove_samples": ["id9"], "remove_concepts": ["noisy"],
    "add_samples": "more.csv", "add_concepts": "concepts.csv"}

    Paths in it are relative to the file. If somebody else has changed the model meanwhile, nothing is done.
    """
    from ecbm.keep.words import done, summary_of, summary_words
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    if preview:
        version, report = opened.head, opened.preview(file, method, budget=budget)
    else:
        version, report = opened.edit(file, method, reason=reason, author=author, expect=expect, budget=budget)
    if as_json:
        print_json({**report, "version": version, **({"preview": True} if preview else {})})
        return
    words = summary_words(summary_of(report, done(report["edit"])))
    say(f"preview, nothing kept: {words}" if preview else f"version {version}: {words}")
    if report.get("warning"):
        say(f"warning: {report['warning']}")


def undo(
    workspace: WorkspaceArgument,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go back to the parent of the current version, bit for bit. 'ecbm redo' takes it back.

    The version that is left stays in the workspace. To remove a person's data for good, use 'ecbm erase'.
    """
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    _moved(opened, opened.head, opened.undo(reason=reason, author=author, expect=expect), as_json)


def redo(
    workspace: WorkspaceArgument,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the last undo back, bit for bit."""
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    _moved(opened, opened.head, opened.redo(reason=reason, author=author, expect=expect), as_json)


def _moved(opened: Workspace, before: int, after: int, as_json: bool) -> None:
    from ecbm.keep.words import summary_words

    if as_json:
        print_json({"version": after, "from": before})
        return
    say(f"version {before} → version {after}: {summary_words(opened.version(after).summary)}")


def erase(
    workspace: WorkspaceArgument,
    ids: Annotated[list[str], typer.Option("--ids", help="Samples to erase; ids may follow one another.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="More ids.", show_default=False)
    ] = None,
    method: Annotated[
        str, typer.Option(help="auto, exact, or retrain (also trains a deep backbone anew).")
    ] = "auto",
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase samples for good: from the model, and then from everything that is kept. It cannot be undone.

    Rows, pictures, features, earlier weights, the undo history, exports inside the workspace and the records' free
    pages are destroyed. The ledger keeps that an erasure happened, not whose record it was. What cannot be reached
    is listed at the end.
    """
    from ecbm.keep.words import counted
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    result = opened.erase([*ids, *(more or [])], method, reason=reason, author=author, expect=expect)
    if as_json:
        print_json({**result["report"], **{name: value for name, value in result.items() if name != "report"}})
        return
    what = f"erased {counted(result['erased'], 'sample')}; earlier versions are destroyed"
    say(f"version {result['version']}: {what}", "not reached:")
    for place in result["not_reached"]:
        say(f"  - {place}")
