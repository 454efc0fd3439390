"""What a report cannot say, in plain words: chosen by what is true of this version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecbm.show.report.sentences import shown_name
from ecbm.words import counted, listed

__all__ = ["limits_of"]

_RARE = 10


def limits_of(content: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each limit with a short title."""
    noun, found = content["noun"], []

    def say(title: str, words: str) -> None:
        found.append({"title": title, "words": words})

    if content["figures"]:
        say(
            "Other places",
            f"The figures hold for {noun}s like those it was tested on. They say nothing about another hospital, "
            "device, season or group of people that these do not contain.",
        )
        say(
            "The labels are taken for the truth",
            "A figure says how often the model agrees with the labels. Where labels are wrong, it may agree with "
            "the mistake or be counted as wrong for being right.",
        )
        say(
            "What an interval means",
            f"It says how much the figure could differ had other {noun}s of the same kind been drawn for the test. "
            "It does not cover wrong labels, other places, or that somebody looked at the test before choosing.",
        )
    else:
        say("No figures", content["no_figures"])
    rare = [
        shown_name(row["name"])
        for row in content["figures"].get("test", {}).get("measures", [])
        if row.get("present") is not None and row["present"] < _RARE
    ]
    if rare:
        say(
            "Rarely seen",
            f"{counted(len(rare), 'concept')} {'is' if len(rare) == 1 else 'are'} present in fewer than {_RARE} "
            f"test {noun}s ({listed(rare)}): their figures say little about {noun}s that show them.",
        )
    if "test" not in content["figures"] and content["figures"]:
        say("No test", "There is no test split; the figures are of data by which the model may have been chosen.")
    if content["version"]["kind"] in ("edit", "erase") and content["compared_with"] is None:
        say(
            "No comparison",
            "The version before this one was destroyed by an erasure, so predictions that changed cannot be shown.",
        )
    if content["certificate"]["proven"]:
        say(
            "What is proven", f"Not covered by the certificate: {'; '.join(content['certificate']['not_covered'])}."
        )
    audit = content["checks"]["audit"]
    if audit is None or not audit["recognition"]:
        say(
            "No audit",
            "No membership audit came with this report: whether removed data can still be recognised in the model "
            "was not tried. 'ecbm verify' does that.",
        )
    else:
        say(
            "What an audit assumes",
            "It looks at the model as somebody would who can ask it questions. It cannot catch an owner who keeps "
            "another copy, or who shows another model than the one in use.",
        )
    say(
        "Who and why",
        "Names and reasons are as they were typed; nobody's identity was checked. The ledger notices any change of "
        "its past as long as one of its hashes is kept elsewhere; who can write to the folder can write it all "
        "anew.",
    )
    if content["erasures"]:
        say(
            "Erasures",
            "An erasure reaches everything in the workspace, but not the files the data came from, copies and "
            "backups elsewhere, or earlier reports.",
        )
    say(
        "This file",
        f"It may hold {noun}s and labels of people. A later erasure does not reach it unless it lies in the "
        "workspace's exports folder: destroy it, and write a new one, when somebody is erased.",
    )
    return found
