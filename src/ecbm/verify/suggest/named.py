"""From a model and its data to arrays, and the names that belong to them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.concept_types import Concept, ConceptLayout, concept_groups
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import align_concepts, align_labels
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.read_answers import Answer

__all__ = ["NamedRecords", "NumberLabels", "folds_by_id", "records_of", "with_answers"]

_FOLDS = 5
_FEWEST = 20
# Fewer held samples say too little about how often labels are wrong.
_FEWEST_HELD = 100
# Labels that are numbers stand for classes by so many parts of equal size.
_PARTS = 5


def folds_by_id(ids: Sequence[str]) -> Tensor:
    """Folds that follow from the ids alone, so that the order of samples does not matter."""
    order = sorted(range(len(ids)), key=lambda row: hashlib.blake2b(ids[row].encode(), digest_size=8).digest())
    folds = torch.empty(len(ids), dtype=torch.long)
    folds[torch.tensor(order, dtype=torch.long)] = torch.arange(len(ids)) % _FOLDS
    return folds


@dataclasses.dataclass(frozen=True)
class NumberLabels:
    """Numbers (n,) of one continuous concept, or of labels that are numbers; NaN where missing.

    ``name`` is ``None`` for labels. ``unit`` is for display.
    """

    name: str | None
    values: Tensor
    unit: str


@dataclasses.dataclass(frozen=True)
class NamedRecords:
    """Records with the names that belong to them.

    Attributes
    ----------
    concepts
        Names of the records' columns.
    valued
        Concepts of several values; their columns are those of the records.
    numbers
        Continuous concepts, and labels that are numbers.
    classes
        Names of the classes, or of the parts that stand for them where labels are numbers (``has_classes`` false).
    mine
        (n,) samples whose labels are judged.
    held
        (n, k) labels as the data holds them; those of the records may be what somebody saw earlier.
    """

    records: Records
    ids: tuple[str, ...]
    concepts: tuple[str, ...]
    valued: tuple[Concept, ...]
    numbers: tuple[NumberLabels, ...]
    classes: tuple[str, ...]
    has_classes: bool
    annotators: tuple[str, ...]
    mine: Tensor
    held: Tensor
    split: str
    frozen: bool
    notes: tuple[str, ...]

    @property
    def training(self) -> Tensor:
        """(n,) training samples; the others are for validation."""
        return self.mine if self.split == "train" else ~self.mine

    @property
    def groups(self) -> Tensor:
        """(k,) number of each concept's group."""
        number = {name: i for i, names in enumerate(concept_groups(self.concepts).values()) for name in names}
        return torch.tensor([number[name] for name in self.concepts], dtype=torch.long)


def records_of(
    model: ConceptBottleneck, data: Dataset, *, by: Mapping[str, str] | None = None, split: str = "train"
) -> NamedRecords:
    """The arrays behind a model and its training and validation data."""
    if split not in ("train", "val"):
        raise InputError(f"suggest: split={split!r}; give 'train' or 'val', the test split is for figures alone")
    names = [name for name in ("train", "val") if name in data.split_sizes]
    for needed in dict.fromkeys(("train", split)):
        if needed not in names:
            raise InputError(f"suggest: the data has no {needed} split; suggestions are about its labels")
    rows = [row for name in names for row, own in enumerate(data.splits) if own == name]
    # In the order of their ids, so that sums round alike however the table was sorted.
    part = data.select(sorted(rows, key=lambda row: data.ids[row]))
    training = torch.tensor([own == "train" for own in part.splits])
    if int(training.sum()) < _FEWEST:
        raise InputError(
            f"suggest: {int(training.sum())} training samples are too few to compare; {_FEWEST} are needed"
        )
    layout = model.layout
    given = align_concepts(model, part).double()
    columns = [column for column in range(layout.width) if column not in layout.squared.tolist()]
    soft = given[:, columns]
    known = ~soft.isnan()
    # A soft label is a vote: 0.7 says "present" with the weight of what it is surer than even.
    labels = torch.where(known, (soft >= 0.5).double(), 0.0)
    weights = torch.where(known, (2 * soft - 1).abs(), 0.0)
    frozen = model.recipe.is_linear
    held, notes = _held(training, frozen)
    valued = _valued(layout, columns)
    number, classes, class_names = _labels(model, part)
    numbers = tuple(
        NumberLabels(concept.name, given[:, concept.columns[0]], concept.unit)
        for concept in layout.of_type("continuous")
    )
    records = Records(
        model.features(part).double().cpu(), labels, weights, classes, len(class_names), folds_by_id(part.ids),
        held, torch.full_like(labels, torch.nan),
        binary=_binary(valued, len(columns)),
        alike=_alike(labels, known, valued, [model.concept_names[column] for column in columns]),
        measured=_standardised(numbers) if numbers else None,
    )  # fmt: skip
    annotators, people = _annotators(part.ids, by)
    return NamedRecords(
        dataclasses.replace(records, annotators=annotators), part.ids,
        tuple(model.concept_names[column] for column in columns), valued,
        numbers if number is None else (*numbers, number), class_names, number is None, people,
        torch.tensor([own == split for own in part.splits]), labels, split, frozen, notes,
    )  # fmt: skip


