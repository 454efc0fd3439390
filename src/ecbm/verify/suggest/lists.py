"""What was found, sorted into lists: suggestions, patterns, clusters, samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.verify.suggest import words
from ecbm.verify.suggest.checks import Check
from ecbm.verify.suggest.classes import ClassFindings
from ecbm.verify.suggest.effects import flip_effects
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.finding import Findings
from ecbm.verify.suggest.named import NamedRecords
from ecbm.verify.suggest.suggestions import Suggestion

__all__ = [
    "check_list", "class_suggestions", "cluster_list", "concept_suggestions", "pattern_list", "rare_concepts",
    "sample_list",
]  # fmt: skip

# Of a concept with fewer labels of one kind no curve can be fitted well enough to compare it with others.
_RARE = 15
_SAMPLES = 10
_CLUSTERS = 10


def rare_concepts(records: Records, mine: Tensor) -> Tensor:
    """(k,) concepts that too few training samples have, or lack."""
    weights = records.weights * mine[:, None]
    present = ((records.labels > 0.5) & (weights > 0)).sum(0)
    return torch.minimum(present, (weights > 0).sum(0) - present) < _RARE


def concept_suggestions(
    named: NamedRecords, findings: Findings, chances: Tensor, least: float, limit: int | None = None
) -> list[Suggestion]:
    """Concept labels that are wrong with at least a given chance; ``chances`` is negative where not to be asked."""
    records, found = named.records, []
    enough = max(least, 1e-9)
    if limit is not None and limit < chances.numel():  # reasons take longer than finding what they are for
        enough = max(enough, float(chances.flatten().topk(limit).values[-1]))
    for concept in range(chances.shape[1]):
        rows = (chances[:, concept] >= enough).nonzero().flatten()
        if not len(rows):
            continue
        changes, own = flip_effects(records, findings.evidence, ~named.mine, rows, concept)
        for place, row in enumerate(rows.tolist()):
            recorded = float(records.labels[row, concept])
            evidence = _opinions(findings, row, concept, recorded > 0.5)
            evidence["validation_loss_change"] = None if changes is None else _short(float(changes[place]))
            evidence["self_influence"] = _short(float(own[place]))
            why = words.reasons(findings, records, row, concept, named.concepts, named.classes)
            found.append(
                Suggestion(
                    named.ids[row], named.concepts[concept], 1 - recorded, recorded,
                    round(float(chances[row, concept]), 6), tuple(why), evidence,
                )
            )  # fmt: skip
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _opinions(findings: Findings, row: int, concept: int, recorded: bool) -> dict[str, float | None]:
    """How sure each source is that the opposite of what was recorded is true."""
    evidence = findings.evidence
    sources = {
        "model": evidence.head.probabilities,
        "neighbours": evidence.neighbours,
        "class": evidence.within_class,
        "other_labels": findings.present,
    }
    return {
        name: round(1 - float(p[row, concept]) if recorded else float(p[row, concept]), 4)
        for name, p in sources.items()
    }


def class_suggestions(named: NamedRecords, found: ClassFindings, chances: Tensor, least: float) -> list[Suggestion]:
    names = named.classes
    return [
        Suggestion(
            named.ids[row], None, names[int(found.proposed[row])], names[int(named.records.classes[row])],
            round(float(chances[row]), 6), tuple(words.class_reasons(found, named.records, row, names)),
        )
        for row in (chances >= max(least, 1e-9)).nonzero().flatten().tolist()
    ]  # fmt: skip


def pattern_list(named: NamedRecords, findings: Findings, wrong: Tensor) -> tuple[Mapping[str, Any], ...]:
    """Patterns that explain at least one error of a training label, with their shares of the training samples."""
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
        share = float(named.records.annotators.eq(habit.annotator).double().mean())
        add("overlook" if habit.overlooks else "invent", [habit.concept], share, [habit.rate], text)
        found[-1]["annotator"] = named.annotators[habit.annotator]
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
    records = named.records
    found: list[dict[str, Any]] = []
    for concept, name in enumerate(named.concepts):
        for value in (0.0, 1.0):
            cell = named.mine & (records.labels[:, concept] == value) & (records.weights[:, concept] > 0)
            total = float(wrong[cell, concept].sum())
            for index, label in enumerate(named.classes):
                inside = cell & (records.classes == index)
                here, size = float(wrong[inside, concept].sum()), int(inside.sum())
                elsewhere = (total - here) / max(int(cell.sum()) - size, 1)
                if here >= 5 and here > 3 * size * elsewhere:
                    word = "present" if value else "absent"
                    text = (
                        f"about {here:.0f} of {size} samples of {label} have {name} recorded as {word} by mistake"
                    )
                    found.append(
                        {
                            "class": label, "concept": name, "recorded": value, "expected_errors": round(here, 1),
                            "samples": size, "words": text,
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
            "reasons": [words.check_words(check, records, named.concepts, named.classes)],
        }
        for check in checks
    )
