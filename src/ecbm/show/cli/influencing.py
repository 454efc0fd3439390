"""``ecbm influence``: which training samples, labels and concepts made the model say what it says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import DeviceOption, JsonOption, VersionOption, WorkspaceArgument, print_json, say
from ecbm.show.tables import print_table
from ecbm.words import counted

if TYPE_CHECKING:
    import pandas

__all__ = ["influence", "register"]

_SHOWN = 10
_ENDINGS = (".csv", ".svg", ".html")
_DONE = {"samples": "removed", "labels": "flipped", "concepts": "removed"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Use")(influence)


def influence(
    workspace: WorkspaceArgument,
    samples: Annotated[bool, typer.Option("--samples", help="Training samples, if they were removed.")] = False,
    labels: Annotated[bool, typer.Option("--labels", help="Concept labels, if they were flipped.")] = False,
    concepts: Annotated[bool, typer.Option("--concepts", help="Concepts, if they were removed.")] = False,
    together: Annotated[
        list[str] | None,
        typer.Option(
            "--together", help="These training samples, if they were removed together; ids may follow one another."
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="ID", help="More ids.", show_default=False)] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            help="The target: val (the default), train or test, or a sample's id; ids can be given several times.",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[str, typer.Option(help="Which loss: all, class, concepts, or one concept's name.")] = "all",
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="Target: -log of this class's probability, not the loss.", show_default=False),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help=f"So many of the most harmful and most helpful. Default: {_SHOWN} in a terminal, all with --json "
            "and in a .csv file.",
            show_default=False,
        ),
    ] = None,
    exact: Annotated[
        int, typer.Option(help="Carry out the first so many, each on its own, and show what really happens.")
    ] = 0,
    method: Annotated[
        str,
        typer.Option(
            help="Of a deep backbone: auto, heads, trajectory (with 'ecbm train --keep-epochs') or ekfac."
        ),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Write the table (.csv) or a plot (.svg, .html).", show_default=False)
    ] = None,
    version: VersionOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """What helps and what harms a prediction or a metric: training samples, concept labels or concepts.

    The change is that of the target's loss if the sample or concept were removed or the label flipped, predicted
    from the solved heads and kept curvature. The most harmful come first: a negative change means that the loss
    falls. The target is the mean validation loss of concepts and class, or with --of ID that of one sample. A
    removed concept is judged by the class loss. Samples of a set (--together) lean on each other, so of a frozen
    backbone their change is that of one Newton step on the samples that remain, and not the sum of their own.
    """
    asked_for = (("samples", samples), ("labels", labels), ("concepts", concepts), ("together", together))
    chosen = [name for name, on in asked_for if on]
    if len(chosen) != 1:
        raise InputError("give one of --samples, --labels, --concepts and --together")
    if more and not together:
        raise InputError(f"unexpected {more[0]!r}; ids follow --together, the target is said with --of")
    if out is not None and out.suffix.lower() not in _ENDINGS:
        raise InputError(f"{out}: unknown kind of file {out.suffix!r}; give a .csv, .svg or .html file")
    kind = chosen[0]
    from ecbm.keep.asking import asking
    from ecbm.keep.workspace import Workspace

    with asking(Workspace(workspace, device=device), version, method=method) as asked:
        ids = of or ["val"]
        given = ids[0] if len(ids) == 1 else ids
        target = asked.target(given, loss, class_name)
        whole = as_json or (out is not None and out.suffix.lower() == ".csv")
        shown = top if top is not None else (None if whole else _SHOWN)
        if together:
            ids = [*together, *(more or [])]
            frame = asked.sets(ids, given, loss=loss, label=class_name, exact=exact)
        else:
            frame = asked.table(kind, given, loss=loss, label=class_name, top=shown, exact=exact)
        now = asked.value(target)
        exactly = asked.exact
    if out is not None:
        _write(out, frame, kind, f"Influence of {kind} on {target.words}", top or _SHOWN)
    if as_json:
        said = {"of": target.words, "loss": now, "kind": kind, "method": asked.method}
        print_json({**said, "influences": _rows(frame)})
        return
    if together:
        _show_set(frame, target.words, now)
    else:
        _show(frame, kind, target.words, now, top or _SHOWN)
        _say_unmeasured(frame, exact)
    if out is not None:
        say(f"written: {out}")
    if not exactly:
        say("The backbone is not frozen: these are estimates. 'ecbm edit --method retrain --preview' is the truth.")


def _rows(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """The table as plain values; a missing one is null."""
    columns = {name: [_plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ends(frame: pandas.DataFrame, most: int) -> pandas.DataFrame:
    """The most harmful and the most helpful rows."""
    import pandas

    if len(frame) <= 2 * most:
        return frame
    return pandas.concat([frame.iloc[:most], frame.iloc[-most:]], ignore_index=True)


def _say_unmeasured(frame: pandas.DataFrame, exact: int) -> None:
    missing = int(frame["actual"].iloc[:exact].isna().sum()) if "actual" in frame else 0
    if missing:
        say(f"not measured: {missing}, for a class would be left without a training sample, or no concept at all")


def _show_set(frame: pandas.DataFrame, words: str, now: float) -> None:
    row = frame.iloc[0]
    say(f"Target: {words}, loss {now:.4f}. Change if {counted(row['samples'], 'sample')} were removed together:")
    ways = {"change": "predicted", "sum": "sum of their own influences", "actual": "measured"}
    rows = [[said, f"{row[name]:+.3g}", f"{now + row[name]:.4f}"] for name, said in ways.items() if name in row]
    print_table(["", "change", "loss then"], rows)


def _names(frame: pandas.DataFrame, kind: str) -> list[str]:
    if kind == "together":
        return [str(name) for name in frame["set"]]
    if kind == "concepts":
        return [str(name) for name in frame["concept"]]
    if kind == "samples":
        return [f"{row.id} ({_said(row.label)})" for row in frame.itertuples()]
    return [f"{row.id} {row.concept}: {_said(row.label)} → {_said(row.flipped)}" for row in frame.itertuples()]


def _said(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "missing"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show(frame: pandas.DataFrame, kind: str, words: str, now: float, most: int) -> None:
    from ecbm.show.influence_chart import bars

    say(f"Target: {words}, loss {now:.4f}. Change if {_DONE[kind]}; negative: the loss falls, so it is harmful.")
    part = _ends(frame, most)
    if not len(part):
        say(f"There are no {kind} to rank.")
        return
    drawn = bars(part["change"].tolist())
    measured = part["actual"].tolist() if "actual" in part else None
    headers = [kind.removesuffix("s"), "change", *(["measured"] if measured else []), ""]
    rows = [
        [name, f"{change:+.3g}", *([_figure(measured[place])] if measured else []), drawn[place]]
        for place, (name, change) in enumerate(zip(_names(part, kind), part["change"], strict=True))
    ]
    print_table(headers, rows, names=("",))
    if len(part) == 2 * most:
        say("more lie between these: --top N shows them, --json and a .csv file have all")


def _figure(value: float) -> str:
    return f"{value:+.3g}" if math.isfinite(value) else ""


def _write(out: Path, frame: pandas.DataFrame, kind: str, title: str, most: int) -> None:
    from ecbm.files import write_text

    ending = out.suffix.lower()
    if ending == ".csv":
        write_text(out, frame.to_csv(index=False))
        return
    from ecbm.show.influence_chart import bar_chart_svg

    part = _ends(frame, most)
    measured = part["actual"].tolist() if "actual" in part else None
    drawing = bar_chart_svg(_names(part, kind), part["change"].tolist(), title, measured)
    if ending == ".html":
        from html import escape

        drawing = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
            f"<body>{drawing}</body></html>\n"
        )
    write_text(out, drawing)
