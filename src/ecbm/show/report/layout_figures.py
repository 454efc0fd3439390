"""The sections with figures: how good the version is, what it decides differently, and where it fails."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from ecbm.show.page import Page
from ecbm.show.page_parts import IntervalRow, interval_rows, tiles
from ecbm.show.report.content import Material
from ecbm.show.report.layout_changes import tile_of
from ecbm.show.report.sentences import SPLITS, in_percent, interval_words, moved, shown_name, with_unit
from ecbm.words import counted, listed

__all__ = ["add_every_concept", "add_figures", "add_mistakes", "add_predictions", "audit_rows"]

_CONCEPTS, _FLIPS, _MISTAKES, _ROWS, _TABLE = 6, 12, 12, 12, 40


def add_figures(page: Page, content: dict[str, Any]) -> None:
    """How good it is, on test and validation samples."""
    if not content["figures"]:
        page.section("How good it is", content["no_figures"])
        return
    other = content["compared_with"]
    lead = "A figure in per cent is the share of labels that the model agrees with."
    if other is not None:
        lead += f" Beside it, version {other}, from which this one was made, on the same {content['noun']}s."
    page.section("How good it is", lead)
    for split in ("test", "val", "train"):
        if split in content["figures"]:
            _split(page, content, split)


def _split(page: Page, content: dict[str, Any], split: str) -> None:
    found, noun = content["figures"][split], content["noun"]
    samples = found["samples"]
    shares = [row for row in found["measures"] if row["better"] == "higher"]
    whole = [row for row in shares if row["kind"] != "concept"]
    chosen = [*whole, *_telling([row for row in shares if row["kind"] == "concept"])] if split != "val" else whole
    page.block(f"<h3>{counted(samples, f'{SPLITS[split]} {noun}')}</h3>")
    if chosen:
        lowest = min(min(_finite(row)) for row in chosen)
        scale = (max(0.0, math.floor(lowest * 10 - 1e-9) / 10), 1.0)
        marks = ["dot: this version", "bar: 95 % interval"]
        marks += ["ring: the version before"] if any(row["before"] for row in chosen) else []
        marks += (
            ["dashed line: always saying what is commonest"] if any(_guessed(row, scale) for row in chosen) else []
        )
        caption = f"{'; '.join(marks).capitalize()}. Scale {100 * scale[0]:.0f} to 100 %. One {noun} is "
        caption += f"{100 / samples:.2g} points."
        page.block(interval_rows([_share_row(row, samples, scale) for row in chosen], caption))
        if split != "val" and len(chosen) - len(whole) < len(shares) - len(whole):
            page.text("The concepts that changed most, or that are worst; all of them are in the last section.")
    numbers = [row for row in found["measures"] if row["better"] == "lower"]
    if numbers:
        rows = [_number_row(row) for row in numbers]
        caption = "Distance from the label; each scale starts at 0. Dashed line: always saying the median."
        page.block(interval_rows(rows, caption))


def _telling(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The concepts that moved most, then the worst ones, in the order of the data."""

    def moved_by(row: dict[str, Any]) -> float:
        change = row["change"]
        return abs(change["value"]) if change and change["value"] is not None else 0.0

    order = sorted(rows, key=lambda row: (-round(moved_by(row), 9), row["after"]["value"] or 0.0))
    chosen = {row["name"] for row in order[:_CONCEPTS]}
    return [row for row in rows if row["name"] in chosen]


def _finite(row: dict[str, Any]) -> list[float]:
    values = [row["after"]["low"], row["after"]["value"], (row["before"] or {}).get("value")]
    return [value for value in values if value is not None] or [0.0]


def _guessed(row: dict[str, Any], scale: tuple[float, float]) -> bool:
    return row["guess"] is not None and row["guess"] >= scale[0]


def _share_row(row: dict[str, Any], samples: int, scale: tuple[float, float]) -> IntervalRow:
    name = shown_name(row["name"]) if row["kind"] == "concept" else row["name"].capitalize()
    if row["kind"] == "concepts":
        name = f"Concepts, all {row['concepts']}"
    after, before = row["after"], row["before"]
    return IntervalRow(
        name, _number(after["value"]), _number(after["low"]), _number(after["high"]),
        in_percent(after["value"], samples), interval_words(after), scale,
        None if before is None else _number(before["value"]),
        "" if before is None else in_percent(before["value"], samples),
        moved(_nan(row["change"]), samples),
        row["guess"] if _guessed(row, scale) else None, row["kind"] != "concept",
    )  # fmt: skip


