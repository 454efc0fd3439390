"""From a model and its data to arrays, and the names that belong to them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset, concept_groups
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import align_concepts, align_labels
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.read_answers import Answer

__all__ = ["NamedRecords", "folds_by_id", "records_of"]

_FOLDS = 5
_FEWEST = 20
# Fewer held samples say too little about how often labels are wrong.
_FEWEST_HELD = 100


def folds_by_id(ids: Sequence[str]) -> Tensor:
    """Folds that follow from the ids alone, so that the order of samples does not matter."""
    order = sorted(range(len(ids)), key=lambda row: hashlib.blake2b(ids[row].encode(), digest_size=8).digest())
    folds = torch.empty(len(ids), dtype=torch.long)
    folds[torch.tensor(order, dtype=torch.long)] = torch.arange(len(ids)) % _FOLDS
    return folds


@dataclasses.dataclass(frozen=True)
class NamedRecords:
    """Records with the names that belong to them; ``mine`` (n,) marks the training samples."""

    records: Records
    ids: tuple[str, ...]
    concepts: tuple[str, ...]
    classes: tuple[str, ...]
    annotators: tuple[str, ...]
    mine: Tensor
    notes: tuple[str, ...]

    @property
    def groups(self) -> Tensor:
        """(k,) number of each concept's group."""
        number = {name: i for i, names in enumerate(concept_groups(self.concepts).values()) for name in names}
        return torch.tensor([number[name] for name in self.concepts], dtype=torch.long)


def records_of(
    model: ConceptBottleneck,
    data: Dataset,
    *,
    by: Mapping[str, str] | None = None,
    answers: Iterable[Answer] = (),
) -> NamedRecords:
    """The arrays behind a model and its training and validation data."""
    splits = [name for name in ("train", "val") if name in data.split_sizes]
    if "train" not in splits:
        raise InputError("suggest: the data has no train split; suggestions are about training labels")
    rows = [row for name in splits for row, split in enumerate(data.splits) if split == name]
    part = data.select(rows)
    mine = torch.tensor([split == "train" for split in part.splits])
    if int(mine.sum()) < _FEWEST:
        raise InputError(
            f"suggest: {int(mine.sum())} training samples are too few to compare; {_FEWEST} are needed"
        )
    soft = align_concepts(model, part).double()
    known = ~soft.isnan()
    # A soft label is a vote: 0.7 says "present" with the weight of what it is surer than even.
    labels = torch.where(known, (soft >= 0.5).double(), 0.0)
    weights = torch.where(known, (2 * soft - 1).abs(), 0.0)
    notes: list[str] = []
    frozen = model.recipe.is_linear or bool(getattr(model.recipe, "frozen", False))
    held = torch.ones(len(part), dtype=torch.bool) if frozen else ~mine
    if int(held.sum()) < _FEWEST_HELD:
        held = torch.ones(len(part), dtype=torch.bool)
        notes.append(
            f"the validation split has fewer than {_FEWEST_HELD} samples: the features were learnt from these very "
            "labels, so the expected number of errors is a lower bound"
        )
    truth = torch.full_like(labels, torch.nan)
    places = {name: row for row, name in enumerate(part.ids)}
    columns = {name: column for column, name in enumerate(model.concept_names)}
    for answer in answers:
        row, column = places.get(answer.id), columns.get(answer.concept or "")
        if row is None or column is None:
            continue
        recorded = float(labels[row, column]) if answer.recorded is None else answer.recorded
        labels[row, column], weights[row, column] = recorded, 1.0
        truth[row, column] = 1 - recorded if answer.wrong else recorded
    names: tuple[str, ...] = ()
    annotators = None
    if by is not None:
        given = [by.get(name) for name in part.ids]
        names = tuple(sorted({name for name in given if name is not None}))
        number = {name: index for index, name in enumerate(names)}
        annotators = torch.tensor([-1 if name is None else number[name] for name in given], dtype=torch.long)
        if len(names) < 2:
            raise InputError(f"by: {len(names)} annotators among the samples; at least two are needed to compare")
    records = Records(
        model.features(part.inputs).double().cpu(),
        labels,
        weights,
        align_labels(model, part),
        len(model.class_names),
        folds_by_id(part.ids),
        held,
        truth,
        annotators,
    )
    return NamedRecords(records, part.ids, model.concept_names, model.class_names, names, mine, tuple(notes))
