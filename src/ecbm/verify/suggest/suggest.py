"""``ecbm.suggest``: which labels of a dataset are probably wrong, as a model and its data see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.suggest import lists
from ecbm.verify.suggest.answers import learn
from ecbm.verify.suggest.checks import spot_checks, without_the_class
from ecbm.verify.suggest.classes import find_wrong_classes, sample_quality
from ecbm.verify.suggest.finding import Findings, find_wrong
from ecbm.verify.suggest.named import NamedRecords, records_of
from ecbm.verify.suggest.read_answers import Answer
from ecbm.verify.suggest.suggestions import Suggestions

__all__ = ["suggest"]

_CHECKS = 10


def suggest(
    model: ConceptBottleneck,
    data: Dataset,
    *,
    limit: int | None = None,
    least: float = 0.5,
    by: Mapping[str, str] | None = None,
    answers: Iterable[Answer] = (),
) -> Suggestions:
    """Find labels of the training split that are probably wrong.

    Parameters
    ----------
    model, data
        A model and the data it was trained on.
    limit
        At most so many suggestions.
    least
        Suggest labels that are wrong with at least this chance.
    by
        Who labelled what: from sample ids to annotators, sites or batches.
    answers
        What a person found when looking at earlier suggestions
        (:func:`ecbm.verify.suggest.read_answers.read_answers`).

    Returns
    -------
    Suggestions
        Best first. Same model, data and answers: same bytes.

    Examples
    --------
    >>> data = ecbm.datasets.breast_cancer()                                   # doctest: +SKIP
    >>> found = ecbm.suggest(ecbm.train(data), data)                           # doctest: +SKIP
    >>> ecbm.Editor(model, data).apply(found.edit())                           # doctest: +SKIP
    """
    if not 0 <= least <= 1:
        raise InputError(f"suggest: least={least!r} is not a chance; give a number from 0 to 1")
    if limit is not None and limit < 1:
        raise InputError(f"suggest: limit={limit!r}; give a whole number of at least 1")
    given = list(answers)
    named = records_of(model, data, by=by, answers=given)
    records = named.records
    findings = find_wrong(records, named.groups)
    wrong = learn(records, findings.wrong)
    answered = ~records.truth.isnan()
    mine = named.mine[:, None] & (records.weights > 0)
    asked, rare = mine & ~answered, lists.rare_concepts(records, named.mine)

    classes = find_wrong_classes(records, findings.evidence, findings.patterns.cleaned)
    class_wrong = torch.where(named.mine, classes.wrong, 0.0)
    looked_at = {answer.id for answer in given if answer.concept is None}
    class_open = torch.tensor([name not in looked_at for name in named.ids])

    found = lists.concept_suggestions(named, findings, torch.where(asked & ~rare, wrong, -1.0), least, limit)
    found += lists.class_suggestions(named, classes, torch.where(class_open, class_wrong, -1.0), least)
    found.sort(key=lambda s: (-s.score, s.id, s.concept or ""))
    apart = lists.concept_suggestions(named, findings, torch.where(asked & rare, wrong, -1.0), least)
    apart.sort(key=lambda s: (s.concept or "", -s.score, s.id))

    opinion = without_the_class(records, findings.evidence, records.best)
    checks = spot_checks(records, opinion, wrong, answered, asked & ~rare, _CHECKS)
    quality = sample_quality(records.labels, records.weights, findings.present, classes, records.classes)
    return Suggestions(
        suggestions=tuple(found[:limit]),
        expected_errors={
            "concept_labels": round(float(wrong[mine].sum()), 1),
            "class_labels": round(float(class_wrong.sum()), 1),
        },
        labels={"concept_labels": int(mine.sum()), "class_labels": int(named.mine.sum())},
        patterns=lists.pattern_list(named, findings, wrong),
        clusters=lists.cluster_list(named, wrong),
        samples=lists.sample_list(named, wrong, class_wrong, quality),
        rare=tuple(apart),
        checks=lists.check_list(named, checks),
        notes=(*named.notes, *_notes(named, findings, wrong)),
    )


def _notes(named: NamedRecords, findings: Findings, wrong: Tensor) -> list[str]:
    """What a reader of the figures has to know."""
    notes = []
    if not findings.alike:
        notes.append(
            "training and validation labels are not wrong equally often (was one of them corrected?), so the "
            "expected number of errors is a lower bound"
        )
    known = ~named.mine[:, None] & (named.records.weights > 0)
    others = float(wrong[known].sum())
    if others >= max(1.0, 0.01 * int(known.sum())):
        notes.append(
            f"about {others:,.0f} of {int(known.sum()):,} validation labels are wrong too, so figures measured on "
            "them are off; edits reach training labels alone"
        )
    return notes
