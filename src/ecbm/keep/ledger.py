"""The ledger: an append-only list of what was done, each entry chained to the one before it by a hash.

An entry has a public part (kind, versions, counts) and details (author, reason, edit, report, fingerprints).
A detail is not hashed itself: the entry holds commitments H(salt ‖ part ‖ subject ‖ content), each with its own
random salt of 32 bytes. Destroying a detail with its salt leaves the chain intact and verifiable, while the
commitment that is left says nothing about what it was made of, not even to one who guesses right. What names a
sample is a detail of its own for each sample, so that erasing one takes nothing from the others.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from ecbm.keep import durable

__all__ = ["Detail", "append", "canonical", "details_of", "now", "verify"]

_SIZE = 32
_START = bytes(_SIZE)


@dataclasses.dataclass(frozen=True)
class Detail:
    """One part of an entry that can be destroyed on its own: a JSON value, about a sample or about none."""

    part: str
    content: Any
    subject: str | None = None


def now() -> str:
    """The time, in UTC, as text that sorts."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical(value: Any) -> str:
    """A JSON value as text, always the same for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _commitment(salt: bytes, part: str, subject: str | None, content: str) -> bytes:
    total = hashlib.blake2b(salt, digest_size=_SIZE)
    for text in (part, "" if subject is None else "=" + subject, content):
        encoded = text.encode("utf-8", "surrogatepass")
        total.update(len(encoded).to_bytes(8, "big") + encoded)
    return total.digest()


def _entry_hash(previous: bytes, sequence: int, public: str, commitments: bytes) -> bytes:
    total = hashlib.blake2b(previous, digest_size=_SIZE)
    encoded = public.encode()
    total.update(sequence.to_bytes(8, "big") + len(encoded).to_bytes(8, "big") + encoded + commitments)
    return total.digest()


def append(connection: sqlite3.Connection, public: dict[str, Any], details: Sequence[Detail]) -> int:
    """Add an entry inside the caller's transaction; returns its number."""
    durable.step("ledger entry", "ledger")
    last = connection.execute("SELECT sequence, hash FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
    sequence, previous = (last[0] + 1, last[1]) if last else (1, _START)
    rows, commitments = [], []
    for position, detail in enumerate(details):
        salt, content = secrets.token_bytes(_SIZE), canonical(detail.content)
        commitments.append(_commitment(salt, detail.part, detail.subject, content))
        rows.append((sequence, position, detail.part, detail.subject, salt, content))
    text, joined = canonical(public), b"".join(commitments)
    connection.execute(
        "INSERT INTO ledger VALUES (?, ?, ?, ?)",
        (sequence, text, joined, _entry_hash(previous, sequence, text, joined)),
    )
    connection.executemany("INSERT INTO details VALUES (?, ?, ?, ?, ?, ?)", rows)
    return sequence


def details_of(
    connection: sqlite3.Connection, sequences: Iterable[int], parts: Sequence[str] | None = None, most: int = -1
) -> dict[int, list[Detail]]:
    """The details that are left of some entries, at most ``most`` of each."""
    found: dict[int, list[Detail]] = {}
    # One query an entry: each is a short walk along the primary key, and ``most`` bounds it.
    chosen = f" AND part IN ({', '.join('?' * len(parts))})" if parts else ""
    for sequence in sequences:
        rows = connection.execute(
            f"SELECT part, content, subject FROM details WHERE sequence = ?{chosen} ORDER BY position LIMIT ?",
            (sequence, *(parts or ()), most),
        )
        found[sequence] = [Detail(part, json.loads(content), subject) for part, content, subject in rows]
    return found


def verify(connection: sqlite3.Connection) -> list[str]:
    """Everything that is wrong with the chain or with the details that are left."""
    problems: list[str] = []
    previous, expected, missing, destroyed = _START, 1, 0, 0
    details = connection.execute(
        "SELECT sequence, position, part, subject, salt, content FROM details ORDER BY sequence, position"
    )
    detail = details.fetchone()
    for sequence, public, commitments, found in connection.execute("SELECT * FROM ledger ORDER BY sequence"):
        if sequence != expected:
            problems.append(f"ledger: entry {expected} is missing")
            expected = sequence
        expected += 1
        if _entry_hash(previous, sequence, public, commitments) != found:
            problems.append(
                f"ledger: entry {sequence} does not fit the one before it (changed after it was written)"
            )
        previous = found
        destroyed += json.loads(public).get("details_destroyed", 0)
        left = 0
        while detail is not None and detail[0] <= sequence:
            at = detail[1] * _SIZE
            if detail[0] != sequence or _commitment(detail[4], *_texts(detail)) != commitments[at : at + _SIZE]:
                problems.append(f"ledger: a detail ({detail[2]}) of entry {detail[0]} was changed")
            left += 1
            detail = details.fetchone()
        missing += len(commitments) // _SIZE - left
    if detail is not None:
        problems.append(f"ledger: details of entry {detail[0]}, which does not exist")
    if missing != destroyed:
        problems.append(f"ledger: {missing} details are gone, but erasures account for {destroyed}")
    return problems


def _texts(row: tuple[Any, ...]) -> tuple[str, str | None, str]:
    return row[2], row[3], row[5]
