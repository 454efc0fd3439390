"""What is compared with retraining: the edit methods, and the controls that keep to the same work."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from ecbm.edit.alignment import Alignment
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.errors import EcbmError
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.fidelity import affordable_steps, fine_tuned, more_training

__all__ = ["Candidate", "edited", "fine_tuning", "more_training_control", "neg_grad", "timed"]

# Shares of the recipe's peak learning rate that fine-tuning tries; the better one on *test* data counts.
RATES = (0.1, 0.3)
# NegGrad+: the share of the forgotten samples' loss. A twentieth is what its authors' code starts from.
ASCENT = 0.05


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Models under one name.

    Several where a grid is tried and the best counts, none where it cannot be done (``notes["note"]`` says why).
    ``seconds`` are the processor's, of one of them; ``preparation`` is what was fitted before and is kept.
    """

    name: str
    models: Sequence[ConceptBottleneck]
    seconds: float
    preparation: float = 0.0
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns and the processor's seconds it took."""
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


def edited(editor: Editor, edit: Edit, name: str, method: str, **options: Any) -> Candidate:
    """The edit by a method, with what is kept between edits at hand."""

    def prepare() -> None:
        # What is kept (solved heads, curvature, maps, the wandering of the model on its data) is fitted by a first
        # edit, and is not what an edit costs. Of a deep ``ekfac`` it is the curvature alone, of others nothing.
        if editor.model.recipe.is_linear or method == "auto":
            editor.apply(edit, method, **options)
        elif method in ("ekfac", "hessian"):
            editor.state.concept_curvature("true")

    try:
        _, preparation = timed(prepare)
        result, seconds = timed(lambda: editor.apply(edit, method, **options))
    except EcbmError as error:
        return Candidate(name, [], math.nan, 0.0, {"note": str(error)})
    settings = result.report["settings"]
    note = result.report.get("warning", "") or str(settings.get("kept_rung", ""))
    notes = {"note": note, "share_of_work": settings.get("share_spent")}
    return Candidate(name, [result.model], seconds, max(0.0, preparation - seconds), notes)


def _control(name: str, models: Callable[[], list[ConceptBottleneck | None]], tried: int) -> Candidate:
    found, seconds = timed(models)
    return Candidate(name, [model for model in found if model is not None], seconds / tried)


def _rates(editor: Editor) -> list[float]:
    return [rate * editor.model.recipe.peak_learning_rate for rate in RATES]


def fine_tuning(editor: Editor, alignment: Alignment, budget: float, name: str, *, exact_heads: bool) -> Candidate:
    """Adam on the edited data for a share of retraining's work, closing solves included."""
    steps = affordable_steps(alignment, budget, exact_heads=exact_heads)
    rates = _rates(editor)
    return _control(
        name, lambda: [fine_tuned(editor, alignment, steps, r, exact_heads=exact_heads) for r in rates], len(rates)
    )


def more_training_control(editor: Editor, alignment: Alignment, budget: float, name: str) -> Candidate:
    """The steps of ``auto`` on the *unedited* labels, heads on the edited ones: what more training alone gives."""
    return _control(name, lambda: [more_training(editor, alignment, budget)], 1)


def neg_grad(editor: Editor, alignment: Alignment, budget: float, name: str, *, exact_heads: bool) -> Candidate:
    """NegGrad+: fine-tuning that climbs the loss of removed samples, for the same work."""
    steps = affordable_steps(alignment, budget, exact_heads=exact_heads) // 2
    rates = _rates(editor)

    def models() -> list[ConceptBottleneck | None]:
        return [
            fine_tuned(editor, alignment, steps, rate, exact_heads=exact_heads, ascent=ASCENT) for rate in rates
        ]

    return _control(name, models, len(rates))
