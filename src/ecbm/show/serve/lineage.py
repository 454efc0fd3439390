"""Versions as a line: which lead to the current one, which were undone, and what each did in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ecbm.show.serve.filters import query_of
from ecbm.show.serve.schemas import Edited
from ecbm.show.serve.words import for_people

if TYPE_CHECKING:
    from ecbm.keep.records import Version
    from ecbm.show.serve.state import Bench

__all__ = ["ancestors", "edited_lines", "state_of", "undone"]


def ancestors(versions: list[Version], number: int) -> list[Version]:
    """A version and those it came from, newest first."""
    known = {version.version: version for version in versions}
    line: list[Version] = []
    at: int | None = number
    while at is not None and at in known:
        line.append(known[at])
        at = known[at].parent
    return line


def state_of(version: Version, head: int, line: set[int]) -> Literal["current", "plain", "undone", "erased"]:
    """How a version stands to the current one."""
    if version.version == head:
        return "current"
    if not version.kept:
        return "erased"
    return "plain" if version.version in line else "undone"


def undone(bench: Bench) -> dict[int, dict[str, Any]]:
    """From versions to the last ledger entry that undid them."""
    found: dict[int, dict[str, Any]] = {}
    for entry in bench.records.entries():
        if entry["kind"] == "undo" and entry["from"] not in found:
            found[entry["from"]] = entry
    return found


def edited_lines(bench: Bench, most: int) -> list[Edited]:
    """The last versions, newest first."""
    everything = bench.records.versions()
    head, pictures = bench.head.version, bench.current().pictures
    line = {version.version for version in ancestors(everything, head)}
    shown = everything[:most]
    return [
        Edited(
            version=version.version,
            words=for_people(str(version.summary.get("words", "")), pictures),
            author=item["author"],
            time=version.time,
            state=state_of(version, head, line),
            query=query_of(changed=version.version),
        )
        for version, item in zip(shown, bench.records.described(shown, 10), strict=True)
    ]
