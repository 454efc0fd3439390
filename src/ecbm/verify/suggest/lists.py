"""What was found, sorted into lists: patterns, clusters, samples, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.verify.suggest import words
from ecbm.verify.suggest.checks import Check
from ecbm.verify.suggest.finding import Findings
from ecbm.verify.suggest.named import NamedRecords

__all__ = ["check_list", "cluster_list", "pattern_list", "sample_list"]

_SAMPLES = 10
_CLUSTERS = 10
# A cell is worth a word with at least so many errors, and so many times as many as the concept has elsewhere.
_ERRORS_OF_A_CLUSTER, _TIMES_ELSEWHERE = 5.0, 3.0


def pattern_list(named: NamedRecords, findings: Findings, wrong: Tensor) -> tuple[Mapping[str, Any], ...]:
    """Patterns that explain at least one error, with their shares of the samples."""
    found: list[dict[str, Any]] = []
    patterns, names, mine = findings.patterns, named.concepts, named.mine

    def add(kind: str, concepts: Sequence[int], share: float | None, rates: Sequence[float], text: str) -> None:
        found.append(
            {
                "kind": kind,
                "concepts": [names[j] for j in concepts],
                "share": None if share is None else round(share, 4),
                "rates": [round(rate, 4) for rate in rates],
                "expected_errors": round(float(wrong[mine][:, list(concepts)].sum()), 1),
                "words": text,
            }
        )

    for habit in patterns.habits:
        text = words.habit_words(habit, names, named.annotators, named.records, findings.present)
        assert named.records.annotators is not None
        theirs = named.records.annotators.eq(habit.annotator)
        add(
            "overlook" if habit.overlooks else "invent", [habit.concept], float(theirs[mine].double().mean()),
            [habit.rate], text,
        )  # fmt: skip
        found[-1]["annotator"] = named.annotators[habit.annotator]
        found[-1]["expected_errors"] = round(float(wrong[mine & theirs, habit.concept].sum()), 1)
    for pattern in patterns.careless:
        kind = "overlook" if pattern.overlooks else "invent"
        share = float(pattern.members[mine].mean())
        text = words.careless_words(pattern, share, names)
        add(kind, pattern.concepts.tolist(), share, pattern.rates.tolist(), text)
    for plateau in patterns.plateaus:
        text = words.plateau_words(plateau, names)
        add("overlook" if plateau.overlooks else "invent", [plateau.concept], None, [plateau.rate], text)
    for swap in patterns.swaps:
        share = float(swap.chances[mine].mean())
        add("swap", swap.concepts.tolist(), share, [], words.swap_words(swap, share, names))
    return tuple(pattern for pattern in found if pattern["expected_errors"] >= 1)


def cluster_list(named: NamedRecords, wrong: Tensor) -> tuple[Mapping[str, Any], ...]:
    """Cells (class, concept, recorded value) with many times the errors that their concept has elsewhere."""
    records, k = named.records, len(named.concepts)
    if not k:
        return ()
    counted = (named.mine[:, None] & (records.weights > 0)).double()
    shape = len(named.classes), k
    found: list[dict[str, Any]] = []
    for value, word in ((0.0, "absent"), (1.0, "present")):
        inside = counted * (records.labels == value)
        sizes = torch.zeros(shape, dtype=torch.float64).index_add_(0, records.classes, inside)
        here = torch.zeros(shape, dtype=torch.float64).index_add_(0, records.classes, inside * wrong)
        elsewhere = (here.sum(0) - here) / (sizes.sum(0) - sizes).clamp_min(1)
        for index, concept in (
            ((here >= _ERRORS_OF_A_CLUSTER) & (here > _TIMES_ELSEWHERE * sizes * elsewhere)).nonzero().tolist()
        ):
            errors, size = float(here[index, concept]), int(sizes[index, concept])
            label, name = named.classes[index], named.concepts[concept]
            found.append(
                {
                    "class": label, "concept": name, "recorded": value, "expected_errors": round(errors, 1),
                    "samples": size,
                    "words": f"about {errors:.0f} of {size} samples of {label} have {name} recorded as {word} by "
                    "mistake",
                }
            )  # fmt: skip
    found.sort(key=lambda c: (-c["expected_errors"], c["concept"], c["class"]))
    return tuple(found[:_CLUSTERS])


def sample_list(
    named: NamedRecords, wrong: Tensor, class_wrong: Tensor, quality: NDArray[np.float64]
) -> tuple[Mapping[str, Any], ...]:
    """Samples in which at least two labels are probably wrong, the worst first by cleanlab's pooled quality."""
    total = (wrong * (named.records.weights > 0)).sum(1) + class_wrong
    found: list[dict[str, Any]] = []
    for row in ((total >= 1.5) & named.mine).nonzero().flatten().tolist():
        doubtful = [named.concepts[j] for j in (wrong[row] >= 0.5).nonzero().flatten().tolist()]
        text = f"about {float(total[row]):.1f} of its labels are wrong"
        found.append(
            {
                "id": named.ids[row],
                "score": round(1 - float(quality[row]), 6),
                "expected_errors": round(float(total[row]), 2),
                "reasons": [text + (f": {words.listed(doubtful)}" if doubtful else "")],
            }
        )
    found.sort(key=lambda s: (-s["score"], -s["expected_errors"], s["id"]))
    return tuple(found[:_SAMPLES])


def check_list(named: NamedRecords, checks: Sequence[Check]) -> tuple[Mapping[str, Any], ...]:
    """Labels worth a look, as plain values."""
    records = named.records
    return tuple(
        {
            "id": named.ids[check.row],
            "concept": named.concepts[check.concept],
            "recorded": float(records.labels[check.row, check.concept]),
            "samples": check.size,
            "doubt": round(check.doubt, 4),
            "reasons": [words.check_words(check, records, named.concepts, named.classes)],
        }
        for check in checks
    )
