"""Suspicious labels: computed in the background on first need, kept for each version, and asked about one by one.

What finds them is called in one place, :func:`find`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecbm.keep import durable
from ecbm.keep.staged import keep_unless_erased

if TYPE_CHECKING:
    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench
    from ecbm.verify.suggest.read_answers import Answer

__all__ = ["Suspicion", "find", "job_of", "sample_scores", "suspicious"]

_MOST = 20_000
# Labels that are wrong with less than this chance are not worth a question.
_LEAST = 0.5
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Suspicion:
    """A label that is probably wrong; ``concept`` is ``None`` for the class."""

    sample: str
    concept: str | None
    value: float | str
    score: float
    reasons: tuple[str, ...] = ()


def find(snapshot: Snapshot, annotators: dict[str, str], answers: list[Answer]) -> list[Suspicion]:
    """The one place that decides which labels are suspicious, best first."""
    from ecbm.verify.suggest.inspection import Inspection

    if "inspection" not in snapshot.kept:
        snapshot.kept["inspection"] = Inspection.of(snapshot.model, snapshot.data, by=annotators or None)
    found = snapshot.kept["inspection"].suggestions(answers, least=_LEAST, limit=_MOST)
    ranked = sorted((*found.suggestions, *found.rare), key=lambda one: (-one.score, one.id, one.concept or ""))
    return [Suspicion(one.id, one.concept, one.value, float(one.score), tuple(one.reasons)) for one in ranked]


def suspicious(bench: Bench, snapshot: Snapshot) -> list[Suspicion] | None:
    """The suspicious labels of a version; ``None`` while they are being computed, which this starts."""
    known: list[Suspicion] | None = snapshot.kept.get("suspicious")
    if known is None and snapshot.trained and "suspicious job" not in snapshot.kept:
        found = _recall(bench, snapshot)
        if found is not None:
            snapshot.kept["suspicious"] = found
            return found
        snapshot.kept["suspicious job"] = bench.jobs.start(
            "suspicious", bench.person, lambda task: _compute(bench, snapshot, task), "background"
        )
    return known


def job_of(snapshot: Snapshot) -> str | None:
    """The job that computes the list, while it is not there."""
    if "suspicious" in snapshot.kept or "suspicious job" not in snapshot.kept:
        return None
    task: Task = snapshot.kept["suspicious job"]
    return task.id


def _compute(bench: Bench, snapshot: Snapshot, task: Task) -> str:
    from ecbm.show.serve.changes import Event

    task.version = snapshot.number
    task.at("Looking for suspicious labels")
    found = find(snapshot, bench.annotators, [])
    keep_unless_erased(bench.folder, snapshot.erasures, lambda: _keep(bench, snapshot, found))
    snapshot.kept["suspicious"] = found
    bench.events.send(Event(kind="suspicious", version=snapshot.number))
    return "/api/queue"


def _path(bench: Bench, snapshot: Snapshot) -> Any:
    name = f"suspicious-{_FORMAT}-{snapshot.model.fingerprint[:16]}-{snapshot.data.fingerprint[:16]}.json"
    return bench.folder / "cache" / name


def _keep(bench: Bench, snapshot: Snapshot, found: list[Suspicion]) -> None:
    """In the folder ``cache``, which an erasure destroys. The last few lists stay."""
    if bench.annotators:
        return  # the list depends on a file outside the workspace
    path = _path(bench, snapshot)
    durable.make_folder(path.parent)
    durable.replace_unflushed(path, json.dumps([dataclasses.asdict(one) for one in found]).encode())
    kept = sorted(path.parent.glob("suspicious-*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in kept[8:]:
        durable.remove(old)


def _recall(bench: Bench, snapshot: Snapshot) -> list[Suspicion] | None:
    if bench.annotators:
        return None
    try:
        listed = json.loads(_path(bench, snapshot).read_bytes())
        return [Suspicion(**one | {"reasons": tuple(one["reasons"])}) for one in listed]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def sample_scores(bench: Bench, snapshot: Snapshot) -> NDArray[np.float64] | None:
    """How suspicious each sample's most suspicious label is; ``None`` while that is not known."""
    found = suspicious(bench, snapshot)
    if found is None:
        return None
    if "sample scores" not in snapshot.kept:
        scores = np.zeros(len(snapshot.data))
        for one in reversed(found):
            row = snapshot.data.rows_by_id.get(one.sample)
            if row is not None:
                scores[row] = one.score
        snapshot.kept["sample scores"] = scores
    scores_kept: NDArray[np.float64] = snapshot.kept["sample scores"]
    return scores_kept


def by_concept(found: list[Suspicion]) -> dict[str, int]:
    """How many suspicious labels each concept has, most first."""
    counts: dict[str, int] = {}
    for one in found:
        if one.concept is not None:
            counts[one.concept] = counts.get(one.concept, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
