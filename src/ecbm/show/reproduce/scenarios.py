"""What can be wrong with training data, and the edit that puts it right: one function a scenario.

Each takes the clean dataset and a seed and returns the dataset before the edit and after it. The edit is the
difference of the two. Shares and counts are options with the values that the benchmark takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset

__all__ = [
    "SCENARIOS",
    "Pair",
    "Scenario",
    "concepts_flipped",
    "concepts_harmful",
    "concepts_new",
    "concepts_removed",
    "labels_one_each",
    "labels_random",
    "labels_systematic",
    "require_binary",
    "samples_new",
    "samples_poisoned",
    "samples_removed",
    "without_concepts",
    "without_rows",
]

Pair = tuple[Dataset, Dataset]
Scenario = Callable[[Dataset, int], Pair]


def require_binary(data: Dataset, where: str) -> None:
    """The scenarios flip labels and drop single columns, which has a meaning for yes/no concepts and classes."""
    others = sorted({kind for kind in data.concept_types.values() if kind != "binary"})
    if others:
        raise InputError(
            f"{where}: has {' and '.join(others)} concepts; the paper's protocols flip yes/no labels: read the "
            "columns as binary ones"
        )
    if data.predicts_number:
        raise InputError(f"{where}: its label is a number; the paper's figures are of classes")


def _train_rows(data: Dataset) -> Tensor:
    return torch.tensor([row for row, split in enumerate(data.splits) if split == "train"])


def _some(data: Dataset, share: float, seed: int) -> Tensor:
    rows = _train_rows(data)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[: round(share * len(rows))]].sort().values


def without_rows(data: Dataset, rows: Tensor) -> Dataset:
    """The dataset without some of its rows."""
    gone = set(rows.tolist())
    return data.select([row for row in range(len(data)) if row not in gone])


def without_concepts(data: Dataset, columns: list[int]) -> Dataset:
    """The dataset without some of its concepts."""
    return _columns(data, [column for column in range(len(data.concept_names)) if column not in set(columns)])


def _columns(data: Dataset, keep: list[int]) -> Dataset:
    return data.replace(concepts=data.concepts[:, keep], concept_names=[data.concept_names[j] for j in keep])


def _order(count: int, seed: int) -> list[int]:
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return order


def labels_systematic(data: Dataset, seed: int) -> Pair:
    """One of two annotators records five concepts (the most balanced ones) as absent."""
    five = (data.split("train").concepts.nanmean(0) - 0.5).abs().argsort()[:5]
    careless = _some(data, 0.5, seed)
    concepts = data.concepts.clone()
    concepts[careless[:, None], five[None, :]] = 0.0
    return data.replace(concepts=concepts), data


def labels_random(data: Dataset, seed: int, share: float = 0.1) -> Pair:
    """A share of all training concept labels flipped."""
    rows = _train_rows(data)
    generator = torch.Generator().manual_seed(seed)
    flip = torch.rand(len(rows), len(data.concept_names), generator=generator) < share
    concepts = data.concepts.clone()
    concepts[rows] = torch.where(flip, 1 - concepts[rows], concepts[rows])
    return data.replace(concepts=concepts), data


def concepts_harmful(data: Dataset, seed: int) -> Pair:
    """Five concepts whose labels are coin flips are removed."""
    noise = (torch.rand(len(data), 5, generator=torch.Generator().manual_seed(seed)) < 0.5).float()
    names = [*data.concept_names, *(f"noise={index}" for index in range(5))]
    return data.replace(concepts=torch.cat([data.concepts, noise], 1), concept_names=names), data


def concepts_flipped(data: Dataset, seed: int, share: float = 0.1, portion: float = 0.5, least: int = 1) -> Pair:
    """A share of the concepts (at least ``least``) has its labels flipped for a portion of the training samples;
    those concepts are removed.
    """
    count = len(data.concept_names)
    chosen = _order(count, seed)[: min(max(least, round(share * count)), count - 1)]
    concepts = data.concepts.clone()
    for place, column in enumerate(chosen):
        rows = _some(data, portion, seed + place)
        concepts[rows, column] = 1 - concepts[rows, column]
    spoilt = data.replace(concepts=concepts)
    return spoilt, without_concepts(spoilt, chosen)


def samples_poisoned(data: Dataset, seed: int, share: float = 0.1) -> Pair:
    """A share of the training samples has its class redrawn; they are removed."""
    rows = _some(data, share, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = data.labels.clone()
    labels[rows] = torch.randint(len(data.class_names), (len(rows),), generator=generator)
    poisoned = data.replace(labels=labels)
    return poisoned, without_rows(poisoned, rows)


def concepts_new(data: Dataset, seed: int) -> Pair:
    """Five concepts were not annotated and are added."""
    order = _order(len(data.concept_names), seed)
    return _columns(data, sorted(order[5:])), _columns(data, sorted(order[5:]) + sorted(order[:5]))


def samples_new(data: Dataset, seed: int) -> Pair:
    """A tenth of the training samples arrives later."""
    rows = _some(data, 0.1, seed)
    old = [row for row in range(len(data)) if row not in set(rows.tolist())]
    return data.select(old), data.select([*old, *rows.tolist()])


def labels_one_each(data: Dataset, seed: int, share: float = 0.03) -> Pair:
    """The paper's: one random concept label of a random share of the samples."""
    rows = _some(data, share, seed)
    columns = torch.randint(len(data.concept_names), (len(rows),), generator=torch.Generator().manual_seed(seed))
    concepts = data.concepts.clone()
    concepts[rows, columns] = 1 - concepts[rows, columns]
    return data.replace(concepts=concepts), data


def samples_removed(data: Dataset, seed: int, share: float = 0.03) -> Pair:
    """The paper's: a random share of the samples is removed."""
    return data, without_rows(data, _some(data, share, seed))


def concepts_removed(data: Dataset, seed: int, count: int = 1) -> Pair:
    """The paper's: some random concepts are removed."""
    order = _order(len(data.concept_names), seed)
    return data, _columns(data, sorted(order[count:]))


SCENARIOS: dict[str, Scenario] = {
    "labels, systematic": labels_systematic,
    "labels, 10 % random": labels_random,
    "harmful concepts removed": concepts_harmful,
    "poisoned samples removed": samples_poisoned,
    "new concepts": concepts_new,
    "new samples": samples_new,
    "paper: 3 % labels": labels_one_each,
    "paper: 3 % samples": samples_removed,
    "paper: 1 concept": partial(concepts_removed, count=1),
    "paper: 10 concepts": partial(concepts_removed, count=10),
}
