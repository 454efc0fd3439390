"""One HTML page of all findings that reads like a results section; figures are inside the file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ecbm.show.page import Page
from ecbm.show.reproduce.findings import Findings, cell

__all__ = ["write_report"]


# Rows of a table that is shown at once.
_SHORT = 12


class _Results(Page):
    """A page with figures, and with tables that open on a click where they are long."""

    def numbers(self, headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> _Results:
        """A table."""
        if len(rows) <= _SHORT:
            self.table(headers, rows, caption=caption)
            return self
        self._add(f"<details><summary>{escape(caption or 'The numbers')}, {len(rows)} rows</summary>")
        self.table(headers, rows)
        self._add("</details>")
        return self

    def figure(self, path: Path, caption: str) -> _Results:
        """A drawing as part of the page, with its caption."""
        content = base64.b64encode(path.read_bytes()).decode()
        self._add(
            f'<figure class="chart"><img src="data:image/svg+xml;base64,{content}" alt="{escape(caption)}" '
            f'style="max-width:100%;height:auto;background:#fff">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
        return self


def write_report(told: Sequence[tuple[Findings, dict[str, Any]]], path: Path) -> Path:
    """Write the page; the figures' SVG files lie beside it."""
    about = told[0][1]
    page = _Results("Editable concept bottleneck models: the paper's experiments, with controls", about["words"])
    for found, _ in told:
        page.section(found.title)
        for sentence in found.sentences:
            page.text(sentence)
        for figure in found.figures:
            stem = f"{found.experiment}-{figure.name}" if figure.name else found.experiment
            page.figure(path.parent / f"{stem}.svg", figure.caption)
        for table in found.tables:
            headers = [column.header for column in table.columns]
            rows = [[cell(row, column) for column in table.columns] for row in table.rows]
            page.numbers(headers, rows, table.caption)
    page.section("How this was made")
    page.code("\n".join(about["command"] for _, about in told))
    machine = about["environment"]
    page.text(
        f"ecbm {machine['ecbm']}, torch {machine['torch']}, numpy {machine['numpy']}, scipy {machine['scipy']}, "
        f"Python {machine['python']}; {machine['processor']}, {machine['cores']} cores. Seconds are the "
        "processor's, one thread a process, with what is kept between edits at hand. Closure is "
        "1 − d(edited, retrained) / d(original, retrained) over test probabilities, against the mean of the "
        "retrained seeds; the closure of retraining is one seed against the mean of the others: what a change of "
        "seed alone gives."
    )
    return page.write(path)