def _held(training: Tensor, frozen: bool) -> tuple[Tensor, tuple[str, ...]]:
    """(n,) samples that the features were not learnt from."""
    everybody = torch.ones_like(training)
    if frozen:
        return everybody, ()
    if int((~training).sum()) >= _FEWEST_HELD:
        return ~training, ()
    note = (
        f"the validation split has fewer than {_FEWEST_HELD} samples: the features were learnt from these very "
        "labels, so the expected number of errors is a lower bound"
    )
    return everybody, (note,)


def _valued(layout: ConceptLayout, columns: Sequence[int]) -> tuple[Concept, ...]:
    place = {column: index for index, column in enumerate(columns)}
    return tuple(
        dataclasses.replace(concept, columns=tuple(place[column] for column in concept.columns))
        for concept in layout.of_type("categorical", "ordinal")
    )


def _binary(valued: Sequence[Concept], count: int) -> Tensor:
    binary = torch.ones(count, dtype=torch.bool)
    for concept in valued:
        binary[list(concept.columns)] = False
    return binary


def _alike(labels: Tensor, known: Tensor, valued: Sequence[Concept], names: Sequence[str]) -> Tensor:
    """(k, k) columns of one list: values of one concept, or yes/no columns of a group of which each row has one.

    Whoever chooses from a list gets two columns wrong at once, and each of them agrees with the other.
    """
    alike = torch.eye(len(names), dtype=torch.bool)
    lists = [list(concept.columns) for concept in valued]
    place = {name: column for column, name in enumerate(names)}
    for members in concept_groups(names).values():
        some = [place[name] for name in members]
        rows = known[:, some].all(1)
        if len(some) > 1 and bool(rows.any()) and bool((labels[rows][:, some].sum(1) == 1).all()):
            lists.append(some)
    for some in lists:
        alike[torch.tensor(some)[:, None], torch.tensor(some)] = True
    return alike


def _standardised(numbers: Sequence[NumberLabels]) -> Tensor:
    columns = []
    for item in numbers:
        some = item.values[~item.values.isnan()]
        spread = float(some.std()) if len(some) > 1 else 0.0
        columns.append(((item.values - some.mean()) / (spread or 1.0)).nan_to_num(0.0).clamp(-5.0, 5.0))
    return torch.stack(columns, 1)


def _labels(model: ConceptBottleneck, part: Dataset) -> tuple[NumberLabels | None, Tensor, tuple[str, ...]]:
    """Classes with their names; of numbers the parts that stand for classes, and the numbers."""
    labels = align_labels(model, part)
    if not model.predicts_number:
        return None, labels, model.class_names
    shares = torch.arange(1, _PARTS, dtype=torch.float64) / _PARTS
    edges = torch.quantile(labels.double(), shares).unique()
    name, unit = model.class_names[0], f" {model.target_unit}" if model.target_unit else ""
    said = [f"{edge:.3g}" for edge in edges.tolist()]
    between = [f"samples with {name} of {a} to {b}{unit}" for a, b in itertools.pairwise(said)]
    names = (f"samples with {name} up to {said[0]}{unit}", *between, f"samples with {name} over {said[-1]}{unit}")
    return NumberLabels(None, labels.double(), model.target_unit), torch.bucketize(labels.double(), edges), names


def _annotators(ids: Sequence[str], by: Mapping[str, str] | None) -> tuple[Tensor | None, tuple[str, ...]]:
    if by is None:
        return None, ()
    given = [by.get(name) for name in ids]
    names = tuple(sorted({name for name in given if name is not None}))
    if len(names) < 2:
        raise InputError(f"by: {len(names)} annotators among the samples; at least two are needed to compare")
    number = {name: index for index, name in enumerate(names)}
    return torch.tensor([-1 if name is None else number[name] for name in given], dtype=torch.long), names


def with_answers(named: NamedRecords, answers: Iterable[Answer]) -> NamedRecords:
    """The records with what a person found about yes/no labels."""
    records = named.records
    labels, weights, truth = records.labels.clone(), records.weights.clone(), records.truth.clone()
    places = {name: row for row, name in enumerate(named.ids)}
    columns = {name: column for column, name in enumerate(named.concepts) if bool(records.on_its_own[column])}
    for answer in answers:
        row, column = places.get(answer.id), columns.get(answer.concept or "")
        if row is None or column is None:
            continue
        recorded = float(labels[row, column]) if answer.recorded is None else float(answer.recorded)
        labels[row, column], weights[row, column] = recorded, 1.0
        truth[row, column] = 1 - recorded if answer.wrong else recorded
    return dataclasses.replace(
        named, records=dataclasses.replace(records, labels=labels, weights=weights, truth=truth)
    )
