"""What is known about every label of a dataset (seconds), and rankings of it by what people answer (no time).

inspection = Inspection.of(model, data)          # evidence, patterns, chances
inspection.suggestions(answers=...)              # as often as answers come in
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import unknown_name
from ecbm.read.concept_types import Concept
from ecbm.read.dataset import Dataset
from ecbm.train.heads.objectives import with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.suggest import items, lists
from ecbm.verify.suggest.answers import learn, learn_alone
from ecbm.verify.suggest.checks import spot_checks, without_the_class
from ecbm.verify.suggest.classes import find_wrong_classes, sample_quality, small_classes
from ecbm.verify.suggest.finding import Findings, find_wrong
from ecbm.verify.suggest.named import NamedRecords, NumberLabels, records_of, with_answers
from ecbm.verify.suggest.numbers import NumberFindings, judge_numbers
from ecbm.verify.suggest.read_answers import Answer
from ecbm.verify.suggest.suggestions import Suggestion, Suggestions
from ecbm.verify.suggest.values import Valued, ValueFindings, judge, value_logits

__all__ = ["Inspection"]

_CHECKS = 10


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Everything that was computed about the labels of one split. A value; see the module's text for its use."""

    named: NamedRecords
    findings: Findings
    classes: ValueFindings
    values: tuple[tuple[Concept, ValueFindings], ...]
    numbers: tuple[tuple[NumberLabels, NumberFindings], ...]
    opinion: Tensor

    @classmethod
    def of(
        cls,
        model: ConceptBottleneck,
        data: Dataset,
        *,
        by: Mapping[str, str] | None = None,
        split: str = "train",
    ) -> Inspection:
        """Inspect the labels of a split; parameters are those of :func:`ecbm.suggest`."""
        return _inspected(records_of(model, data, by=by, split=split))

    def suggestions(
        self,
        answers: Iterable[Answer] = (),
        *,
        limit: int | None = None,
        least: float = 0.5,
        concepts: Sequence[str] = (),
    ) -> Suggestions:
        """The ranking, given what people answered.

        Parameters
        ----------
        answers
            What was found so far, all of it. Chances of labels of the same kind move with it.
        limit, least
            At most so many suggestions, each wrong with at least this chance.
        concepts
            Suggest labels of these concepts alone; class labels are then left out.
        """
        return _Ranking(self, list(answers), least, tuple(concepts)).suggestions(limit)


def _inspected(named: NamedRecords) -> Inspection:
    records = named.records
    findings = find_wrong(records, named.groups)
    cleaned = findings.patterns.cleaned
    classes = find_wrong_classes(records, findings.evidence, cleaned)
    valued = [
        Valued(
            value_logits(concept, findings.second.logits[:, list(concept.columns)]),
            *items.recorded_values(concept, records.labels, records.weights),
        )
        for concept in named.valued
    ]
    values = tuple(zip(named.valued, judge(valued, records.held), strict=True))
    numbers = tuple((item, _judged(named, findings, item)) for item in named.numbers)
    opinion = without_the_class(records, findings.evidence, records.best)
    return Inspection(named, findings, classes, values, numbers, opinion)


def _judged(named: NamedRecords, findings: Findings, item: NumberLabels) -> NumberFindings:
    """A number by everything that is known of its sample but the number itself."""
    records = named.records
    parts = [findings.evidence.directions, 2 * records.weights * (findings.patterns.cleaned - 0.5)]
    continuous = [other.name for other in named.numbers if other.name is not None]
    if records.measured is not None:
        parts.append(records.measured[:, [place for place, name in enumerate(continuous) if name != item.name]])
    if item.name is not None:
        parts.append(functional.one_hot(records.classes, records.class_count).double())
    return judge_numbers(with_ones(torch.cat(parts, 1)), item.values, ~item.values.isnan(), records.folds)


