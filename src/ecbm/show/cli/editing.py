"""Commands that change the model: ``edit``, ``undo``, ``redo`` and ``erase``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import (
    AuthorOption,
    DeviceOption,
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

TailOption = Annotated[
    bool,
    typer.Option(
        "--tail", help="For auto: train a deep backbone's last layers on, even where the edit does not ask for it."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (edit, undo, redo, erase):
        app.command(rich_help_panel="Correct")(command)


def edit(
    workspace: WorkspaceArgument,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="EDIT",
            help="The edit, as JSON; or a table of corrections (CSV, Parquet) with the columns id, concept, value.",
            show_default=False,
        ),
    ],
    method: Annotated[str, typer.Option(help="auto, exact, ekfac, hessian or retrain.")] = "auto",
    preview: Annotated[bool, typer.Option("--preview", help="Only report what would change.")] = False,
    budget: Annotated[float, typer.Option(help="For auto: a share of retraining's work, up to 1.")] = 0.05,
    tail: TailOption = False,
    seconds: Annotated[
        float | None,
        typer.Option(help="Instead of --budget: a time limit. The result cannot be replayed.", show_default=False),
    ] = None,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply an edit and keep the result as a new version.

    The file names what should be different, any mix of levels in one edit:

    {"correct_concepts": [{"id": "id17", "concept": "crest=yes", "value": 1}],
    "correct_labels": [{"id": "id4", "label": "sparrow"}],
    "remove_samples": ["id9"], "remove_concepts": ["noisy"],
    "add_samples": "more.csv", "add_concepts": "concepts.csv"}

    Paths in it are relative to the file. A table has one row a label: id,concept,value or id,label. Labels that
    have their value already are left out. If somebody else has changed the model meanwhile, nothing is done.
    """
    from ecbm.edit.notebook import result_words
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace, device=device)
    options: dict[str, Any] = {"budget": budget} if seconds is None else {"seconds": seconds}
    options |= {"tail": True} if tail else {}
    if preview:
        version, report = opened.head, opened.preview(file, method, **options)
    else:
        version, report = opened.edit(file, method, reason=reason, author=author, expect=expect, **options)
    if as_json:
        print_json({**report, "version": version, **({"preview": True} if preview else {})})
        return
    notes = report.get("notes") or []
    if not any(report["changed"].values()) and not report.get("drift"):
        say(f"{'; '.join(notes)}; version {opened.head} stays the current one")
        return
    words = result_words({**report, "notes": []})
    say(f"preview, nothing kept: {words}" if preview else f"version {version}: {words}")
    for note in notes:
        say(f"note: {note}")
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
    from ecbm.words import summary_words

    if as_json:
        print_json({"version": after, "from": before})
        return
    say(f"version {before} → version {after}: {summary_words(opened.version(after).summary)}")


def erase(
    workspace: WorkspaceArgument,
    ids: Annotated[list[str], typer.Option("--ids", help="Samples to erase; ids may follow one another.")],
    more: Annotated[list[str] | None, typer.Argument(metavar="ID", help="More ids.", show_default=False)] = None,
    method: Annotated[
        str,
        typer.Option(help="auto, exact (both heads; a deep backbone stays), or retrain (trains all of it anew)."),
    ] = "auto",
    tail: TailOption = False,
    budget: Annotated[
        float | None,
        typer.Option(help="For auto: a share of retraining's work, up to 1 (0.05).", show_default=False),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would be destroyed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; without a terminal it is needed.")] = False,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase samples for good: from the model, and then from everything that is kept. It cannot be undone.

    Says what will be destroyed and asks first. Rows, pictures, features, earlier weights, the undo history, exports
    inside the workspace and the records' free pages are destroyed. The ledger keeps that an erasure happened, not
    whose record it was. What cannot be reached is listed at the end.
    """
    from ecbm.keep.erasure_plan import plan_erasure, plan_lines
    from ecbm.keep.workspace import Workspace
    from ecbm.words import counted

    opened = Workspace(workspace)
    wanted = [*ids, *(more or [])]
    if preview or not yes:
        plan = plan_erasure(opened, wanted, method)
        if preview and as_json:
            print_json({**plan, "preview": True})
            return
        if not preview and (as_json or not sys.stdin.isatty()):
            raise InputError(
                "an erasure cannot be undone, and there is nobody to ask; add --yes to do it, or --preview to see "
                "what it would destroy"
            )
        say(*plan_lines(plan))
        if preview:
            return
        if not typer.confirm(f"Erase {counted(len(plan['samples']), 'sample')} for good?"):
            say("nothing was changed")
            raise typer.Exit(1)
        # What was agreed to is what was shown: a version that came meanwhile was not.
        expect = plan["version"] if expect is None else expect
    options: dict[str, Any] = {"tail": True} if tail else {}
    options |= {} if budget is None else {"budget": budget}
    result = opened.erase(wanted, method, reason=reason, author=author, expect=expect, **options)
    if as_json:
        print_json({**result["report"], **{name: value for name, value in result.items() if name != "report"}})
        return
    what = f"erased {counted(result['erased'], 'sample')}; earlier versions are destroyed"
    say(f"version {result['version']}: {what}", "not reached:")
    for place in result["not_reached"]:
        say(f"  - {place}")
