"""What an edit means for a trained model: terms before and after, and the model carried over to the new names."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property

import torch
from torch import Tensor, nn

from ecbm.edit.edit import Edit
from ecbm.read.dataset import Dataset
from ecbm.train.backbones import MLP, Standardise
from ecbm.train.model import ConceptBottleneck, Provenance, linear_from
from ecbm.train.terms import ConceptTerms, concept_terms, positive_weights

__all__ = [
    "Restandardised",
    "Situation",
    "carry",
    "has_statistics",
    "restandardise",
    "restandardised",
    "situation_of",
]


@dataclasses.dataclass(frozen=True)
class Situation:
    """One edit against one model and dataset.

    ``rows`` pairs old and new rows of training samples that stay, ``columns`` old and new columns of concepts that
    stay; both are index tensors (old, new).
    """

    model: ConceptBottleneck
    edit: Edit
    data: Dataset
    edited: Dataset
    rows: tuple[Tensor, Tensor]
    columns: tuple[Tensor, Tensor]
    positive: Tensor
    terms_before: ConceptTerms
    terms_after: ConceptTerms

    @property
    def before(self) -> Dataset:
        return self.data.split("train")

    @property
    def after(self) -> Dataset:
        return self.edited.split("train")

    @property
    def same_samples(self) -> bool:
        """True if no training sample comes or goes."""
        return len(self.before) == len(self.after) == len(self.rows[0])

    @cached_property
    def aligned(self) -> bool:
        """True if samples and concepts are the same, in the same order."""
        same_columns = self.terms_before.targets.shape == self.terms_after.targets.shape
        in_order = all(torch.equal(*pair) for pair in (self.rows, self.columns))
        return self.same_samples and same_columns and len(self.columns[0]) == len(self.positive) and in_order

    @cached_property
    def _differs(self) -> Tensor | None:
        """Which terms changed (n, k), where nothing else did."""
        if not self.aligned:
            return None
        a, b = self.terms_before, self.terms_after
        return (a.targets != b.targets).logical_or_(a.weights != b.weights)

    def touched_columns(self) -> Tensor:
        """New columns whose terms differ from the old ones: given the features, only these heads can move."""
        total = self.terms_after.targets.shape[1]
        if not self.same_samples:
            return torch.arange(total)
        if self._differs is not None:
            return self._differs.any(0).nonzero().flatten()
        touched = torch.ones(total, dtype=torch.bool)
        (rows_old, rows_new), (old, new) = self.rows, self.columns
        a, b = self.terms_before, self.terms_after
        same = (a.targets[rows_old][:, old] == b.targets[rows_new][:, new]).all(0)
        same &= (a.weights[rows_old][:, old] == b.weights[rows_new][:, new]).all(0)
        touched[new] = ~same
        return touched.nonzero().flatten()

    def changed_rows(self) -> Tensor:
        """New rows of kept samples with a changed concept target or weight among the kept concepts."""
        (rows_old, rows_new), (old, new) = self.rows, self.columns
        if self._differs is not None:
            return self._differs.any(1).nonzero().flatten()
        a, b = self.terms_before, self.terms_after
        differs = (a.targets[rows_old][:, old] != b.targets[rows_new][:, new]).any(1)
        differs |= (a.weights[rows_old][:, old] != b.weights[rows_new][:, new]).any(1)
        return rows_new[differs]

    def counts(self) -> dict[str, int]:
        """How many terms, samples and concepts the edit touches."""
        edit = self.edit
        samples = {i for i, _, _ in edit.correct_concepts} | {i for i, _ in edit.correct_labels}
        samples |= set(edit.remove_samples) | {i for vs in edit.add_concepts.values() for i in vs}
        samples |= set(edit.add_samples.ids if edit.add_samples is not None else ())
        changed = self.changed_rows()
        (rows_old, rows_new), (old, new) = self.rows, self.columns
        terms = sum(sample in self.before.rows_by_id for sample, _ in edit.correct_labels)
        if len(changed):
            back = torch.full((len(self.after),), -1, dtype=torch.long)
            back[rows_new] = rows_old
            a = self.terms_before.targets[back[changed]][:, old], self.terms_before.weights[back[changed]][:, old]
            b = self.terms_after.targets[changed][:, new], self.terms_after.weights[changed][:, new]
            terms += int(((a[0] != b[0]) | (a[1] != b[1])).sum())
        gone = torch.ones(len(self.before), dtype=torch.bool)
        gone[rows_old] = False
        come = torch.ones(len(self.after), dtype=torch.bool)
        come[rows_new] = False
        terms += int((self.terms_before.weights[gone] != 0).sum()) + int(
            (self.terms_after.weights[come] != 0).sum()
        )
        terms += int(gone.sum()) + int(come.sum())
        dropped = [j for j in range(self.terms_before.targets.shape[1]) if j not in set(old.tolist())]
        fresh = [j for j in range(self.terms_after.targets.shape[1]) if j not in set(new.tolist())]
        terms += int((self.terms_before.weights[rows_old][:, dropped] != 0).sum())
        terms += int((self.terms_after.weights[rows_new][:, fresh] != 0).sum())
        concepts = {c for _, c, _ in edit.correct_concepts} | set(edit.remove_concepts) | set(edit.add_concepts)
        return {"terms": terms, "samples": len(samples), "concepts": len(concepts)}


def situation_of(
    model: ConceptBottleneck, data: Dataset, edit: Edit, edited: Dataset, before: ConceptTerms | None = None
) -> Situation:
    """Put an edit beside a model and its data; ``before`` are the terms of the data, where they are at hand."""
    old, after = data.split("train"), edited.split("train")
    names = {name: column for column, name in enumerate(edited.concept_names)}
    kept = [(column, names[name]) for column, name in enumerate(data.concept_names) if name in names]
    positive = positive_weights(after, model.recipe_for(edited.concept_names))
    return Situation(
        model,
        edit,
        data,
        edited,
        _shared_rows(old, after, set(edit.remove_samples)),
        _pairs(kept),
        positive,
        before or concept_terms(old.concepts, model.positive_weights),
        concept_terms(after.concepts, positive),
    )


def _shared_rows(before: Dataset, after: Dataset, gone: set[str]) -> tuple[Tensor, Tensor]:
    """Old and new rows of samples that stay; an id that comes back is another sample."""
    if before.ids == after.ids and not gone:
        return torch.arange(len(before)), torch.arange(len(before))
    places = after.rows_by_id
    return _pairs([(row, places[i]) for row, i in enumerate(before.ids) if i in places and i not in gone])


def _pairs(pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    table = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return table[:, 0].contiguous(), table[:, 1].contiguous()


def _standardise(backbone: nn.Module) -> tuple[Standardise, nn.Linear | None] | None:
    """The standardisation in a backbone, and the layer behind it (``None``: the concept head)."""
    if isinstance(backbone, Standardise):
        return backbone, None
    if isinstance(backbone, MLP):
        first = backbone.layers[0]
        assert isinstance(first, nn.Linear)
        return backbone.standardise, first
    return None


def has_statistics(backbone: nn.Module) -> bool:
    """Whether a backbone holds statistics of the training samples, which change when those do."""
    return _standardise(backbone) is not None


@dataclasses.dataclass(frozen=True)
class Restandardised:
    """New standardised features as old ones: x' = ratio · x + offset, with the statistics that give x'."""

    statistics: Standardise
    ratio: Tensor
    offset: Tensor

    def head(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Weights that give from x' what the given ones give from x."""
        rescaled = weight.double() / self.ratio
        return rescaled, bias.double() - rescaled @ self.offset

    def gradient(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of a loss over such weights, from that over weights that read x."""
        return weight * self.ratio + bias[:, None] * self.offset, bias


def restandardised(model: ConceptBottleneck, data: Dataset) -> Restandardised | None:
    """How standardisation changes if it is fitted on ``data``; ``None`` for a backbone that has none."""
    found = _standardise(model.backbone)
    if found is None:
        return None
    old = found[0]
    new = Standardise.of(data.x.flatten(1), old.dtype)
    return Restandardised(new, old.scale / new.scale, (old.mean - new.mean) / new.scale)


def restandardise(model: ConceptBottleneck, data: Dataset) -> ConceptBottleneck:
    """The same function of the input, written with the standardisation of ``data``."""
    change = restandardised(model, data)
    if change is None:
        return model
    other = copy.deepcopy(model)
    found = _standardise(other.backbone)
    assert found is not None
    statistics, layer = found[0], found[1] if found[1] is not None else other.concept_head
    with torch.no_grad():
        weight, bias = change.head(layer.weight, layer.bias)
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    statistics.mean.copy_(change.statistics.mean)
    statistics.scale.copy_(change.statistics.scale)
    return other


def carry(situation: Situation, *, refit_statistics: bool = True) -> ConceptBottleneck:
    """The unedited model under the new names: removed concepts dropped, new ones with zero weights.

    Dropping a concept drops its head row *and* the label head's input column, so it cannot influence any output.
    Positive weights and (with ``refit_statistics``) standardisation become those of the edited data, without
    changing what the model computes. The fingerprint of its data is left to whoever finishes the model.
    """
    model, edited = situation.model, situation.edited
    old, new = situation.columns
    k = len(edited.concept_names)
    concept = linear_from(torch.zeros(k, model.concept_head.in_features + 1))
    label = linear_from(torch.zeros(len(model.class_names), k + 1))
    low, high = torch.zeros(k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
    with torch.no_grad():
        concept.weight[new] = model.concept_head.weight[old]
        concept.bias[new] = model.concept_head.bias[old]
        label.weight[:, new] = model.label_head.weight[:, old]
        label.bias.copy_(model.label_head.bias)
    low[new], high[new] = model.low[old], model.high[old]
    carried = ConceptBottleneck(
        copy.deepcopy(model.backbone),
        concept,
        label,
        edited.concept_names,
        model.class_names,
        model.recipe_for(edited.concept_names),
        model.input_shape,
        situation.positive,
        low,
        high,
        Provenance("", model.provenance.training),
    )
    if refit_statistics and not situation.same_samples:
        carried = restandardise(carried, situation.after)
    return carried
