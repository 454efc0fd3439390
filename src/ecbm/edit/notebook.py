"""An editor and its results as a person sees them in a notebook or at a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ecbm import html
from ecbm.words import done, summary_of, summary_words

if TYPE_CHECKING:
    from ecbm.read.dataset import Dataset
    from ecbm.train.model import ConceptBottleneck

__all__ = ["editor_html", "result_html", "result_words"]


def result_words(report: Mapping[str, Any]) -> str:
    """The sentence about an edit, as ``ecbm show`` prints it, and what may be unexpected about it."""
    words = done(report["edit"]) if report["edit"] != "nothing" else "changed nothing"
    return "; ".join([summary_words(summary_of(report, words)), *report.get("notes", [])])


def result_html(report: Mapping[str, Any]) -> str:
    """The same with the figures behind it."""
    rows: list[tuple[str, str]] = []
    objective = report.get("objective")
    if objective:
        for name, after in objective["after"].items():
            rows.append((f"objective of {name}", f"{_figure(objective['before'][name])} → {_figure(after)}"))
    certificate = report.get("certificate")
    if certificate:
        rows.append(("certificate covers", certificate["covers"]))
    rows += [(f"not covered: {name}", why) for name, why in (report.get("not_covered") or {}).items()]
    if report.get("warning"):
        rows.append(("warning", report["warning"]))
    rows.append(("seconds", f"{sum(report['seconds'].values()):.2f}"))
    why = (report.get("settings") or {}).get("why")
    lines = [f"method {report['method']}" + (f": {why}" if why else "")]
    return html.block(result_words(report), lines, ("", ""), rows)


def editor_html(model: ConceptBottleneck, data: Dataset, kept: Sequence[str]) -> str:
    """What an editor works on, and what it has computed and kept."""
    lines = [repr(model), repr(data), f"kept for later edits: {', '.join(kept) or 'nothing yet'}"]
    return html.block("Editor", lines)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
