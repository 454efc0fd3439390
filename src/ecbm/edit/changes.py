"""What an edit really changes in a dataset: labels that have their value already are no change."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ecbm.read.concept_types import concept_of
from ecbm.read.splits import SPLITS
from ecbm.words import counted

if TYPE_CHECKING:
    from ecbm.edit.edit import Edit
    from ecbm.read.dataset import Dataset

__all__ = ["FEW", "Changes", "changes_of"]

# Below this a yes/no concept's share alone is uncertain by more than ten points either way.
FEW = 20


@dataclasses.dataclass(frozen=True)
class Changes:
    """An edit beside the data it is for.

    Parameters
    ----------
    edit
        What is left of the edit without the labels that already have their value.
    before
        The corrections that take its corrected labels back: what they were.
    asked
        How many labels the edit names.
    unchanged
        How many of them already have the value it gives.
    outside
        How many labels and samples it changes in splits that no training term depends on, by split.
    inside
        How many of its changes are about the training split, or about a concept as a whole.
    few
        Training labels of new concepts that have fewer than :data:`FEW`.
    """

    edit: Edit
    before: Edit
    asked: int
    unchanged: int
    outside: dict[str, int]
    inside: int
    few: dict[str, int] = dataclasses.field(default_factory=dict)

    def notes(self) -> list[str]:
        """In sentences, what somebody who gave the edit may not expect of it."""
        found = []
        if self.unchanged:
            rest = "" if self.edit else ": nothing to do"
            which = f"{self.unchanged:,} of {counted(self.asked, 'label')} already have these values"
            found.append(("the label already has this value" if self.asked == 1 else which) + rest)
        if self.outside:
            where, number = " and ".join(self.outside), sum(self.outside.values())
            what = "it changes only samples of"
            if self.inside:
                verb = "is" if number == 1 else "are"
                what = f"{number:,} of its {counted(number + self.inside, 'change')} {verb} in"
            found.append(f"{what} {where}, on which no training term depends")
        for name, count in self.few.items():
            labels = counted(count, "training label")
            found.append(f"new concept {name!r} has {labels}: what is learnt from so few says little")
        return found


def changes_of(edit: Edit, data: Dataset) -> Changes:
    """Put an edit beside its data. The edit must fit it (:meth:`Edit.check`)."""
    from ecbm.edit.edit import Edit as EditValue

    concepts, old_concepts, pairs = [], [], set[tuple[str, int]]()
    column = {name: index for index, name in enumerate(data.concept_names)}
    moved: set[tuple[str, int]] = set()
    if edit.correct_concepts:
        rows = torch.tensor([data.rows_by_id[sample] for sample, _, _ in edit.correct_concepts])
        columns = torch.tensor([column[concept] for _, concept, _ in edit.correct_concepts])
        stored = data.concepts[rows, columns]
        # Compared as they are stored, in float32.
        given = torch.tensor([value for _, _, value in edit.correct_concepts], dtype=stored.dtype)
        same = ((stored == given) | (stored.isnan() & given.isnan())).tolist()
        # A label of a concept with several columns is corrected in all of them or in none.
        owners = [data.layout.owner[place] for place in columns.tolist()]
        named = [(item[0], owner) for item, owner in zip(edit.correct_concepts, owners, strict=True)]
        pairs = set(named)
        moved = {pair for pair, kept in zip(named, same, strict=True) if not kept}
        for item, was, pair in zip(edit.correct_concepts, stored.tolist(), named, strict=True):
            if pair in moved:
                concepts.append(item)
                old_concepts.append((item[0], item[1], None if math.isnan(was) else was))
    old_labels = {s: str(data.label_of(data.rows_by_id[s])) for s, _ in edit.correct_labels}
    labels = [(sample, label) for sample, label in edit.correct_labels if old_labels[sample] != label]
    left = dataclasses.replace(edit, correct_concepts=tuple(concepts), correct_labels=tuple(labels))
    asked = len(pairs) + len(edit.correct_labels)
    splits = _splits([*(sample for sample, _ in (*moved, *labels)), *edit.remove_samples], edit.add_samples, data)
    wholes = {concept_of(name, edit.concept_types) for name in (*edit.remove_concepts, *edit.add_concepts)}
    outside = {name: splits[name] for name in SPLITS if name != "train" and name in splits}
    return Changes(
        left,
        EditValue(
            old_concepts,
            [(sample, old_labels[sample]) for sample, _ in labels],
            concept_types={
                name: data.concept_types[name] for name in edit.concept_types if name in data.concept_types
            },
        ),
        asked,
        asked - len(moved) - len(labels),
        outside,
        splits.get("train", 0) + len(wholes),
        _few(edit, data),
    )


def _few(edit: Edit, data: Dataset) -> dict[str, int]:
    """How many training labels new concepts have that have hardly any; new samples may bring more of them."""
    if edit.add_samples is not None:
        return {}
    learnt = set(data.split("train").ids) - set(edit.remove_samples) if edit.add_concepts else set()
    counts = {concept_of(name, edit.concept_types): len(learnt & set(v)) for name, v in edit.add_concepts.items()}
    return {name: count for name, count in counts.items() if count < FEW}


def _splits(samples: Iterable[str], added: Dataset | None, data: Dataset) -> dict[str, int]:
    """How many changes of samples, or of labels by their samples, are in each split."""
    found = Counter(data.splits[data.rows_by_id[sample]] for sample in samples)
    return found + Counter(added.splits if added is not None else ())
