"""The concept predictor g as one module, and gradients of its objective over some or all samples."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ecbm.devices import device_of
from ecbm.read.inputs import Inputs, TensorInputs, rows_at_once
from ecbm.train.heads.activations import TiedLinear
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

if TYPE_CHECKING:
    from ecbm.curvature import Vector

__all__ = ["ConceptPart", "add_step", "concept_part", "dot", "gradient_sum", "objective_gradient"]

_BATCH = 256


class ConceptPart(nn.Module):
    """The concept predictor g: backbone and concept head in one precision."""

    def __init__(self, backbone: nn.Module, concept_head: nn.Linear) -> None:
        super().__init__()
        self.backbone = backbone
        self.concept_head = concept_head

    def forward(self, x: Tensor) -> Tensor:
        head = self.concept_head.weight
        logits: Tensor = self.concept_head(self.backbone(x.to(head.device)).to(head.dtype))
        return logits.cpu()

    @property
    def untied(self) -> ConceptPart:
        """The same function with the rows of ordinal concepts as separate ones: what Kronecker factors are fitted
        to. A step that they give is tied afterwards.
        """
        if not isinstance(self.concept_head, TiedLinear):
            return self
        return ConceptPart(self.backbone, self.concept_head.untied())

    @property
    def trained(self) -> list[str]:
        """Names of the parameters that training moves; a frozen one (``requires_grad=False``) no edit moves."""
        return [name for name, parameter in self.named_parameters() if parameter.requires_grad]


def concept_part(model: ConceptBottleneck) -> ConceptPart:
    """g of a model, copied. With the linear backbone, g is the head alone and reads standardised features."""
    head = TiedLinear.of(copy.deepcopy(model.concept_head), model.layout)
    if model.recipe.is_linear:
        return ConceptPart(nn.Identity(), head)
    here = device_of(model.backbone)
    # Curvature sums in float64, which Apple's accelerators do not have.
    here = torch.device("cpu") if here.type == "mps" else here
    return ConceptPart(copy.deepcopy(model.backbone).to(here), head.float().to(here))


def gradient_sum(part: ConceptPart, inputs: Inputs | Tensor, terms: ConceptTerms, rows: Tensor) -> Vector:
    """Σ over ``rows`` of ∇ℓ_i, by parameter name; ``terms`` are those of all inputs."""
    from ecbm.curvature import ConceptLoss

    source = TensorInputs(inputs) if isinstance(inputs, Tensor) and inputs.dtype == torch.float32 else inputs
    named = {name: part.get_parameter(name) for name in part.trained}
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    part.eval()
    loss = ConceptLoss(terms.targets, terms.weights, terms.layout)
    size = _BATCH if isinstance(source, Tensor) else min(_BATCH, rows_at_once(tuple(source.shape)))
    for chunk in rows.split(size):
        x = source[chunk] if isinstance(source, Tensor) else source.take(chunk)
        value = loss.values(part(x), chunk).sum()
        gradients = torch.autograd.grad(value, list(named.values()), materialize_grads=True)
        for name, gradient in zip(named, gradients, strict=True):
            total[name] += gradient
    return total


def objective_gradient(part: ConceptPart, inputs: Inputs | Tensor, terms: ConceptTerms, l2: float) -> Vector:
    """∇J of the whole data, L2 included."""
    count = len(terms.targets)
    total = gradient_sum(part, inputs, terms, torch.arange(count))
    return {name: value / count + l2 * part.get_parameter(name).detach() for name, value in total.items()}


def add_step(part: nn.Module, step: Vector, length: float) -> None:
    """θ ← θ + length · step, for the parameters that the step names."""
    with torch.no_grad():
        for name, value in step.items():
            part.get_parameter(name).add_(value, alpha=length)


def dot(first: Vector, second: Vector) -> float:
    """⟨first, second⟩ over the entries of ``second``, in float64."""
    return sum(float((first[name].double() * value.double()).sum()) for name, value in second.items())
