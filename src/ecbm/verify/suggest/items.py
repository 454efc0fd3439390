"""Suggestions one by one: every kind of label that may be wrong, with its proposal and its reasons."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ecbm.read.concept_types import Concept
from ecbm.verify.suggest import words
from ecbm.verify.suggest.effects import flip_effects
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.finding import Findings
from ecbm.verify.suggest.named import NamedRecords, NumberLabels
from ecbm.verify.suggest.numbers import NumberFindings
from ecbm.verify.suggest.suggestions import Suggestion
from ecbm.verify.suggest.values import ValueFindings

__all__ = ["binary_items", "class_items", "number_items", "rare_concepts", "recorded_values", "value_items"]

# Of a concept with fewer labels of one kind no curve can be fitted well enough to compare it with others.
_RARE = 15
_LEAST = 1e-9


def rare_concepts(records: Records, mine: Tensor) -> Tensor:
    """(k,) concepts that too few samples have, or lack."""
    weights = records.weights * mine[:, None]
    present = ((records.labels > 0.5) & (weights > 0)).sum(0)
    return torch.minimum(present, (weights > 0).sum(0) - present) < _RARE


def binary_items(
    named: NamedRecords, findings: Findings, chances: Tensor, least: float, limit: int | None = None
) -> list[Suggestion]:
    """Yes/no labels that are wrong with at least a given chance; ``chances`` is negative where not to be asked."""
    records, found = named.records, []
    enough = max(least, _LEAST)
    if limit is not None and limit < chances.numel():  # reasons take longer than finding what they are for
        # Scores that are equal as they are printed come in the order of their ids: none of them may be missing.
        enough = max(enough, round(float(chances.flatten().topk(limit).values[-1]), 6) - 6e-7)
    for concept in range(chances.shape[1]):
        rows = (chances[:, concept] >= enough).nonzero().flatten()
        if not len(rows):
            continue
        effects = flip_effects(records, findings.evidence, ~named.training, rows, concept)
        why = words.reasons(findings, records, rows, concept, named.concepts, named.classes, effects)
        labels, scores = records.labels[rows, concept].tolist(), chances[rows, concept].tolist()
        evidence = _opinions(findings, rows, concept, records.labels[rows, concept] > 0.5)
        changes = None if effects.changes is None else effects.changes.tolist()
        own = effects.influences.tolist()
        for place, row in enumerate(rows.tolist()):
            figures: dict[str, float | None] = {name: round(p[place], 4) for name, p in evidence.items()}
            figures["validation_loss_change"] = None if changes is None else _short(changes[place])
            figures["self_influence"] = _short(own[place])
            found.append(
                Suggestion(
                    named.ids[row], named.concepts[concept], 1 - labels[place], labels[place],
                    round(scores[place], 6), why[place], figures,
                )
            )  # fmt: skip
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _opinions(findings: Findings, rows: Tensor, concept: int, recorded: Tensor) -> dict[str, list[float]]:
    """How sure each source is that the opposite of what was recorded is true."""
    evidence = findings.evidence
    sources = {
        "model": evidence.head.probabilities,
        "neighbours": evidence.neighbours,
        "class": evidence.within_class,
        "other_labels": findings.present,
    }
    parts = {name: p[rows, concept] for name, p in sources.items()}
    return {name: torch.where(recorded, 1 - p, p).tolist() for name, p in parts.items()}


def class_items(named: NamedRecords, found: ValueFindings, chances: Tensor, least: float) -> list[Suggestion]:
    """Class labels that are wrong with at least a given chance."""
    names, records = named.classes, named.records
    return [
        Suggestion(
            named.ids[row], None, names[int(found.proposed[row])], names[int(records.classes[row])],
            round(float(chances[row]), 6), words.class_reasons(found, records, row, names),
            {"model": round(float(found.probabilities[row, found.proposed[row]]), 4)},
        )
        for row in _rows(chances, least)
    ]  # fmt: skip


def _rows(chances: Tensor, least: float) -> list[int]:
    rows: list[int] = (chances >= max(least, _LEAST)).nonzero().flatten().tolist()
    return rows


def recorded_values(concept: Concept, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The recorded value (n,) of a concept by its number, and whether it is known (n,), from its columns."""
    columns = list(concept.columns)
    known = (weights[:, columns] > 0).any(1)
    part = labels[:, columns]
    if concept.type == "categorical":
        return part.argmax(1), known & (part.sum(1) > 0)
    return part.sum(1).long(), known


def value_items(
    named: NamedRecords, findings: Findings, concept: Concept, found: ValueFindings, chances: Tensor, least: float
) -> list[Suggestion]:
    """Categories or grades that are wrong with at least a given chance."""
    records, near = named.records, findings.evidence.nearest
    recorded, _ = recorded_values(concept, records.labels, records.weights)

    def value(place: int) -> str | float:
        return float(concept.values[place]) if concept.type == "ordinal" else concept.values[place]

    return [
        Suggestion(
            named.ids[row], concept.name, value(int(found.proposed[row])), value(int(recorded[row])),
            round(float(chances[row]), 6),
            words.value_reasons(found, concept, records, near, row, int(recorded[row])),
            {"model": round(float(found.probabilities[row, found.proposed[row]]), 4)},
        )
        for row in _rows(chances, least)
    ]  # fmt: skip


def number_items(
    named: NamedRecords, item: NumberLabels, found: NumberFindings, chances: Tensor, least: float
) -> Iterable[Suggestion]:
    """Numbers that are wrong with at least a given chance."""
    for row in _rows(chances, least):
        # Labels are float32: digits beyond are not what anybody wrote.
        value, expected = float(f"{float(item.values[row]):.7g}"), _short(float(found.expected[row]))
        yield Suggestion(
            named.ids[row], item.name, expected, value, round(float(chances[row]), 6),
            words.number_reasons(value, expected, found.scale, item.unit), {"expected": expected},
        )  # fmt: skip