class _Ranking:
    """The chances after the answers, and the lists that follow."""

    def __init__(
        self, inspection: Inspection, answers: list[Answer], least: float, concepts: tuple[str, ...]
    ) -> None:
        self.inspection, self.answers, self.least = inspection, answers, least
        self.named = with_answers(inspection.named, answers)
        self.wanted = self._wanted(concepts)
        records, mine = self.named.records, self.named.mine
        self.answered = ~records.truth.isnan()
        self.judged = mine[:, None] & (records.weights > 0) & records.on_its_own
        self.wrong = learn(records, inspection.findings.wrong, self.judged)
        self.given = {(answer.id, answer.concept): answer for answer in answers}

    def _wanted(self, concepts: tuple[str, ...]) -> set[str] | None:
        known = [*self.named.concepts, *(c.name for c in self.named.valued)]
        known += [item.name for item in self.named.numbers if item.name is not None]
        for name in concepts:
            if name not in known:
                raise unknown_name("concept", name, known, "suggest")
        return set(concepts) or None

    def _open(self, concept: str | None, chances: Tensor) -> Tensor:
        """Chances (n,) of labels that are not on their own, moved by answers; negative where not to be asked."""
        given = [self.given.get((name, concept)) for name in self.named.ids]
        looked = torch.tensor([answer is not None for answer in given])
        wrong = torch.tensor([answer is not None and answer.wrong for answer in given])
        moved = learn_alone(chances, looked, wrong, self.named.records.folds)
        shown = self.wanted is None or concept in self.wanted
        return torch.where(self.named.mine & ~looked & shown, moved, -1.0)

    def suggestions(self, limit: int | None) -> Suggestions:
        named, findings, classes = self.named, self.inspection.findings, self.inspection.classes
        records, least = named.records, self.least
        asked = self.judged & ~self.answered
        if self.wanted is not None:
            asked = asked & torch.tensor([name in self.wanted for name in named.concepts])
        rare = items.rare_concepts(records, named.mine)
        found = items.binary_items(named, findings, torch.where(asked & ~rare, self.wrong, -1.0), least, limit)
        expected = {"concept_labels": float(self.wrong[self.judged].sum())}
        counts = {"concept_labels": int(self.judged.sum())}

        def add(name: str, chances: Tensor, known: Tensor) -> None:
            expected[name] = expected.get(name, 0.0) + float(chances[named.mine].clamp_min(0.0).sum())
            counts[name] = counts.get(name, 0) + int((named.mine & known).sum())

        for concept, values in self.inspection.values:
            chances = self._open(concept.name, values.wrong)
            found += items.value_items(named, findings, concept, values, chances, least)
            add("concept_labels", values.wrong, items.recorded_values(concept, records.labels, records.weights)[1])
        for item, numbers in self.inspection.numbers:
            chances = self._open(item.name, numbers.wrong)
            found += items.number_items(named, item, numbers, chances, least)
            add("class_labels" if item.name is None else "concept_labels", numbers.wrong, ~item.values.isnan())
        class_wrong = torch.zeros(len(records), dtype=torch.float64)
        if named.has_classes:
            class_wrong = torch.where(named.mine, classes.wrong, 0.0)
            found += items.class_items(named, classes, self._open(None, class_wrong), least)
            add("class_labels", class_wrong, named.mine)
        found.sort(key=lambda s: (-s.score, s.id, s.concept or ""))
        apart = items.binary_items(named, findings, torch.where(asked & rare, self.wrong, -1.0), least)
        apart.sort(key=lambda s: (s.concept or "", -s.score, s.id))
        quality = sample_quality(records.labels, records.weights, findings.present, classes, records.classes)
        checks = spot_checks(
            records, self.inspection.opinion, self.wrong, self.answered, asked & ~rare, _CHECKS
        )  # fmt: skip
        return Suggestions(
            suggestions=tuple(found[:limit]),
            expected_errors={name: round(value, 1) for name, value in expected.items()},
            labels=counts,
            patterns=lists.pattern_list(named, findings, self.wrong),
            clusters=lists.cluster_list(named, self.wrong * records.on_its_own),
            samples=lists.sample_list(named, self.wrong * self.judged, class_wrong, quality),
            rare=tuple(apart),
            checks=lists.check_list(named, checks),
            confirmed=tuple(self._confirmed()),
            notes=(*named.notes, *self._notes()),
            split=named.split,
        )

    def _confirmed(self) -> Iterable[Suggestion]:
        """Labels that were found to be wrong, are still held by the data, and have a known right value."""
        held = self.inspection.named
        places = {name: row for row, name in enumerate(held.ids)}
        columns = {name: column for column, name in enumerate(held.concepts)}
        valued = {concept.name: concept for concept, _ in self.inspection.values}
        why = ("somebody looked at it and found it wrong",)
        for answer in self.answers:
            row = places.get(answer.id)
            if row is None or not answer.wrong or not bool(held.mine[row]):
                continue
            value: float | str | None = answer.value
            recorded: float | str | None = answer.recorded
            if answer.concept in columns:
                recorded = float(held.held[row, columns[answer.concept]])
                value = 1 - (recorded if answer.recorded is None else float(answer.recorded))
            elif answer.concept is None and held.has_classes:
                recorded = held.classes[int(held.records.classes[row])]
            elif answer.concept in valued:
                concept = valued[answer.concept]
                place, _ = items.recorded_values(concept, held.records.labels, held.records.weights)
                text = concept.values[int(place[row])]
                recorded = float(text) if concept.type == "ordinal" else text
            else:
                numbers = next(item for item, _ in self.inspection.numbers if item.name == answer.concept)
                recorded = float(f"{float(numbers.values[row]):.7g}")
            if value is not None and recorded is not None and value != recorded:
                yield Suggestion(answer.id, answer.concept, value, recorded, 1.0, why)

    def _notes(self) -> Iterable[str]:
        """What a reader of the figures has to know."""
        if not self.inspection.findings.alike:
            yield (
                "training and validation labels are not wrong equally often (was one of them corrected?), so the "
                "expected number of errors is a lower bound"
            )
        known = ~self.named.mine[:, None] & (self.named.records.weights > 0) & self.named.records.on_its_own
        others = float(self.wrong[known].sum())
        if self.named.split == "train" and others >= max(1.0, 0.01 * int(known.sum())):
            yield (
                f"about {others:,.0f} of {int(known.sum()):,} validation labels are wrong too, so figures measured "
                "on them are off; edits reach training labels alone"
            )
        few = small_classes(self.named.records).nonzero().flatten().tolist() if self.named.has_classes else []
        if few:
            names = ", ".join(self.named.classes[one] for one in few[:5]) + (", …" if len(few) > 5 else "")
            yield f"too few samples to judge class labels of, or to propose: {names}"
