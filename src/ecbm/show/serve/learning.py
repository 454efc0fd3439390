"""What the answers of a person say about labels that are still open: what follows in the queue gets a new order.

The order changes only when the page asks for it, and only behind the place where the person is: questions that were
seen stay where they were, and so does the way back to them. Orders are in memory; after a restart the queue is in
the order of the version again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from ecbm.show.serve.needs import BenchNeed, PersonNeed
from ecbm.show.serve.queue import Suspicion, find, suspicious
from ecbm.show.serve.schemas import Value
from ecbm.show.serve.staged_schemas import Learned, LearnRequest
from ecbm.show.serve.staging import Mine, mine_of

if TYPE_CHECKING:
    from ecbm.show.serve.jobs import Task
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.state import Bench
    from ecbm.verify.suggest.read_answers import Answer

__all__ = ["ordered_for", "router"]

router = APIRouter()
# What counts as coming soon: as many questions as are answered before the order is looked at again.
_SOON = 10
_MOST_ORDERS = 20
# So many answers more are worth another ranking.
_ENOUGH = 10


@router.post("/api/queue/learn")
def learn(bench: BenchNeed, person: PersonNeed, given: LearnRequest) -> Learned:
    """Put what follows in the queue in the order that the person's answers suggest.

    The first request starts a job and says so; once that has ended, the same request makes the order.
    """
    snapshot = bench.check_version(given.version)
    before = suspicious(bench, snapshot)
    answers = _answers(mine_of(bench, snapshot, person))
    known: tuple[int, list[Suspicion]] | None = snapshot.kept.get(("learnt", person))
    if before is None or not answers:
        return Learned(version=snapshot.number, ready=False, job=None, ranking=0, answers=len(answers), moved=0)
    if known is None or len(answers) - known[0] >= _ENOUGH:
        task = _start(bench, snapshot, person, answers)
        return Learned(version=snapshot.number, ready=False, job=task.id, ranking=0, answers=0, moved=0)
    seen = {(one.id, one.concept) for one in given.seen}
    old = ordered_for(bench, snapshot, person, given.ranking) or before
    order, moved = _behind([(one.id, one.concept) for one in given.seen], seen, old, known[1])
    orders: dict[int, list[Suspicion]] = snapshot.kept.setdefault(("orders of", person), {})
    number = max(orders, default=0) + 1
    orders[number] = order
    while len(orders) > _MOST_ORDERS:
        del orders[min(orders)]
    return Learned(
        version=snapshot.number, ready=True, job=None, ranking=number, answers=known[0], moved=moved
    )  # fmt: skip


def ordered_for(bench: Bench, snapshot: Snapshot, person: str, ranking: int) -> list[Suspicion] | None:
    """The order of a person by its number, or the version's own; ``None`` while that is being computed."""
    own: list[Suspicion] | None = snapshot.kept.get(("orders of", person), {}).get(ranking)
    return own if own is not None else suspicious(bench, snapshot)


def _answers(mine: Mine) -> list[Answer]:
    """What the person found about labels, in the terms of what ranks them."""
    from ecbm.verify.suggest.read_answers import Answer

    found: list[Answer] = []
    for one in mine.judged:
        if one.item.kind not in ("label", "class") or one.status not in ("staged", "kept") or one.why:
            continue
        if one.item.kind == "label" and one.item.concept not in mine.snapshot.data.layout.by_name:
            continue
        if one.now is None or one.item.value is None:
            continue  # a label that was missing was not wrong
        now: Value = one.now
        value = one.item.value
        found.append(Answer(one.item.sample, one.item.concept or None, one.status == "staged", now, value))
    return found


def _start(bench: Bench, snapshot: Snapshot, person: str, answers: list[Answer]) -> Task:
    """The job that ranks again; one at a time for each person."""
    running: Task | None = snapshot.kept.get(("learning", person))
    if running is not None and not running.finished.is_set():
        return running

    def run(task: Task) -> str:
        task.version = snapshot.number
        task.at("Learning from your answers")
        snapshot.kept["learnt", person] = len(answers), find(snapshot, bench.annotators, answers)
        return "/api/queue"

    task = bench.jobs.start("suspicious", person, run, "background")
    snapshot.kept["learning", person] = task
    return task


Key = tuple[str, str | None]


def _behind(
    prefix: list[Key], seen: set[Key], old: list[Suspicion], new: list[Suspicion]
) -> tuple[list[Suspicion], int]:
    """What was seen as it was, then the new ranking, then what it no longer suspects; and how many came nearer."""
    by_key: dict[Key, Suspicion] = {(one.sample, one.concept): one for one in (*new, *old)}
    first = [by_key[key] for key in prefix if key in by_key]
    rest = [one for one in new if (one.sample, one.concept) not in seen]
    placed = seen | {(one.sample, one.concept) for one in rest}
    left = [one for one in old if (one.sample, one.concept) not in placed]
    soon = set([key for one in old if (key := (one.sample, one.concept)) not in seen][:_SOON])
    moved = sum((one.sample, one.concept) not in soon for one in [*rest, *left][:_SOON])
    return [*first, *rest, *left], moved
