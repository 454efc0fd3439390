"""One HTML page of all findings that reads like a results section; figures are inside the file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ecbm.show.page import Page
from ecbm.show.reproduce.findings import Column, Detail, Findings, Table, cell, shown_columns
from ecbm.show.reproduce.writing import made_with

__all__ = ["table_block", "write_report"]


# Rows of a table that is shown at once.
_SHORT = 12
_TERMS = (
    "Closure is 1 − d(edited, retrained) / d(original, retrained) over test probabilities, against the mean of the "
    "retrained seeds: 0 is as far from retraining as the unedited model, 1 is retraining, below 0 is farther away. "
    "Another seed is one retrained model against the mean of the others: what a change of seed alone gives. ± is "
    "half of a 95 % interval over repetitions (sd: a standard deviation); a difference is called one where that "
    "interval does not hold 0. Seconds are the processor's, one thread a process, with what is kept between edits "
    "at hand."
)


class _Results(Page):
    """A page of sentences, figures and tables; tables open on a click where they are long."""

    def lead(self, sentences: Sequence[str]) -> None:
        """What an experiment shows."""
        self.block(f'<p class="finding">{escape(" ".join(sentences))}</p>')

    def summary(self, told: Sequence[tuple[str, str]]) -> None:
        """One item an experiment, which leads to its section."""
        items = (f"<li><b>{escape(title)}.</b> {escape(words)}</li>" for title, words in told)
        self.block(f'<ul class="summary">{"".join(items)}</ul>')

    def remark(self, text: str) -> None:
        """Small print."""
        self.block(f'<p class="remark">{escape(text)}</p>')

    def details(self, found: Sequence[Detail]) -> None:
        """What stands behind the lead, part by part."""
        parts = []
        for detail in found:
            items = "".join(f"<li>{escape(sentence)}</li>" for sentence in detail.sentences)
            parts.append(f"<div><h3>{escape(detail.heading)}</h3><ul>{items}</ul></div>")
        if parts:
            self.block(f'<div class="parts">{"".join(parts)}</div>')

    def numbers(self, table: Table) -> None:
        """A table."""
        block, count = table_block(table), len(table.rows)
        if count > _SHORT:
            title = escape(table.caption or "The numbers")
            block = f'<details class="numbers"><summary>{title}, {count} rows</summary>{block}</details>'
        elif table.caption:
            block = f'<p class="remark">{escape(table.caption)}</p>{block}'
        self.block(block)

    def figure(self, path: Path, caption: str) -> None:
        """A drawing as part of the page, with its caption."""
        content = base64.b64encode(path.read_bytes()).decode()
        self.block(
            '<figure class="chart"><div class="drawing" tabindex="0">'
            f'<img src="data:image/svg+xml;base64,{content}" alt="{escape(caption)}"></div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )


def table_block(table: Table) -> str:
    """A table as HTML; values of the first column that repeat become headings of groups of rows."""
    columns = shown_columns(table)
    names = [cell(row, columns[0]) for row in table.rows]
    grouped = len(set(names)) < len(names) and len(columns) > 2
    rest = columns[1:] if grouped else columns
    head = "".join(f'<th scope="col"{_side(column)}>{escape(column.header)}</th>' for column in rest)
    lines: list[str] = []
    for place, (name, row) in enumerate(zip(names, table.rows, strict=True)):
        if grouped and (place == 0 or name != names[place - 1]):
            lines.append(f'<tr class="group"><th colspan="{len(rest)}" scope="rowgroup">{escape(name)}</th></tr>')
        lines.append(f"<tr>{''.join(_cell(row, column, at == 0) for at, column in enumerate(rest))}</tr>")
    return (
        f'<div class="scroll" tabindex="0"><table class="results wide"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _side(column: Column) -> str:
    return ' class="number"' if column.form else ""


def _cell(row: dict[str, Any], column: Column, first: bool) -> str:
    text = escape(cell(row, column))
    if first:
        return f'<th scope="row">{text}</th>'
    return f'<td data-label="{escape(column.header, quote=True)}"{_side(column)}>{text}</td>'


def write_report(told: Sequence[tuple[Findings, dict[str, Any]]], path: Path) -> Path:
    """Write the page; the figures' SVG files lie beside it."""
    about = told[0][1]
    title = "Editable concept bottleneck models: the paper's experiments, with controls"
    page = _Results(title, f"{about['setting']}.", style=("results",))
    if len(told) > 1:
        page.section("In short")
        page.summary([(found.title, found.summary) for found, _ in told])
        page.remark(_TERMS)
    for found, made in told:
        page.section(found.title, f"{made['repetitions'].capitalize()}.")
        page.lead(found.lead)
        for figure in found.figures:
            stem = f"{found.experiment}-{figure.name}" if figure.name else found.experiment
            page.figure(path.parent / f"{stem}.svg", figure.caption)
        page.details(found.details)
        for table in found.tables:
            page.numbers(table)
    page.section("How this was made")
    page.code("\n".join(about["command"] for _, about in told))
    page.text(f"{made_with(about)}.")
    if len(told) == 1:
        page.remark(_TERMS)
    return page.write(path)
