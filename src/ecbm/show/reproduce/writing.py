"""Findings as files: Markdown, CSV and JSON, and figures as SVG and PNG."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from ecbm.files import write_json, write_text
from ecbm.keep.plain import plain
from ecbm.show.reproduce.figures import save_figure
from ecbm.show.reproduce.findings import Findings, Table, cell, shown_columns
from ecbm.words import counted

__all__ = ["made_with", "markdown", "write_findings"]


def _stem(found: Findings, name: str) -> str:
    return f"{found.experiment}-{name}" if name else found.experiment


def _table_lines(table: Table) -> list[str]:
    columns = shown_columns(table)
    headers = [column.header.replace("|", r"\|") for column in columns]
    sides = ["---:" if column.form else "---" for column in columns]
    lines = [f"| {' | '.join(headers)} |", f"|{'|'.join(sides)}|"]
    for row in table.rows:
        cells = [cell(row, column).replace("|", r"\|") for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(found: Findings, about: dict[str, Any]) -> str:
    """What was found, the figures, the details and the tables as a page of Markdown."""
    lines = [f"# {found.title}", "", about["words"], "", " ".join(found.lead)]
    for figure in found.figures:
        lines += ["", f"![{figure.caption}]({_stem(found, figure.name)}.svg)"]
    for detail in found.details:
        lines += ["", f"**{detail.heading}**", "", *(f"- {sentence}" for sentence in detail.sentences)]
    for table in found.tables:
        lines += ["", f"## {table.caption or 'The numbers'}", "", *_table_lines(table)]
    lines += ["", "## How this was made", "", f"`{about['command']}`; {made_with(about)}."]
    return "\n".join(lines) + "\n"


def made_with(about: dict[str, Any]) -> str:
    """Versions and machine."""
    machine = about["environment"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("ecbm", "torch", "numpy", "scipy"))
    return f"{versions}, Python {machine['python']}; {machine['processor']}, {counted(machine['cores'], 'core')}"


def _csv(table: Table) -> str:
    out = io.StringIO()
    keys = list(dict.fromkeys(key for column in table.columns for key in column.keys))
    writer = csv.DictWriter(out, keys, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return out.getvalue()


def write_findings(found: Findings, folder: Path, about: dict[str, Any]) -> list[Path]:
    """Write everything into one folder; returns the files, the JSON last."""
    paths = []
    for table in found.tables:
        paths.append(folder / f"{_stem(found, table.name)}.csv")
        write_text(paths[-1], _csv(table))
    for figure in found.figures:
        paths += save_figure(figure, folder, _stem(found, figure.name))
    paths.append(folder / f"{found.experiment}.md")
    write_text(paths[-1], markdown(found, about))
    value = {
        "experiment": found.experiment,
        "title": found.title,
        **about,
        "summary": found.summary,
        "sentences": found.sentences,
        "tables": [
            {"name": table.name, "caption": table.caption, "rows": list(table.rows)} for table in found.tables
        ],
    }
    paths.append(folder / f"{found.experiment}.json")
    write_json(paths[-1], plain(value))
    return paths
