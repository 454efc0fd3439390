"""The command that finds what to correct: ``suggest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import DeviceOption, JsonOption, VersionOption, WorkspaceArgument, print_json, say

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
            metavar="[FILE:]COLUMN",
            help="Who labelled what: a column (annotator, site, batch) of the table the data was read from, or of "
            "another file with the ids.",
            show_default=False,
        ),
    ] = None,
    concept: Annotated[
        list[str] | None, typer.Option("--concept", help="Labels of this concept alone.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="train, or val to look at labels that figures rest on.")] = "train",
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
    confirmed: Annotated[
        bool, typer.Option("--confirmed", help="With --out: only what the answers say is wrong.")
    ] = False,
    version: VersionOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which labels are probably wrong, and why. Nothing is changed.

    Look at the suggestions, take out what you do not agree with, and apply the rest: 'ecbm suggest WS --out
    edit.json', then 'ecbm edit WS edit.json'.

    After looking at some, tell it: write "wrong": true or false into what --json printed (or a CSV with the columns
    id, concept, wrong) and give the file as --answers. The ranking learns from it, and what you found to be wrong
    goes into the edit.
    """
    from ecbm.edit.files import write_edit
    from ecbm.keep.workspace import Workspace

    if out is not None and out.suffix.lower() != ".json":
        raise InputError(f"--out {out}: an edit file is JSON; call it {out.with_suffix('.json')}")
    if out is not None and split != "train":
        raise InputError(f"--out with --split {split}: edits reach training labels alone; leave one of them out")
    if confirmed and (out is None or answers is None):
        raise InputError("--confirmed chooses what --out writes by --answers; give both")
    opened = Workspace(workspace, device=device)
    chosen = opened.version(version)
    found = opened.suggest(
        version=chosen.version, limit=limit, least=least, concepts=tuple(concept or ()), split=split, by=by,
        answers=() if answers is None else answers,
    )  # fmt: skip
    if out is not None:
        write_edit(found.to_edit(confirmed_only=confirmed), out)
    if as_json:
        print_json({"version": chosen.version, **found.to_dict()})
        return
    _print(found, workspace, out)


def _count(expected: float, labels: int, what: str) -> str:
    number = f"about {expected:,.0f}" if expected >= 0.5 else "none"
    return f"{number} of {labels:,} {what}"


def _print(found: Suggestions, workspace: Path, out: Path | None) -> None:
    expected, labels = found.expected_errors, found.labels
    kinds = {"concept_labels": "concept labels", "class_labels": "class labels"}
    counts = [_count(expected[name], labels[name], kinds[name]) for name in expected if labels[name]]
    say(f"Probably wrong: {', '.join(counts)}.")
    for pattern in found.patterns:
        say(f"Pattern: {pattern['words']} (about {pattern['expected_errors']:,.0f} wrong labels).")
    for cluster in found.clusters[:3]:
        say(f"Close together: {cluster['words']}.")
    for note in found.notes:
        say(f"Note: {note}.")
    if found.suggestions:
        _table(found.suggestions, "Suggestions")
    else:
        say("No single label stands out; --least 0.1 lists weaker ones.")
    if found.rare:
        _table(found.rare, "Rare concepts, ranked among themselves")
    if found.samples:
        say("Samples with several suspicious labels:")
        for sample in found.samples[:3]:
            say(f"  {sample['id']}: {sample['reasons'][0]}.")
    doubtful = [check for check in found.checks if check["doubt"] >= 0.5]
    if doubtful:
        say("Worth a look, because no model can know:")
        for check in doubtful[:3]:
            say(f"  {check['id']}: {check['reasons'][0]}.")
    if found.confirmed:
        say(f"Found wrong by those who looked, and still so in the data: {len(found.confirmed):,}.")
    if out is not None:
        say(f"wrote {out}; look at it, take out what is wrong, then: ecbm edit {workspace} {out}")


def _table(rows: tuple[Suggestion, ...], title: str) -> None:
    from ecbm.show.tables import print_table

    lines = []
    for row in rows[:_SHOWN]:
        recorded, value = (x if isinstance(x, str) else f"{x:g}" for x in (row.recorded, row.value))
        label = "class" if row.concept is None else row.concept
        lines.append((row.id, label, f"{recorded} → {value}", f"{row.score:.2f}", "; ".join(row.reasons[:2])))
    headers = ("sample", "label", "correction", "chance", "why")
    print_table(headers, lines, title=title, names={"label": 12, "correction": 12, "why": 30}, drop=("why",))
    if len(rows) > _SHOWN:
        say(f"and {len(rows) - _SHOWN:,} more; --out writes all of them as an edit, --json prints all")
