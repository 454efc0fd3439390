"""``ecbm.suggest``: which labels of a dataset are probably wrong, as a model and its data see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.suggest.inspection import Inspection
from ecbm.verify.suggest.read_answers import Answer
from ecbm.verify.suggest.suggestions import Suggestions

__all__ = ["suggest"]


def suggest(
    model: ConceptBottleneck,
    data: Dataset,
    *,
    limit: int | None = None,
    least: float = 0.5,
    concepts: Sequence[str] = (),
    split: str = "train",
    by: Mapping[str, str] | None = None,
    answers: Iterable[Answer] = (),
) -> Suggestions:
    """Find labels that are probably wrong, each with the evidence in words. Nothing is changed.

    Yes/no concepts, categories, grades, measurements, classes and labels that are numbers are in one ranking, by
    the chance that they are wrong. Missing labels are not suggested.

    Parameters
    ----------
    model, data
        A model and the data it was trained on.
    limit
        At most so many suggestions.
    least
        Suggest labels that are wrong with at least this chance.
    concepts
        Suggest labels of these concepts alone.
    split
        ``"train"``, or ``"val"`` to look at validation labels, which edits do not reach.
    by
        Who labelled what: from sample ids to annotators, sites or batches.
    answers
        What a person found when looking at earlier suggestions
        (:func:`ecbm.verify.suggest.read_answers.read_answers`).

    Returns
    -------
    Suggestions
        Best first. Same model, data and answers: same bytes. Where answers come in one by one,
        :class:`ecbm.verify.suggest.inspection.Inspection` ranks again without computing everything again.

    Examples
    --------
    >>> import ecbm
    >>> data = ecbm.datasets.breast_cancer()
    >>> model = ecbm.train(data)
    >>> found = ecbm.suggest(model, data, least=0.1)
    >>> result = ecbm.Editor(model, data).apply(found.to_edit())
    """
    if not 0 <= least <= 1:
        raise InputError(f"suggest: least={least!r} is not a chance; give a number from 0 to 1")
    if limit is not None and limit < 1:
        raise InputError(f"suggest: limit={limit!r}; give a whole number of at least 1")
    inspection = Inspection.of(model, data, by=by, split=split)
    return inspection.suggestions(answers, limit=limit, least=least, concepts=concepts)
