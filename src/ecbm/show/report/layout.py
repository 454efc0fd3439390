"""The report as a page: sections in the order in which somebody asks who did not make the model."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from ecbm.show.page import Page
from ecbm.show.page_parts import HistoryRow, columns, facts, history_rows, notice
from ecbm.show.report.content import Material
from ecbm.show.report.layout_changes import add_changes
from ecbm.show.report.layout_figures import (
    add_every_concept,
    add_figures,
    add_mistakes,
    add_predictions,
    audit_rows,
)
from ecbm.show.report.sentences import day_and_time, written
from ecbm.words import counted

__all__ = ["page_of"]

_VERSIONS = 12
_KINDS = {"init": "data taken in", "train": "trained", "edit": "edited", "erase": "erased from"}


def page_of(material: Material, complete: str = "") -> Page:
    """The page.

    Parameters
    ----------
    material
        What :func:`ecbm.show.report.content.gather` found.
    complete
        The name of the file that holds the complete lists.
    """
    content = material.content
    version = content["version"]
    entries = content["integrity"]["ledger_entries"]
    above = f"Report on one version of a model, as the ledger stands at entry {entries:,}"
    title = f"{content['workspace']}, version {version['number']}"
    page = Page(title, content["about_words"], above, style=["report"])
    page.block(f'<p class="summary">{escape(content["summary"])}</p>')
    page.block(columns(_signed(content), _certificate(content) + _to_know(content)))
    where = complete or "the JSON of this report"
    add_changes(page, material, where)
    add_figures(page, content)
    add_predictions(page, material, where)
    add_mistakes(page, material, where)
    _checks(page, content)
    _history(page, content, where)
    _limits(page, content)
    _again(page, content)
    add_every_concept(page, content, where)
    return page


def _signed(content: dict[str, Any]) -> str:
    version, quick = content["version"], content["checks"]["quick"] or {}
    pairs = {
        "What": version["what"],
        "Who": version["author"] or "destroyed by an erasure",
        "When": day_and_time(version["time"]),
        "Why": version["reason"] or "no reason was given",
    }
    if version["parent"] is not None:
        pairs["Made from"] = f"version {version['parent']}"
    if quick.get("method"):
        pairs["How"] = f"method “{quick['method']}”"
    pairs["State"] = _state(content)
    return facts(pairs)


def _state(content: dict[str, Any]) -> str:
    own = next(row for row in content["history"] if row["shown"])
    if not own["kept"]:
        return "destroyed by an erasure; only its line in the ledger is left"
    if own["current"]:
        return "the current version"
    current = next(row["version"] for row in content["history"] if row["current"])
    return f"{'undone' if own['undone'] else 'replaced'}; version {current} is the current one"


def _certificate(content: dict[str, Any]) -> str:
    found = content["certificate"]
    kind = "certified" if found["proven"] else "open"
    values = found["values"] or {}
    remarks = [] if not found["proven"] else [*found["not_covered"]]
    words = found["words"]
    if found["proven"] and values.get("label_distance") is not None:
        distance = max(values["label_distance"], values.get("concept_distance") or 0.0)
        words += f" Proven distance to that optimum: at most {written(distance, 2)}."
    return notice(kind, found["heading"], words, remarks, "The proof does not cover")


def _to_know(content: dict[str, Any]) -> str:
    remarks = []
    if not content["integrity"]["ok"]:
        remarks += content["integrity"]["problems"]
    warning = (content["checks"]["quick"] or {}).get("warning")
    remarks += [warning] if warning else []
    audit = content["checks"]["audit"]
    if audit is not None and audit["verdict"] != "passed":
        remarks.append(audit["words"])
    flips = content["predictions"].get("test") or {}
    worse = sum(one.get("became") == "wrong" for one in flips.get("items", []))
    if worse:
        remarks.append(
            f"{counted(worse, 'test ' + content['noun'])} that used to be right {_are(worse)} wrong now."
        )
    fallen = [
        row for row in content["figures"].get("test", {}).get("measures", [])
        if row["change"] and row["change"]["high"] is not None and row["kind"] == "concept" and _fell(row)
    ]  # fmt: skip
    if fallen:
        remarks.append(
            f"{counted(len(fallen), 'concept')} got worse by more than chance explains; see the figures."
        )
    if not remarks:
        return ""
    return notice("know", "To know before you rely on it", "", remarks)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _fell(row: dict[str, Any]) -> bool:
    change = row["change"]
    return bool(change["high"] < 0 if row["better"] == "higher" else change["low"] > 0)


def _checks(page: Page, content: dict[str, Any]) -> None:
    page.section("What was checked", "When the version was made, and again when this report was written.")
    quick, integrity = content["checks"]["quick"], content["integrity"]
    pairs = {}
    if quick is not None and quick.get("why"):
        pairs["How it was made"] = quick["why"]
    if quick is not None and "residual" in quick:
        rest = quick["residual"]
        pairs["Left to do"] = (
            f"slope left in the concept head {_small(rest.get('concept_head'))}, in the label head "
            f"{_small(rest.get('label_head'))} (0 at the retrained optimum)"
        )
    if quick is not None and "objective" in quick:
        before, after = quick["objective"]["before"], quick["objective"]["after"]
        words = [f"{name} {_small(before.get(name))} → {_small(after[name])}" for name in after]
        pairs["Fit to the edited data"] = f"{', '.join(words)} (lower is better)"
    if quick is not None and quick.get("traces"):
        pairs["Traces"] = str(quick["traces"].get("words", ""))
    promise = content["checks"]["removal"]
    if promise is not None:
        odds, chance = math.exp(promise["epsilon"]), written(promise["delta"], 2)
        pairs["Certified removal"] = (
            f"whoever guesses from this model whether a removed {content['noun']} was ever there gains at most a "
            f"factor of {odds:.2g} in the odds (ε = {promise['epsilon']:g}), but for a chance of {chance} (δ)"
        )
    pairs["Ledger"] = (
        f"entries 1 to {integrity['ledger_entries']:,}, the chain is unbroken"
        if integrity["ok"]
        else "; ".join(integrity["problems"])
    )
    pairs["Its last hash"] = integrity["ledger_hash"]
    codes = ["Its last hash"]
    for name, found in integrity["fingerprints"].items():
        key = f"Fingerprint of the {name}"
        pairs[key] = f"{found['computed']} {'as recorded' if found['same'] else 'NOT as recorded'}"
        codes.append(key)
    page.block(facts(pairs, codes))
    audit = content["checks"]["audit"]
    if audit is not None:
        what = "Audit" if audit["recognition"] else "Quick check"
        page.block(notice("plain", f"{what}: {audit['verdict']}", audit["words"]))
        page.block(audit_rows(audit))


def _small(value: float | None) -> str:
    return "–" if value is None else written(value, 3)


def _history(page: Page, content: dict[str, Any], where: str) -> None:
    page.section("History", "Every version, newest first, with the hash of its line in the ledger.")
    rows = content["history"]
    shown = rows[:_VERSIONS]
    if not any(row["shown"] for row in shown):
        shown = [*shown, *(row for row in rows if row["shown"])]
    page.block(history_rows([_history_row(row) for row in shown]))
    if len(rows) > len(shown):
        page.text(f"And {len(rows) - len(shown):,} more, in {where}.")
    if content["erasures"]:
        page.section(
            "Erasures",
            "That an erasure happened is kept: when, by whom, why, and of how many. Whose record it was is not.",
        )
        page.table(
            ["version", "when", "who", "why", f"{content['noun']}s", "details destroyed"],
            [
                (
                    str(one["version"]), day_and_time(one["time"]), one["author"] or "(erased)",
                    one["reason"] or "–",
                    one["samples"] if one["samples"] is not None else "–", one["details_destroyed"] or 0,
                )
                for one in content["erasures"]
            ],
        )  # fmt: skip


def _history_row(row: dict[str, Any]) -> HistoryRow:
    state = "current" if row["current"] else "undone" if row["undone"] else "plain"
    chips = [name for name in ("current", "undone") if row[name]]
    chips += ["this report"] if row["shown"] else []
    if not row["kept"]:
        state, chips = "gone", [*chips, "arrays destroyed by an erasure"]
    meta = f"{row['author'] or '(erased)'}, {day_and_time(row['time'])}"
    number = f"{row['hash'][:8]}…{row['hash'][-4:]}" if row["hash"] else ""
    return HistoryRow(row["version"], row["what"], row["reason"] or "", meta, number, chips, state)


def _limits(page: Page, content: dict[str, Any]) -> None:
    page.section("What this report cannot say")
    rows = "".join(
        f"<div><dt>{escape(one['title'])}</dt><dd>{escape(one['words'])}</dd></div>" for one in content["limits"]
    )
    page.block(f'<dl class="limits">{rows}</dl>')


def _again(page: Page, content: dict[str, Any]) -> None:
    page.section("How to check this yourself", "In the folder that holds the workspace:")
    commands = content["reproduce"]["commands"]
    page.code("\n".join(f"# {one['what']}\n{one['command']}" for one in commands))
    facts_of = content["reproduce"]["environment"]
    if facts_of:
        names = {"ecbm": "ecbm", "torch": "torch", "numpy": "NumPy", "scipy": "SciPy", "python": "Python"}
        versions = ", ".join(f"{text} {facts_of[name]}" for name, text in names.items() if name in facts_of)
        machine = f"{facts_of.get('machine', '')} ({facts_of.get('capability', '')})"
        page.text(
            f"This version was computed with {versions} on {machine}, {counted(facts_of['threads'], 'thread')}."
        )
    if not content["figures"]:
        return
    draws = content["reproduce"]["bootstrap_draws"]
    page.text(
        f"Intervals: {draws:,} draws of whole {content['noun']}s with replacement (bootstrap, percentiles 2.5 and "
        "97.5), because labels of one are not independent; both versions on the same draws. Where nothing was "
        "wrong, or everything, the exact interval of Clopper and Pearson stands instead."
    )
