"""Influence steps: θ' = θ − H⁻¹(∇J'(θ) − ∇J(θ)), with EK-FAC or the exact Hessian for H (method.md).

This is the paper's method, level by level one formula. Only terms that changed need a backward pass:

    ∇J' − ∇J = (1/n')(Σ_changed ∇ℓ'_i − Σ_changed ∇ℓ_i) + (n/n' − 1)(∇J − αθ)
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor, nn

from ecbm.curvature import ConceptLoss, Vector
from ecbm.read.inputs import Inputs, TensorInputs, rows_at_once
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

__all__ = ["ConceptPart", "Widened", "add_step", "concept_part", "gradient_sum", "objective_gradient"]

_BATCH = 256


class ConceptPart(nn.Module):
    """The concept predictor g as one module: backbone and concept head in one precision."""

    def __init__(self, backbone: nn.Module, concept_head: nn.Linear) -> None:
        super().__init__()
        self.backbone = backbone
        self.concept_head = concept_head

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.concept_head(self.backbone(x).to(self.concept_head.weight.dtype))
        return logits


def concept_part(model: ConceptBottleneck) -> ConceptPart:
    """g of a model, copied. With the linear backbone, g is the head alone and reads standardised features."""
    if model.recipe.is_linear:
        return ConceptPart(nn.Identity(), copy.deepcopy(model.concept_head))
    return ConceptPart(copy.deepcopy(model.backbone), copy.deepcopy(model.concept_head).float())


@dataclasses.dataclass(frozen=True)
class Widened:
    """Terms over the union of old and new concepts, in which one step of g serves every kind of edit.

    A removed concept stays as a column whose weights become 0 and is dropped after the step; a new one has weights
    0 before. The first columns are the old concepts in their order.
    """

    before: ConceptTerms
    after: ConceptTerms


def gradient_sum(part: nn.Module, inputs: Inputs | Tensor, terms: ConceptTerms, rows: Tensor) -> Vector:
    """Σ over ``rows`` of ∇ℓ_i, by parameter name; ``terms`` are those of all inputs."""
    source = TensorInputs(inputs) if isinstance(inputs, Tensor) and inputs.dtype == torch.float32 else inputs
    named = {name: p for name, p in part.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    part.eval()
    loss = ConceptLoss(terms.targets, terms.weights)
    size = _BATCH if isinstance(source, Tensor) else min(_BATCH, rows_at_once(tuple(source.shape)))
    for chunk in rows.split(size):
        x = source[chunk] if isinstance(source, Tensor) else source.take(chunk)
        value = loss.values(part(x), chunk).sum()
        for (name, _), gradient in zip(
            named.items(), torch.autograd.grad(value, list(named.values()), materialize_grads=True), strict=True
        ):
            total[name] += gradient
    return total


def objective_gradient(part: nn.Module, inputs: Inputs | Tensor, terms: ConceptTerms, l2: float) -> Vector:
    """∇J of the whole data, L2 included."""
    count = len(terms.targets)
    total = gradient_sum(part, inputs, terms, torch.arange(count))
    return {name: value / count + l2 * part.get_parameter(name).detach() for name, value in total.items()}


def add_step(part: nn.Module, step: Vector, length: float) -> None:
    """θ ← θ + length · step, for the parameters that the step names."""
    with torch.no_grad():
        for name, value in step.items():
            part.get_parameter(name).add_(value, alpha=length)
