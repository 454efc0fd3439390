"""Tables of the benchmark of suggestions: a table for each setting, a row for each scenario."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

RANKINGS = {
    "cleanlab, best scorer": "cleanlab",
    "confident learning": "confident learning",
    "15 nearest neighbours": "neighbours",
    "Gaussian in feature space": "Gaussian",
    "second level alone": "second level",
    "ours": "ours",
}
HEAD = (
    "labels wrong",
    *RANKINGS.values(),
    "expected / true",
    "looks: ranking",
    "looks: learning",
    "least",
    "more looks",
)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.2f}".removeprefix("0") if known else "–"


def _spread(values: Sequence[float | None]) -> str:
    """The mean, and the least and the greatest where there are several."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return _mean(values)
    least, most = (f"{value:.2f}".removeprefix("0") for value in (min(known), max(known)))
    return f"{_mean(known)} ({least}–{most})"


def _expected(cases: Sequence[dict[str, Any]]) -> str:
    errors = sum(c["errors"] for c in cases)
    total = sum(c["expected"] for c in cases)
    return f"{total / errors:.2f}" if errors else f"{total / len(cases):.0f} for none"


def _looks(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Means over draws, and in how many of them learning took more looks than the ranking as it is."""
    asked = [c["looks"] for c in cases if c["looks"]]
    if not asked:
        return ["–"] * 4
    means = [f"{statistics.fmean(a[name] for a in asked):,.0f}" for name in ("ranking", "looks", "least")]
    return [*means, f"{sum(a['looks'] > a['ranking'] for a in asked)} of {len(asked)}"]


def _lines(cases: Sequence[dict[str, Any]], setting: str) -> list[list[str]]:
    mine = [c for c in cases if c["setting"] == setting]
    lines = []
    for scenario in dict.fromkeys(c["scenario"] for c in mine):
        some = [c for c in mine if c["scenario"] == scenario]
        figures = [
            (_spread if name == "ours" else _mean)([c["precision"][name] for c in some]) for name in RANKINGS
        ]
        lines.append([scenario, *figures, _expected(some), *_looks(some)])
    return lines


def _title(cases: Sequence[dict[str, Any]], setting: str) -> str:
    one = next(c for c in cases if c["setting"] == setting)
    return f"{setting}: {one['samples']:,} samples × {one['labels'] // one['samples']} concepts"


def show(cases: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    console = Console()
    for setting in dict.fromkeys(c["setting"] for c in cases):
        table = Table(title=_title(cases, setting), title_justify="left")
        for index, name in enumerate(HEAD):
            table.add_column(name, justify="left" if index == 0 else "right")
        for line in _lines(cases, setting):
            table.add_row(*line)
        console.print(table)


def markdown(cases: Sequence[dict[str, Any]]) -> str:
    """The tables as Markdown."""
    ours = HEAD.index("ours")
    parts = []
    for setting in dict.fromkeys(c["setting"] for c in cases):
        parts += [f"### {_title(cases, setting)}", "", "| " + " | ".join(HEAD) + " |"]
        parts.append("|---|" + "---:|" * (len(HEAD) - 1))
        for line in _lines(cases, setting):
            line[ours] = f"**{line[ours]}**"
            parts.append("| " + " | ".join(line) + " |")
        parts.append("")
    return "\n".join(parts)
