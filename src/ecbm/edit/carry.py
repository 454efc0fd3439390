"""The unedited model under the names and statistics of the edited data: where every edit starts."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor, nn

from ecbm.edit.alignment import Alignment
from ecbm.read.dataset import Dataset
from ecbm.train.backbones import MLP, Standardise
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck, Provenance, linear_from
from ecbm.train.terms import target_scaling

__all__ = ["Restandardised", "carry", "has_statistics", "restandardise", "restandardised", "with_heads"]


def with_heads(
    model: ConceptBottleneck, concept: Tensor, label: Tensor | None, low: Tensor, high: Tensor
) -> ConceptBottleneck:
    """The model with other heads (``label`` ``None`` keeps its own) and other intervention logits."""
    return ConceptBottleneck(
        model.backbone,
        linear_from(concept),
        model.label_head if label is None else linear_from(label),
        model.concept_names,
        model.class_names,
        model.recipe,
        model.input_shape,
        model.positive_weights,
        low,
        high,
        model.provenance,
        model.layout,
        model.percentiles,
        model.front,
        model.target_scaling,
        model.target_unit,
    )


def carry(alignment: Alignment, *, refit_statistics: bool = True) -> ConceptBottleneck:
    """The unedited model under the new names: removed concepts dropped, new ones with zero weights.

    Dropping a concept drops its head row *and* the label head's input column, so it cannot influence any output.
    Positive weights, mean and scale of labels that are numbers and (with ``refit_statistics``) standardisation
    become those of the edited data, without changing what the model computes. The fingerprint of its data is left
    to whoever finishes the model.
    """
    model, edited, concepts = alignment.model, alignment.edited, alignment.concepts
    label, target = rows_of(model.label_head), target_scaling(alignment.after)
    if target is not None and model.target_scaling is not None:
        label = _rescaled(label, model.target_scaling, target)
    carried = ConceptBottleneck(
        copy.deepcopy(model.backbone),
        linear_from(concepts.carry(rows_of(model.concept_head))),
        linear_from(torch.cat([concepts.carry(label[:, :-1].T).T, label[:, -1:]], 1)),
        edited.concept_names,
        model.class_names,
        model.recipe_for(edited.concept_names),
        model.input_shape,
        alignment.positive,
        concepts.carry(model.low),
        concepts.carry(model.high),
        Provenance("", model.provenance.training),
        edited.layout,
        front=model.front,
        target_scaling=target,
        target_unit=edited.target_unit,
    )
    if refit_statistics and not alignment.samples.complete:
        carried = restandardise(carried, alignment.after)
    return carried


def _rescaled(label: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """A label head that says in units of the new mean and scale what it said in those of the old ones."""
    rows = label * (old[1] / new[1])
    rows[:, -1] += (old[0] - new[0]) / new[1]
    return rows


# -- standardisation -----------------------------------------------------------------------------------------


def _standardise(backbone: nn.Module) -> tuple[Standardise, str | None] | None:
    """The standardisation in a backbone, and the name in it of the layer behind (``None``: the concept head)."""
    if isinstance(backbone, Standardise):
        return backbone, None
    return (backbone.standardise, "layers.0") if isinstance(backbone, MLP) else None


def has_statistics(backbone: nn.Module) -> bool:
    """Whether a backbone holds statistics of the training samples, which change when those do."""
    return _standardise(backbone) is not None


@dataclasses.dataclass(frozen=True)
class Restandardised:
    """New standardised features as old ones: x' = ratio · x + offset.

    ``statistics`` give x'; ``layer`` names, within backbone and concept head, the layer that reads it.
    """

    statistics: Standardise
    ratio: Tensor
    offset: Tensor
    layer: str

    def weights(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Weights that give from x' what the given ones give from x."""
        rescaled = weight.double() / self.ratio
        return rescaled, bias.double() - rescaled @ self.offset

    def gradient(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of a loss over such weights, from that over weights that read x."""
        moved = weight.double() * self.ratio + bias.double()[:, None] * self.offset
        return moved.to(weight.dtype), bias


def restandardised(model: ConceptBottleneck, data: Dataset) -> Restandardised | None:
    """How standardisation changes if it is fitted on ``data``; ``None`` for a backbone that has none."""
    found = _standardise(model.backbone)
    if found is None:
        return None
    old, layer = found
    new = Standardise.of(data.x.flatten(1), old.dtype)
    name = "concept_head" if layer is None else f"backbone.{layer}"
    return Restandardised(new, old.scale / new.scale, (old.mean - new.mean) / new.scale, name)


def restandardise(model: ConceptBottleneck, data: Dataset) -> ConceptBottleneck:
    """The same function of the input, written with the standardisation of ``data``."""
    change = restandardised(model, data)
    if change is None:
        return model
    other = copy.deepcopy(model)
    found = _standardise(other.backbone)
    assert found is not None
    layer = other.get_submodule(change.layer)
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        weight, bias = change.weights(layer.weight, layer.bias)
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    found[0].mean.copy_(change.statistics.mean)
    found[0].scale.copy_(change.statistics.scale)
    return other
