"""Training labels behind a prediction."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ecbm.show.serve.needs import BenchNeed
from ecbm.show.serve.schemas import BehindView

__all__ = ["router"]

router = APIRouter()


@router.get("/api/behind")
def behind(
    bench: BenchNeed,
    id: Annotated[str, Query(max_length=500)],
    class_name: Annotated[str | None, Query(max_length=500)] = None,
) -> BehindView:
    """The training labels that add most to the score of a class of a picture."""
    snapshot = bench.trained()
    row = snapshot.data.row(id)
    if class_name is not None and not snapshot.data.predicts_number:
        snapshot.data.class_index(class_name)
    name = class_name or snapshot.predicted_text(row) or ""
    return BehindView(
        available=False, words="This version of ecbm does not trace labels yet.", class_name=name, labels=[]
    )
