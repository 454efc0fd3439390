"""Labels from which nothing can be learnt: concepts that say the class in other words, and one class alone."""

from __future__ import annotations

from torch import Tensor

from ecbm.read.dataset import Dataset
from ecbm.read.label_free import UNLABELLED

__all__ = ["label_warnings", "repeated_classes"]

# Fewer labels than this agree by chance too often.
_FEWEST = 10


def label_warnings(train: Dataset) -> list[str]:
    """What somebody should know about training labels before trusting a model of them."""
    found = [
        f"concept {name!r} repeats the class one to one: the model will explain the class by itself; leave it "
        "out unless that is meant"
        for name in repeated_classes(train)
    ]
    if not train.predicts_number and len(train.class_names) == 1 and train.class_names[0] != UNLABELLED:
        found.append(
            f"every training sample has the class {train.class_names[0]!r}: nothing is learnt about classes"
        )
    return found


def repeated_classes(train: Dataset) -> list[str]:
    """Names of the concepts whose value and the class are one to one over the training samples that have both.

    A group of yes/no concepts counts as one concept where each sample has exactly one of them.

    Examples
    --------
    >>> import torch
    >>> labels = torch.arange(12) % 2
    >>> concepts = torch.stack([labels.float(), (torch.arange(12) < 6).float()], 1)
    >>> names = list(map(str, range(12)))
    >>> repeated_classes(Dataset(names, torch.zeros(12, 1), concepts, labels, ["is_a", "early"], ["b", "a"]))
    ['is_a']
    """
    if train.predicts_number:
        return []
    found = []
    for concept in train.layout.concepts:
        if concept.type != "continuous" and _one_to_one(train, list(concept.columns)):
            found.append(concept.name)
    typed = set(train.layout.declared)
    for group, members in train.groups.items():
        columns = [train.concept_index(name) for name in members]
        exclusive = len(members) > 1 and group not in typed
        exclusive = exclusive and bool((train.concepts[:, columns].nan_to_num(0.0).sum(1) == 1).all())
        if exclusive and _one_to_one(train, columns):
            found.append(group)
    return [name for name in found if not _within(name, found, train)]


def _within(name: str, found: list[str], train: Dataset) -> bool:
    """Whether a concept is a member of a group that was found too."""
    return any(name != group and name in train.groups.get(group, ()) for group in found)


def _one_to_one(train: Dataset, columns: list[int]) -> bool:
    labels = train.concepts[:, columns]
    known = ~labels.isnan().any(1)
    values, classes = labels[known], train.labels[known]
    if len(values) < _FEWEST or not bool(((values == 0) | (values == 1)).all()):
        return False
    pairs = {(tuple(value), label) for value, label in zip(values.tolist(), classes.tolist(), strict=True)}
    kinds: list[Tensor] = [values.unique(dim=0), classes.unique()]
    return len(pairs) == len(kinds[0]) == len(kinds[1]) > 1
