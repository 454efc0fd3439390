"""The figures of a report: how good a version is, beside the one before it and beside guessing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecbm.read.dataset import Dataset
from ecbm.show.report.intervals import Bootstrap
from ecbm.show.report.outcomes import Outcomes, constant_outcomes, outcomes
from ecbm.train.model import ConceptBottleneck

__all__ = ["SplitFigures", "figures_of"]


@dataclasses.dataclass(frozen=True)
class SplitFigures:
    """Figures of one split as plain values, and the outcomes they were made of."""

    data: Dataset
    before: Outcomes | None
    after: Outcomes
    figures: dict[str, Any]


def figures_of(
    model: ConceptBottleneck, parent: ConceptBottleneck | None, data: Dataset, split: str
) -> SplitFigures | None:
    """Figures on a split, ``None`` where it is empty; ``parent`` is judged on the same samples and labels."""
    if not data.split_sizes.get(split):
        return None
    part = data.split(split)
    after, before = outcomes(model, part), None if parent is None else outcomes(parent, part)
    guess = constant_outcomes(data.split("train"), part)
    draws = Bootstrap(len(part))
    measures = _target(draws, data, before, after, guess)
    shared = [name for name in after.concepts if before is None or name in before.concepts]
    graded = [name for name in shared if data.layout.types[name] != "continuous"]
    if graded:
        old = None if before is None else _together(before, graded)
        whole = _row(draws, "all concepts", "concepts", old, _together(after, graded), _together(guess, graded))
        measures.append(whole | {"concepts": len(graded)})
    for name, found in after.concepts.items():
        kind = data.layout.types[name]
        old = None if before is None else before.concepts.get(name)
        row = _row(
            draws, name, "concept", old, found, guess.concepts.get(name), data.layout.units.get(name, ""),
            share=kind != "continuous",
        )  # fmt: skip
        measures.append(row | {"type": kind} | _present(part, name))
    return SplitFigures(part, before, after, {"samples": len(part), "measures": measures})


def _target(
    draws: Bootstrap, data: Dataset, before: Outcomes | None, after: Outcomes, guess: Outcomes
) -> list[dict[str, Any]]:
    old = None if before is None else before.labels
    if not data.predicts_number:
        return [_row(draws, "classes", "class", old, after.labels, guess.labels)]
    name, unit = data.class_names[0], data.target_unit
    mean = _row(draws, f"error of {name}", "number", old, after.labels, guess.labels, unit, share=False)
    root = {
        "name": f"error of {name}, root mean square",
        "kind": "number",
        "unit": unit,
        "better": "lower",
        "before": None if old is None else draws.root(old),
        "after": draws.root(after.labels),
        "change": None if old is None else draws.root_change(old, after.labels),
        "guess": draws.root(guess.labels)["value"],
    }
    return [mean, root]


def _together(found: Outcomes, names: list[str]) -> NDArray[np.float64]:
    return np.stack([found.concepts[name] for name in names], 1)


def _row(
    draws: Bootstrap,
    name: str,
    kind: str,
    before: NDArray[np.float64] | None,
    after: NDArray[np.float64],
    guess: NDArray[np.float64] | None,
    unit: str = "",
    share: bool = True,
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "unit": unit,
        "better": "higher" if share else "lower",
        "before": None if before is None else draws.mean(before, share),
        "after": draws.mean(after, share),
        "change": None if before is None else draws.change(before, after),
        "guess": None if guess is None or np.isnan(guess).all() else float(np.nanmean(guess)),
    }


def _present(part: Dataset, name: str) -> dict[str, int]:
    """How many samples are labelled as having a binary concept: a high share right means little of a rare one."""
    concept = part.layout.by_name[name]
    if concept.type != "binary":
        return {}
    return {"present": int((part.concepts[:, concept.columns[0]] >= 0.5).sum())}
