"""What routes need, given to them by FastAPI: the workbench, the person, rows in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray

from ecbm.show.serve.filters import Context, Filter, rows_of
from ecbm.show.serve.queue import sample_scores
from ecbm.show.serve.security import Session
from ecbm.show.serve.state import Bench

if TYPE_CHECKING:
    from ecbm.show.serve.snapshot import Snapshot
    from ecbm.show.serve.staging import Mine

__all__ = ["BenchNeed", "PersonNeed", "SessionNeed", "changed_by", "ordered_rows"]

_MOST_ORDERS = 200


def _bench(request: Request) -> Bench:
    return cast(Bench, request.app.state.bench)


def _session(request: Request) -> Session:
    return cast(Session, request.state.session)


def _person(request: Request) -> str:
    return _session(request).person


BenchNeed = Annotated[Bench, Depends(_bench)]
SessionNeed = Annotated[Session, Depends(_session)]
PersonNeed = Annotated[str, Depends(_person)]


def changed_by(bench: Bench, number: int) -> set[str]:
    """Samples whose labels a version changed, or that it added, as long as the ledger names them."""
    version = bench.records.version(number)
    edit: dict[str, Any] = bench.records.described([version], 100_000)[0]["edit"] or {}
    found = {one["id"] for part in ("correct_concepts", "correct_labels") for one in edit.get(part, [])}
    found |= set(edit.get("add_samples", []))
    for values in edit.get("add_concepts", {}).values():
        found |= set(values)
    return found


def _unsure_of(bench: Bench, person: str) -> set[str]:
    return {
        one.sample
        for one in bench.staged.items(person)
        if one.kind == "label" and one.answer == "unsure" and not one.done
    }


def ordered_rows(bench: Bench, snapshot: Snapshot, mine: Mine, wanted: Filter) -> NDArray[np.int64]:
    """The rows of a filter in order; kept, because a window after another is asked for."""
    personal = wanted.status is not None or wanted.unsure_by is not None
    scores = sample_scores(bench, snapshot) if wanted.sort == "suspicious" else None
    key = ("rows of", wanted, (mine.person, mine.revision) if personal else None, scores is not None)
    orders: dict[Any, NDArray[np.int64]] = snapshot.kept.setdefault("orders", {})
    if key not in orders:
        context = Context(
            mine,
            changed_by=lambda number: changed_by(bench, number),
            unsure_of=lambda person: _unsure_of(bench, person),
            scores=lambda: scores,
            annotators=bench.annotators,
        )
        while len(orders) >= _MOST_ORDERS:
            orders.pop(next(iter(orders)), None)
        orders[key] = rows_of(snapshot, wanted, context)
    return orders[key]
