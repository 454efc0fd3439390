"""An edit beside a model and its data: which rows and columns stay, go and come, and the terms before and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ecbm.edit.edit import Edit
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms, concept_scaling, label_targets, positive_weights, terms_of

__all__ = ["Alignment", "Matching", "align"]


@dataclasses.dataclass(frozen=True, eq=False)
class Matching:
    """Places along one axis, before and after: what stood at ``old[i]`` stands at ``new[i]``; the rest went or
    came.
    """

    old: Tensor
    new: Tensor
    before: int
    after: int

    @classmethod
    def by_name(cls, before: Sequence[str], after: Sequence[str], gone: frozenset[str] = frozenset()) -> Matching:
        """Names that are in both stay; one in ``gone`` that comes back is another thing of that name."""
        if not gone and tuple(before) == tuple(after):
            every = torch.arange(len(before))
            return cls(every, every, len(before), len(before))
        places = {name: place for place, name in enumerate(after)}
        pairs = [(old, places[name]) for old, name in enumerate(before) if name in places and name not in gone]
        table = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        return cls(table[:, 0].contiguous(), table[:, 1].contiguous(), len(before), len(after))

    @cached_property
    def gone(self) -> Tensor:
        """Old places of what is no longer there."""
        return _others(self.before, self.old)

    @cached_property
    def come(self) -> Tensor:
        """New places of what was not there."""
        return _others(self.after, self.new)

    @property
    def complete(self) -> bool:
        """Whether nothing went or came; the order may differ."""
        return len(self.old) == self.before == self.after

    @cached_property
    def unchanged(self) -> bool:
        """Whether everything is where it was."""
        return self.complete and bool(torch.equal(self.old, self.new))

    @cached_property
    def origin(self) -> Tensor:
        """(after,) the old place of everything; −1 for what came."""
        origin = torch.full((self.after,), -1, dtype=torch.long)
        origin[self.new] = self.old
        return origin

    def carry(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Values along the first axis, moved to their new places; ``fill`` where something came."""
        if self.unchanged:
            return values
        moved = values.new_full((self.after, *values.shape[1:]), fill)
        moved[self.new] = values[self.old]
        return moved


def _others(count: int, present: Tensor) -> Tensor:
    absent = torch.ones(count, dtype=torch.bool)
    absent[present] = False
    return absent.nonzero().flatten()


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """One edit of one model on one dataset. ``samples`` are those of the training split."""

    model: ConceptBottleneck
    edit: Edit
    data: Dataset
    edited: Dataset
    samples: Matching
    concepts: Matching
    positive: Tensor
    terms_before: ConceptTerms
    terms_after: ConceptTerms

    @property
    def before(self) -> Dataset:
        return self.data.split("train")

    @property
    def after(self) -> Dataset:
        return self.edited.split("train")

    @cached_property
    def labels_after(self) -> Tensor:
        """What J'_Y is over: classes, or standardised numbers."""
        return label_targets(self.after)

    @cached_property
    def same_terms(self) -> bool:
        """Whether samples and concepts are the same in the same order, so that at most labels changed."""
        return self.samples.unchanged and self.concepts.unchanged

    @property
    def same_validation(self) -> bool:
        """Whether the validation samples are surely the same; an edit that names samples may be about any split."""
        return not self.edit.remove_samples and self.edit.add_samples is None

    @cached_property
    def _differs(self) -> Tensor:
        """Which terms changed, (samples that stay, concepts that stay)."""
        a, b = self.terms_before, self.terms_after
        if not self.same_terms:
            a = a.part(self.samples.old, self.concepts.old)
            b = b.part(self.samples.new, self.concepts.new)
        return (a.targets != b.targets).logical_or_(a.weights != b.weights)

    def touched_concepts(self) -> Tensor:
        """New columns whose terms differ from the old ones: given the features, only these heads can move."""
        if not self.samples.complete:
            return torch.arange(self.concepts.after)
        touched = torch.ones(self.concepts.after, dtype=torch.bool)
        touched[self.concepts.new] = self._differs.any(0)
        return self.edited.layout.closed(touched.nonzero().flatten())

    def changed_samples(self) -> tuple[Tensor, Tensor]:
        """Old and new rows whose loss changed: terms that differ, removed or new concepts, samples gone or come."""
        gone, come = self.concepts.gone, self.concepts.come
        differs = self._differs.any(1)
        differs |= (self.terms_before.weights[self.samples.old][:, gone] != 0).any(1)
        differs |= (self.terms_after.weights[self.samples.new][:, come] != 0).any(1)
        old = torch.cat([self.samples.old[differs], self.samples.gone])
        return old, torch.cat([self.samples.new[differs], self.samples.come])

    def _changed_terms(self) -> int:
        """How many terms differ; of a continuous concept those whose label does, for a new mean moves them all."""
        differs = self._differs
        squared = [place for place, new in enumerate(self.concepts.new.tolist()) if self._is_squared(new)]
        if squared:
            old, new = self.concepts.old[squared], self.concepts.new[squared]
            a = self.before.concepts[self.samples.old][:, old]
            b = self.after.concepts[self.samples.new][:, new]
            differs = differs.clone()
            differs[:, squared] = ~((a == b) | (a.isnan() & b.isnan()))
        return int(differs.sum())

    def _is_squared(self, column: int) -> bool:
        layout = self.edited.layout
        return layout.concepts[layout.owner[column]].type == "continuous"

    def counts(self) -> dict[str, int]:
        """How many terms, samples and concepts the edit touches."""
        edit, before, after = self.edit, self.terms_before.weights != 0, self.terms_after.weights != 0
        terms = sum(sample in self.before.rows_by_id for sample, _ in edit.correct_labels) + self._changed_terms()
        terms += len(self.samples.gone) + len(self.samples.come)  # one class label each
        terms += int(before[self.samples.gone].sum()) + int(after[self.samples.come].sum())
        terms += int(before[self.samples.old][:, self.concepts.gone].sum())
        terms += int(after[self.samples.new][:, self.concepts.come].sum())
        samples = {i for i, _, _ in edit.correct_concepts} | {i for i, _ in edit.correct_labels}
        samples |= set(edit.remove_samples) | {i for vs in edit.add_concepts.values() for i in vs}
        samples |= set(edit.add_samples.ids if edit.add_samples is not None else ())
        named = {c for _, c, _ in edit.correct_concepts} | set(edit.remove_concepts) | set(edit.add_concepts)
        owners = {**_owners(self.data), **_owners(self.edited)}
        return {"terms": terms, "samples": len(samples), "concepts": len({owners[name] for name in named})}


def _owners(data: Dataset) -> dict[str, str]:
    """The concept that each column belongs to."""
    layout = data.layout
    return {name: layout.concepts[layout.owner[place]].name for place, name in enumerate(data.concept_names)}


def align(
    model: ConceptBottleneck, data: Dataset, edit: Edit, edited: Dataset, before: ConceptTerms | None = None
) -> Alignment:
    """Put an edit beside a model and its data; ``before`` are the terms of the data, where they are at hand."""
    old, after = data.split("train"), edited.split("train")
    positive = positive_weights(after, model.recipe_for(edited.concept_names))
    return Alignment(
        model,
        edit,
        data,
        edited,
        Matching.by_name(old.ids, after.ids, frozenset(edit.remove_samples)),
        Matching.by_name(data.concept_names, edited.concept_names),
        positive,
        before or terms_of(old, model.positive_weights, concept_scaling(old)),
        terms_of(after, positive, concept_scaling(after)),
    )
