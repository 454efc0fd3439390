"""Commands that find what to correct: ``suggest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ecbm.errors import InputError
from ecbm.show.cli.common import JsonOption, WorkspaceArgument, print_json, say

if TYPE_CHECKING:
    from ecbm.verify.suggest.suggestions import Suggestion, Suggestions

__all__ = ["register"]

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Correct")(suggest)


def suggest(
    workspace: WorkspaceArgument,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="Who labelled what: a table with an id column, such as samples.csv:annotator.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many suggestions.", show_default=False)
    ] = None,
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Suggest labels that are wrong with at least this chance.")
    ] = 0.5,
    out: Annotated[
        Path | None,
        typer.Option(metavar="EDIT.json", help="Write the suggestions as an edit file.", show_default=False),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What you found about earlier suggestions (JSON or CSV).", show_default=False
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", help="A version's number; the current one by default.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Which labels of the training data are probably wrong, and why. Nothing is changed.

    Look at the suggestions, take out what you do not agree with, and apply the rest:

    ecbm suggest WS --out edit.json, then ecbm edit WS edit.json

    After looking at some, tell it: write "wrong": true or false into what --json printed (or a CSV with the columns
    id, concept, wrong) and give the file as --answers. The ranking learns from it.
    """
    from ecbm.edit.files import write_edit
    from ecbm.keep.workspace import Workspace
    from ecbm.verify.suggest.read_answers import read_annotators, read_answers
    from ecbm.verify.suggest.suggest import suggest as find

    if out is not None and out.suffix.lower() != ".json":
        raise InputError(f"--out {out}: an edit file is JSON; call it {out.with_suffix('.json')}")
    opened = Workspace(workspace)
    chosen = opened.version(version)
    annotators = None if by is None else read_annotators(by)
    model, data = opened.model(chosen.version), opened.data(chosen.version)
    given = [] if answers is None else read_answers(answers, data.ids, model.concept_names)
    found = find(model, data, limit=limit, least=least, by=annotators, answers=given)
    if out is not None:
        write_edit(found.edit(), out)
    if as_json:
        print_json({"version": chosen.version, **found.to_dict()})
        return
    _print(found, workspace, out)


def _count(expected: float, labels: int, what: str) -> str:
    number = f"about {expected:,.0f}" if expected >= 0.5 else "none"
    return f"{number} of {labels:,} {what}"


def _print(found: Suggestions, workspace: Path, out: Path | None) -> None:
    expected, labels = found.expected_errors, found.labels
    say(
        "Probably wrong: "
        + _count(expected["concept_labels"], labels["concept_labels"], "concept labels, ")
        + _count(expected["class_labels"], labels["class_labels"], "class labels.")
    )
    for pattern in found.patterns:
        say(f"Pattern: {pattern['words']} (about {pattern['expected_errors']:,.0f} wrong labels).")
    for cluster in found.clusters[:3]:
        say(f"Close together: {cluster['words']}.")
    for note in found.notes:
        say(f"Note: {note}.")
    if found.suggestions:
        Console().print(_table(found.suggestions[:_SHOWN], "Suggestions"))
        rest = len(found.suggestions) - _SHOWN
        if rest > 0:
            say(f"and {rest:,} more; --out writes all of them as an edit, --json prints all")
    else:
        say("No single label stands out; --least 0.1 lists weaker ones.")
    if found.rare:
        Console().print(_table(found.rare[:_SHOWN], "Rare concepts, ranked among themselves"))
    if found.checks:
        say("Worth a look, because no model can know:")
        for check in found.checks[:3]:
            say(f"  {check['id']}: {check['reasons'][0]}.")
    if out is not None:
        say(f"wrote {out}; look at it, take out what is wrong, then: ecbm edit {workspace} {out}")


def _table(rows: tuple[Suggestion, ...], title: str) -> Table:
    table = Table("sample", "label", "correction", "chance", "why", title=title, title_justify="left")
    for row in rows:
        recorded, value = (x if isinstance(x, str) else f"{x:g}" for x in (row.recorded, row.value))
        change = escape(f"{recorded} → {value}")
        label = escape(row.concept or "class")
        table.add_row(escape(row.id), label, change, f"{row.score:.2f}", escape(row.reasons[0]))
    return table