def _number_row(row: dict[str, Any]) -> IntervalRow:
    after, before, unit = row["after"], row["before"], row["unit"]
    ends = [after["high"], row["guess"], (before or {}).get("high")]
    top = max([value for value in ends if value is not None] or [1.0]) * 1.05
    name = row["name"] if row["kind"] == "number" else f"{shown_name(row['name'])}, distance"
    return IntervalRow(
        name[:1].upper() + name[1:], _number(after["value"]), _number(after["low"]), _number(after["high"]),
        with_unit(after["value"], unit), interval_words(after, unit), (0.0, top),
        None if before is None else _number(before["value"]),
        "" if before is None else with_unit(before["value"], unit),
        moved(_nan(row["change"]), after["samples"], unit), row["guess"], row["kind"] == "number",
    )  # fmt: skip


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _nan(change: dict[str, Any] | None) -> dict[str, float] | None:
    return None if change is None else {name: _number(value) for name, value in change.items()}


def add_predictions(page: Page, material: Material, where: str) -> None:
    """What the version decides differently."""
    content = material.content
    found = {split: flips for split, flips in content["predictions"].items() if flips is not None}
    if not found:
        return
    number, noun = content["about"]["number"], content["noun"]
    words = []
    for split in ("test", "val", "train"):
        if split in found:
            flips = found[split]
            verb = "moved" if number else "changed class"
            words.append(f"{flips['changed']:,} of {counted(flips['samples'], f'{SPLITS[split]} {noun}')} {verb}")
    page.section("What it decides differently", f"Against version {content['compared_with']}: {'; '.join(words)}.")
    for split in ("test", "val"):
        # Every number moves a little: those of the test are enough to look at.
        if split in found and not (number and split == "val" and "test" in found):
            _flips(page, material, found[split], split, where)


def _flips(page: Page, material: Material, flips: dict[str, Any], split: str, where: str) -> None:
    content = material.content
    items, unit = flips["items"], content["about"]["unit"]
    if content["about"]["number"]:
        rows = [
            (one["id"], *(with_unit(one[name], "") for name in ("before", "after", "label")))
            for one in items[:_ROWS]
        ]
        if rows:
            caption = f"{SPLITS[split].capitalize()}: those that moved farthest{f', in {unit}' if unit else ''}"
            page.table([content["noun"], "before", "now", "label"], rows, caption=caption)
            _more(page, len(items), len(rows), where)
    elif items:
        counts = {name: sum(one["became"] == name for one in items) for name in ("right", "wrong", "still wrong")}
        said = [
            f"{count} became {name}" if name != "still wrong" else f"{count} stayed wrong"
            for name, count in counts.items()
            if count
        ]
        title = f"{SPLITS[split].capitalize()} {content['noun']}s: {', '.join(said)}"
        _items(page, material, title, items, _FLIPS, where)
    concepts = flips["concepts"]
    if concepts:
        words = listed([f"{shown_name(name)} ({count})" for name, count in concepts.items()], 8)
        page.text(f"Concepts answered differently, by how many {SPLITS[split]} {content['noun']}s: {words}.")


def _items(page: Page, material: Material, title: str, items: list[dict[str, Any]], most: int, where: str) -> None:
    shown = [tile_of(material, one["id"], _flip_lines(one), one["became"] != "right") for one in items[:most]]
    if any(tile.picture for tile in shown):
        page.block(f"<h3>{escape(title)}</h3>{tiles(shown)}")
    else:
        rows = [(one["id"], one["before"], one["after"], one["label"], one["became"]) for one in items[:most]]
        page.table([material.content["noun"], "before", "now", "label", "became"], rows, caption=title)
    _more(page, len(items), len(shown), where)


def _flip_lines(one: dict[str, Any]) -> list[tuple[str, str]]:
    wrong = one["became"] != "right"
    lines = [("was", str(one["before"])), ("wrong" if wrong else "now", str(one["after"]))]
    lines.append(("line", f"labelled {one['label']}" if wrong else "now as labelled"))
    return [*lines, ("meta", one["id"])]


