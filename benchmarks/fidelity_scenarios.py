"""What can be wrong with training data, and the edit that puts it right: one function a scenario.

Each takes the clean dataset and a seed and returns the dataset before the edit and after it. The edit is the
difference of the two.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import ecbm

Pair = tuple[ecbm.Dataset, ecbm.Dataset]


def _train_rows(data: ecbm.Dataset) -> torch.Tensor:
    return torch.tensor([row for row, split in enumerate(data.splits) if split == "train"])


def _some(data: ecbm.Dataset, share: float, seed: int) -> torch.Tensor:
    rows = _train_rows(data)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[: round(share * len(rows))]].sort().values


def _without(data: ecbm.Dataset, rows: torch.Tensor) -> ecbm.Dataset:
    gone = set(rows.tolist())
    return data.select([row for row in range(len(data)) if row not in gone])


def _columns(data: ecbm.Dataset, keep: list[int]) -> ecbm.Dataset:
    return data.replace(concepts=data.concepts[:, keep], concept_names=[data.concept_names[j] for j in keep])


def labels_systematic(data: ecbm.Dataset, seed: int) -> Pair:
    """One of two annotators records five concepts (the most balanced ones) as absent."""
    five = (data.split("train").concepts.nanmean(0) - 0.5).abs().argsort()[:5]
    careless = _some(data, 0.5, seed)
    concepts = data.concepts.clone()
    concepts[careless[:, None], five[None, :]] = 0.0
    return data.replace(concepts=concepts), data


def labels_random(data: ecbm.Dataset, seed: int) -> Pair:
    """10 % of all training concept labels flipped."""
    rows = _train_rows(data)
    generator = torch.Generator().manual_seed(seed)
    flip = torch.rand(len(rows), len(data.concept_names), generator=generator) < 0.1
    concepts = data.concepts.clone()
    concepts[rows] = torch.where(flip, 1 - concepts[rows], concepts[rows])
    return data.replace(concepts=concepts), data


def concepts_harmful(data: ecbm.Dataset, seed: int) -> Pair:
    """Five concepts whose labels are coin flips are removed."""
    noise = (torch.rand(len(data), 5, generator=torch.Generator().manual_seed(seed)) < 0.5).float()
    names = [*data.concept_names, *(f"noise={index}" for index in range(5))]
    return data.replace(concepts=torch.cat([data.concepts, noise], 1), concept_names=names), data


def samples_poisoned(data: ecbm.Dataset, seed: int) -> Pair:
    """10 % of the training samples have their class redrawn; they are removed."""
    rows = _some(data, 0.1, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = data.labels.clone()
    labels[rows] = torch.randint(len(data.class_names), (len(rows),), generator=generator)
    poisoned = data.replace(labels=labels)
    return poisoned, _without(poisoned, rows)


def concepts_new(data: ecbm.Dataset, seed: int) -> Pair:
    """Five concepts were not annotated and are added."""
    order = torch.randperm(len(data.concept_names), generator=torch.Generator().manual_seed(seed)).tolist()
    return _columns(data, sorted(order[5:])), _columns(data, sorted(order[5:]) + sorted(order[:5]))


def samples_new(data: ecbm.Dataset, seed: int) -> Pair:
    """A tenth of the training samples arrives later."""
    rows = _some(data, 0.1, seed)
    old = [row for row in range(len(data)) if row not in set(rows.tolist())]
    return data.select(old), data.select([*old, *rows.tolist()])


def paper_labels(data: ecbm.Dataset, seed: int) -> Pair:
    """The paper's: one random concept label of a random 3 % of the samples."""
    rows = _some(data, 0.03, seed)
    columns = torch.randint(len(data.concept_names), (len(rows),), generator=torch.Generator().manual_seed(seed))
    concepts = data.concepts.clone()
    concepts[rows, columns] = 1 - concepts[rows, columns]
    return data.replace(concepts=concepts), data


def paper_samples(data: ecbm.Dataset, seed: int) -> Pair:
    """The paper's: a random 3 % of the samples is removed."""
    return data, _without(data, _some(data, 0.03, seed))


def _paper_concepts(count: int) -> Callable[[ecbm.Dataset, int], Pair]:
    def scenario(data: ecbm.Dataset, seed: int) -> Pair:
        order = torch.randperm(len(data.concept_names), generator=torch.Generator().manual_seed(seed)).tolist()
        return data, _columns(data, sorted(order[count:]))

    return scenario


SCENARIOS: dict[str, Callable[[ecbm.Dataset, int], Pair]] = {
    "labels, systematic": labels_systematic,
    "labels, 10 % random": labels_random,
    "harmful concepts removed": concepts_harmful,
    "poisoned samples removed": samples_poisoned,
    "new concepts": concepts_new,
    "new samples": samples_new,
    "paper: 3 % labels": paper_labels,
    "paper: 3 % samples": paper_samples,
    "paper: 1 concept": _paper_concepts(1),
    "paper: 10 concepts": _paper_concepts(10),
}
