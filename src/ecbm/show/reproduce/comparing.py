"""One edit beside everything it must be compared with: the piece of work that several experiments are made of."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from ecbm.edit.alignment import Alignment, align
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.show.reproduce.candidates import Candidate, edited, fine_tuning
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.judging import FIGURES, Judge, predictions
from ecbm.show.reproduce.scenarios import Pair

__all__ = ["METHODS", "NO_OP", "RETRAIN", "compare", "needed_models", "retraining_seeds"]

NO_OP, RETRAIN = "no-op", "retrain"
# Names in tables, in their order. ``exact`` is "heads only" where there is a backbone that it leaves alone.
METHODS = {
    "exact": "exact (heads only)",
    "ekfac, as written": "ekfac as written (ECBM)",
    "ekfac": "ekfac guarded (ECBM)",
    "hessian": "hessian guarded (CBM-IF)",
    "auto": "auto",
    "fine-tuning": "fine-tuning of equal work",
}


def retraining_seeds(case: Case, repetition: int) -> tuple[int, ...]:
    """Seeds of retraining: the original's own first. The noise floor needs at least two."""
    count = int(case.setting("retrainings"))
    return tuple(range(repetition, repetition + count))


def needed_models(case: Case, pair: Pair, repetition: int) -> list[tuple[Any, int]]:
    """Datasets and seeds of the models that :func:`compare` trains."""
    before, after = pair
    return [(before, repetition), *((after, seed) for seed in retraining_seeds(case, repetition))]


def _candidates(
    case: Case, editor: Editor, edit: Edit, alignment: Alignment, methods: Sequence[str]
) -> Iterator[Candidate]:
    linear, budget = case.linear, float(case.setting("budget"))
    for method in methods:
        if method == "hessian" and not case.setting("hessian"):
            continue
        name = METHODS[method]
        if method == "fine-tuning":
            yield fine_tuning(editor, alignment, budget, name, exact_heads=not linear)
        elif method == "ekfac, as written":
            yield edited(editor, edit, name, "ekfac", damping=0.0 if linear else 0.1, guarded=False)
        elif method == "auto":
            yield edited(editor, edit, name, "auto", budget=budget)
        else:
            yield edited(editor, edit, name, method)


def compare(
    case: Case, pair: Pair, repetition: int, methods: Sequence[str], metric: str = "concept_accuracy"
) -> dict[str, Any]:
    """Every method from one original model, judged against retraining under several seeds.

    Parameters
    ----------
    pair
        The dataset before the edit and after it.
    repetition
        Seed of the original model; retraining has this one and those that follow.
    methods
        Names of :data:`METHODS`.
    metric
        In which recovery is counted, and the better learning rate of fine-tuning chosen.

    Returns
    -------
    dict
        ``rows`` by name: figures, closures and seconds. ``retrain`` has the figures of the original's own seed, and
        as closure the noise floor: each retrained model against the mean of the others, averaged.
    """
    before, after = pair
    edit, test = Edit.between(before, after), before.split("test")
    names = [name for name in before.concept_names if name in after.concept_names]
    seeds = retraining_seeds(case, repetition)
    retrained = {seed: case.model(after, seed) for seed in seeds}
    training = statistics.median(model.provenance.training["seconds"] for model in retrained.values())
    judge = Judge({seed: predictions(model, test, names) for seed, model in retrained.items()}, metric)
    original = case.model(before, repetition)
    start = predictions(original, test, names)
    rows: dict[str, dict[str, Any]] = {NO_OP: judge.entry(start, start, repetition) | {"seconds": 0.0}}
    editor, alignment = Editor(original, before), align(original, before, edit, after)
    for one in _candidates(case, editor, edit, alignment, methods):
        entries = [judge.entry(predictions(model, test, names), start, repetition) for model in one.models]
        if entries:
            best = max(entries, key=lambda entry: entry["gained"])
            rows[one.name] = best | {"seconds": one.seconds, "preparation": one.preparation} | one.notes
        else:
            rows[one.name] = {"note": one.notes.get("note") or "the budget leaves no room for a step"}
    own = judge.entry(judge.retrained[repetition], start, repetition)
    rows[RETRAIN] = {**own, **_floor(judge, start), "seconds": training}
    return {"rows": rows, "training_seconds": training, "spread": judge.spread}


def _floor(judge: Judge, start: dict[str, Any]) -> dict[str, Any]:
    """What another seed alone gives; nothing where there is one retrained model."""
    if len(judge.retrained) < 2:
        return {"closure": None, "class_closure": None}
    entries = [judge.entry(found, start, seed, leave_out=True) for seed, found in judge.retrained.items()]
    floor: dict[str, Any] = {}
    for key in ("closure", "class_closure"):
        values = [entry[key] for entry in entries if entry[key] is not None]
        floor[key] = statistics.fmean(values) if values else None
    for key in FIGURES:
        floor[f"{key}_of_seeds"] = [found[key] for found in judge.retrained.values()]
    return floor