def add_mistakes(page: Page, material: Material, where: str) -> None:
    """Where it fails: samples with the wrong answer, most certain first."""
    content = material.content
    split = next((name for name in ("test", "val", "train") if name in content["mistakes"]), None)
    if split is None:
        return
    found, noun, unit = content["mistakes"][split], content["noun"], content["about"]["unit"]
    total = content["figures"][split]["samples"]
    if content["about"]["number"]:
        page.section("Where it fails", f"The {SPLITS[split]} {noun}s that it is farthest off, worst first.")
        rows = [
            (one["id"], *(with_unit(one[name], "") for name in ("said", "label", "off"))) for one in found[:_ROWS]
        ]
        page.table([noun, "it says", "label", "off by"], rows, caption=f"In {unit}" if unit else "")
        _more(page, len(found), len(rows), where)
        return
    if not found:
        page.section("Where it fails", f"No {SPLITS[split]} {noun} of {total:,} has the wrong class.")
        return
    page.section(
        "Where it fails",
        f"{len(found):,} of {counted(total, f'{SPLITS[split]} {noun}')} have the wrong class; most certain first.",
    )
    shown = [tile_of(material, one["id"], _mistake_lines(one), True) for one in found[:_MISTAKES]]
    if any(tile.picture for tile in shown):
        page.block(tiles(shown))
    else:
        rows = [(one["id"], one["said"], f"{one['confidence']:.0%}", one["label"]) for one in found[:_MISTAKES]]
        page.table([noun, "it says", "certain", "label"], rows)
    _more(page, len(found), len(shown), where)


def _mistake_lines(one: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("wrong", one["said"]),
        ("line", f"{one['confidence']:.0%} certain"),
        ("line", f"labelled {one['label']}"),
        ("meta", one["id"]),
    ]


def audit_rows(audit: dict[str, Any]) -> str:
    """An audit's figures: the edit between its two controls."""
    named = {
        "Doing nothing (must be caught)": audit["controls"]["noop"],
        "This version": audit["edit"],
        "Retraining without the data (must pass)": audit["controls"]["retrain"],
    }
    rows = [
        IntervalRow(
            name, one["auc"], one["low"], one["high"],
            f"{one['auc']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}",
            (0.4, 1.0), mark=0.5, strong=name == "This version",
        )
        for name, one in named.items()
        if one is not None
    ]  # fmt: skip
    if not rows:
        return ""
    caption = (
        "How well the data in question can be told from data that the model never saw: 0.50 is guessing (dashed "
        "line), 1.00 is always. Scale 0.4 to 1."
    )
    return interval_rows(rows, caption, ("", "recognised", "95 % interval", ""))


def add_every_concept(page: Page, content: dict[str, Any], where: str) -> None:
    """The appendix: every concept, on test samples."""
    split = next((name for name in ("test", "val", "train") if name in content["figures"]), None)
    if split is None:
        return
    found = content["figures"][split]
    rows = [row for row in found["measures"] if row["kind"] == "concept"]
    if not rows:
        return
    samples, compared = found["samples"], content["compared_with"] is not None
    where_from = counted(samples, f"{SPLITS[split]} {content['noun']}")
    page.section("Every concept", f"On {where_from}, worst first.")
    rows = sorted(rows, key=lambda row: (row["better"] == "lower", row["after"]["value"] or 0.0))
    headers = ["concept", "present", *(["before"] if compared else []), "now", "95 % interval"]
    headers += ["change"] if compared else []
    page.table([*headers, "commonest"], [_concept_cells(row, samples, compared) for row in rows[:_TABLE]])
    if len(rows) > _TABLE:
        page.text(f"And {len(rows) - _TABLE:,} more, in {where}.")
    page.text(
        "Present: how many are labelled as having it. Commonest: what always giving the commonest answer would "
        "reach; a concept that does no better has not been learnt."
    )


def _concept_cells(row: dict[str, Any], samples: int, compared: bool) -> list[str]:
    unit = row["unit"] if row["better"] == "lower" else None

    def said(value: float | None) -> str:
        return in_percent(value, samples) if unit is None else with_unit(value, unit)

    before = said(row["before"]["value"]) if row["before"] else "new"
    cells = [shown_name(row["name"]), f"{row['present']:,}" if row.get("present") is not None else "–"]
    cells += [before] if compared else []
    cells += [said(row["after"]["value"]), interval_words(row["after"], unit)]
    cells += [moved(_nan(row["change"]), samples, unit)] if compared else []
    return [*cells, said(row["guess"])]


def _more(page: Page, total: int, shown: int, where: str) -> None:
    if total > shown:
        page.text(f"And {total - shown:,} more, in {where}.")
