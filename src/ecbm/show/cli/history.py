"""Commands about versions: ``log``, ``show`` and ``diff``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ecbm.show.cli.common import JsonOption, WorkspaceArgument, figure, print_json, say, styled
from ecbm.show.tables import print_table
from ecbm.words import counted, listed, local_time, summary_words

__all__ = ["register"]

VersionArgument = Annotated[
    str | None,
    typer.Argument(metavar="VERSION", help="A number as 'ecbm log' shows it; the current one by default."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (log, show, diff):
        app.command(rich_help_panel="History")(command)


def log(
    workspace: WorkspaceArgument,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help="How many; 0 for all. Default: 50, with --json 1000.")
    ] = None,
    before: Annotated[int | None, typer.Option(help="Only versions before this one.", show_default=False)] = None,
    operations: Annotated[
        bool, typer.Option("--operations", help="Every ledger entry, undo and redo too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The versions, newest first: who made them, when, why, and what changed."""
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    most = (1000 if as_json else 50) if limit is None else limit or None
    if operations:
        _log_operations(opened.entries(most), as_json)
        return
    described = opened.log(most, before, most_items=1000 if as_json else 4)
    last = described[-1]["version"] if described else 0
    if as_json:
        print_json({"versions": described, "current": opened.head, **({"next": last} if last else {})})
        return
    from ecbm.keep.removed import removed_in

    _print_log(described, opened.head, removed_in(opened, opened.versions(most, before)))
    if last:
        say(f"… {last} earlier: ecbm log {workspace} --before {last}")


def _print_log(described: list[dict[str, Any]], head: int, removed: dict[int, tuple[list[str], list[str]]]) -> None:
    # Plain lines, coloured on a terminal: Rich takes seconds for a thousand versions.
    for item in described:
        number = item["version"]
        title = styled(f"version {number}", fg="yellow")
        mark = styled(" (current)", fg="green", bold=True) if number == head else ""
        gone = "" if item["kept"] else styled(" (arrays destroyed by an erasure)", dim=True)
        when = local_time(item["time"])
        lines = [title + mark + gone, f"Author: {item['author'] or '(erased)'}", f"Date:   {when}", ""]
        samples, concepts = removed.get(number, ([], []))
        names = [f"removed: {listed(samples)}"] if samples else []
        names += [f"removed concepts: {listed(concepts)}"] if concepts else []
        lines += [f"    {text}" for text in (summary_words(item["summary"]), *names, item["reason"]) if text]
        typer.echo("\n".join([*lines, ""]))


def _log_operations(entries: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"entries": entries})
        return
    rows = [
        [
            str(entry["entry"]),
            entry["kind"],
            str(entry["version"]),
            local_time(entry["time"]),
            entry.get("author", "(erased)"),
            entry.get("reason", ""),
        ]
        for entry in entries
    ]
    headers = ["entry", "what", "version", "time", "author", "reason"]
    print_table(headers, rows, drop=("reason", "author", "time"), names=("what", "author", "reason"))


def show(workspace: WorkspaceArgument, version: VersionArgument = None, as_json: JsonOption = False) -> None:
    """One version in words: what was corrected, what it changed, and what the certificate says."""
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    chosen = opened.version(version)
    item = opened.described([chosen], most_items=100_000)[0]
    if as_json:
        print_json({**item, "words": summary_words(item["summary"]), "current": opened.head == chosen.version})
        return
    from ecbm.keep.explain import explain

    for line in explain(item, current=opened.head):
        say(line)


def diff(
    workspace: WorkspaceArgument,
    first: Annotated[str, typer.Argument(metavar="A", help="A version.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="Another version.", show_default=False)],
    split: Annotated[
        str | None, typer.Option(help="Where to compare; test by default.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two versions: metrics, data, concepts and predictions."""
    from ecbm.keep.compare import compare_versions
    from ecbm.keep.workspace import Workspace

    result = compare_versions(Workspace(workspace), first, second, split)
    if as_json:
        print_json(result)
        return
    a, b = result["versions"]
    say(f"data: {result['data']['words']}")
    rows = [
        [name.replace("_", " "), figure(old), figure(new), _change(old, new)]
        for name, (old, new) in result["metrics"].items()
    ]
    headers = ["metric", f"version {a}", f"version {b}", "change"]
    print_table(headers, rows, title=f"On {result['split']}, by the labels of version {b}", drop=("change",))
    rows = [
        [name, *map(figure, row["accuracy"]), _change(*row["accuracy"]), str(row["predictions_changed"])]
        for name, row in result["concepts"].items()
        if row["predictions_changed"] or row["accuracy"][0] != row["accuracy"][1]
    ]
    if rows:
        headers = ["concept", f"accuracy in {a}", f"in {b}", "change", "predictions changed"]
        print_table(headers, rows, drop=("change", "predictions changed", f"accuracy in {a}"))
    changed = result["predictions"]
    if "largest_change" in changed:  # numbers, not classes
        largest = f"by at most {changed['largest_change']:.4g}"
        say(f"{changed['changed']:,} of {counted(changed['samples'], 'prediction')} differ, {largest}")
    else:
        say(f"{changed['changed']:,} of {counted(changed['samples'], 'class prediction')} differ")
    for item in changed["examples"]:
        before, after = (f"{v:.6g}" if isinstance(v, float) else v for v in (item["before"], item["after"]))
        say(f"  {item['id']}: {before} → {after}")
    if changed["changed"] > len(changed["examples"]):
        say(f"  … and {changed['changed'] - len(changed['examples']):,} more")


def _change(old: float | None, new: float | None) -> str:
    return "" if old is None or new is None else f"{new - old:+.4f}"
