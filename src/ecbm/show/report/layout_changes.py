"""The section on what was changed: alike corrections together with their pictures, or label by label."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ecbm.show.page import Page
from ecbm.show.page_parts import Tile, thumbnail, tiles
from ecbm.show.report.content import Material
from ecbm.show.report.sentences import shown_name
from ecbm.words import counted, listed

__all__ = ["add_changes", "tile_of"]

_GROUPS, _TILES, _ROWS = 6, 8, 12


def add_changes(page: Page, material: Material, where: str) -> None:
    """Add the section, if the version changed any data."""
    content = material.content
    changes, noun = content["changes"], content["noun"]
    fields = ("concept_labels", "class_labels", "removed", "added", "concepts_removed", "concepts_added")
    if not any(changes[name] for name in fields) and not changes["destroyed"]:
        return
    page.section("What was changed", _lead(changes, noun))
    pictures = _has_pictures(material, changes)
    if changes["groups"] and pictures:
        _label_groups(page, material, changes["groups"], where)
    elif changes["groups"]:
        labels = [
            (one["id"], shown_name(one["concept"]), one["was"] or "–", one["is"])
            for one in changes["concept_labels"][:_ROWS]
        ]
        page.table([noun, "concept", "label was", "label is"], labels, caption="Concept labels")
        _more(page, len(changes["concept_labels"]), _ROWS, where)
    if changes["class_labels"]:
        target = content["about"]["target"] if content["about"] else "class"
        about = content["about"] or {"number": False, "unit": ""}
        number, unit = bool(about["number"]), str(about["unit"])
        rows = [
            (one["id"], _said(one["was"], number), _said(one["is"], number))
            for one in changes["class_labels"][:_ROWS]
        ]
        headers = [noun, f"{target} was", f"{target} is"]
        page.table(headers, rows, caption=f"Labels of the {target}{f', in {unit}' if unit else ''}")
        _more(page, len(changes["class_labels"]), _ROWS, where)
    for name, words in (("removed", "no longer learnt from"), ("added", "newly learnt from")):
        _samples(page, material, changes[name], f"{counted(len(changes[name]), noun)} {words}", where)
    if changes["concepts_removed"]:
        page.text(f"Concepts removed: {listed(map(shown_name, changes['concepts_removed']), 12)}.")
    if changes["concepts_added"]:
        added = [f"{shown_name(name)} ({counted(n, 'label')})" for name, n in changes["concepts_added"].items()]
        page.text(f"Concepts added: {listed(added, 12)}.")
    if changes["destroyed"]:
        verb = "was" if changes["destroyed"] == 1 else "were"
        page.text(
            f"{counted(changes['destroyed'], 'detail')} of this version {verb} destroyed by an erasure and cannot "
            "be shown any more."
        )


def tile_of(material: Material, sample: str, lines: Sequence[tuple[str, str]] = (), wrong: bool = False) -> Tile:
    """A tile with the picture of a sample."""
    picture = material.picture(sample)
    return Tile(
        None if picture is None else thumbnail(picture), f"{material.content['noun']} {sample}", lines, wrong
    )


def _lead(changes: dict[str, Any], noun: str) -> str:
    labels = changes["concept_labels"]
    if not labels:
        return ""
    samples = len({one["id"] for one in labels})
    return f"{counted(len(labels), 'concept label')} of {counted(samples, noun)}, by what was changed in them."


def _has_pictures(material: Material, changes: dict[str, Any]) -> bool:
    return any(material.picture(one["ids"][0]) is not None for one in changes["groups"][:_GROUPS])


def _label_groups(page: Page, material: Material, groups: Sequence[dict[str, Any]], where: str) -> None:
    blocks = []
    for group in groups[:_GROUPS]:
        shown = [tile_of(material, sample) for sample in group["ids"][:_TILES]]
        more = len(group["ids"]) - len(shown)
        note = f'<p class="small more">and {more:,} more</p>' if more > 0 else ""
        blocks.append(
            f'<div class="group"><div><p><b>{escape(shown_name(group["concept"]))}</b></p>'
            f'<p class="small">{_dots(group)} {counted(group["count"], "label")}</p></div>'
            f"<div>{tiles(shown, small=True)}{note}</div></div>"
        )
    page.block("".join(blocks))
    left = groups[_GROUPS:]
    if left:
        total = sum(group["count"] for group in left)
        page.text(f"And {counted(total, 'more label')} of {counted(len(left), 'other kind')}, in {where}.")
    else:
        page.text(f"All of them by id: in {where}.")


def _dots(group: dict[str, Any]) -> str:
    """What the labels were and are: an open dot for absent, a filled one for present, words for all else."""
    if group["was"] is None and group["is"] is None:
        return "other values,"
    return f'<span class="dots">{_dot(group["was"])} → {_dot(group["is"])}</span>,'


def _dot(value: str | None) -> str:
    if value is None:
        return "not recorded"
    if value in ("present", "absent", "missing"):
        return f'<span class="dot {value}" aria-hidden="true"></span> {value}'
    return escape(value)


def _samples(page: Page, material: Material, ids: Sequence[str], title: str, where: str) -> None:
    if not ids:
        return
    shown = [tile_of(material, sample, [("meta", sample)]) for sample in ids[:_TILES]]
    if any(tile.picture for tile in shown):
        page.block(f"<h3>{escape(title)}</h3>{tiles(shown)}")
        _more(page, len(ids), len(shown), where)
    else:
        page.text(f"{title}: {', '.join(ids[:_ROWS])}.")
        _more(page, len(ids), _ROWS, where)


def _said(value: Any, number: bool) -> str:
    return "–" if value is None else f"{float(value):.6g}" if number else str(value)


def _more(page: Page, total: int, shown: int, where: str) -> None:
    if total > shown:
        page.text(f"And {total - shown:,} more, in {where}.")
