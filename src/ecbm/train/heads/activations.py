"""What concept logits mean, by the types of their concepts (docs/method.md, "Concepts of other types").

| type | activation a(z) | loss | second derivative |
|---|---|---|---|
| binary, ordinal thresholds | σ(z) | BCE | a(1 − a) |
| categorical | softmax of the concept's columns | cross-entropy | diag(a) − a aᵀ |
| continuous | z, standardised | ½(z − t)² | 1 |

In all of them the derivative of the loss is a(z) − t. An ordinal concept's thresholds share one slope: rows of
its head differ in the bias alone. That is a linear subspace of all heads, and :func:`tie` is the orthogonal
projection onto it, so that objectives, gradients and Hessians are those of the rows, projected.

``None`` for a layout means that every concept is binary. Columns lie along ``dim``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecbm.read.concept_types import ConceptLayout

__all__ = [
    "TiedLinear",
    "activate",
    "activation_curvature",
    "activation_gradient",
    "pick",
    "steepest",
    "tie",
    "tied_weight",
]


def activate(logits: Tensor, layout: ConceptLayout | None = None, dim: int = 1) -> Tensor:
    """a(z): probabilities, and standardised values of continuous concepts. Differentiable."""
    if layout is None or layout.plain:
        return torch.sigmoid(logits)
    # Put together anew and not in place: transforms of functions know no batches of the latter.
    parts = [torch.sigmoid(pick(logits, layout.bernoulli, dim))]
    parts += [torch.softmax(pick(logits, columns, dim), dim) for columns in layout.softmax]
    return pick(torch.cat([*parts, pick(logits, layout.squared, dim)], dim), layout.places, dim)


def pick(values: Tensor, columns: Tensor, dim: int) -> Tensor:
    """Some columns, which lie along ``dim``."""
    return values.index_select(dim, columns.to(values.device))


def activation_gradient(values: Tensor, back: Tensor, layout: ConceptLayout | None = None) -> Tensor:
    """(∂a/∂z)ᵀ back, for activations ``values`` (n, k)."""
    out = back * values * (1 - values)
    if layout is None or layout.plain:
        return out
    for columns in layout.softmax:
        q, part = values[:, columns], back[:, columns]
        out[:, columns] = q * (part - (q * part).sum(1, keepdim=True))
    out[:, layout.squared] = back[:, layout.squared]
    return out


def activation_curvature(values: Tensor, layout: ConceptLayout | None = None, dim: int = 1) -> Tensor:
    """The diagonal of the second derivative of every term by its logits, from activations."""
    curvature = values * (1 - values)
    if layout is not None and len(layout.squared):
        curvature = curvature.index_fill(dim, layout.squared, 1.0)
    return curvature


def steepest(layout: ConceptLayout | None) -> float:
    """A bound on |∂a/∂z|₂: ¼ for sigmoids, ½ for a softmax, 1 for values that are read as they are."""
    if layout is None or layout.plain:
        return 0.25
    return 1.0 if len(layout.squared) else 0.5 if layout.softmax else 0.25


def tie(rows: Tensor, layout: ConceptLayout | None) -> Tensor:
    """Rows of a head (bias last) or of its gradient, projected: slopes of an ordinal concept become their mean."""
    if layout is None or not layout.tied:
        return rows
    rows = rows.clone()
    for columns in layout.tied:
        rows[columns, :-1] = rows[columns, :-1].mean(0, keepdim=True)
    return rows


def tied_weight(weight: Tensor, layout: ConceptLayout | None) -> Tensor:
    """:func:`tie` of weights that stand without their biases, differentiable."""
    if layout is None or not layout.tied:
        return weight
    parts: list[Tensor] = []
    order: list[int] = []
    for concept in layout.concepts:
        own = pick(weight, torch.tensor(concept.columns), 0)
        parts.append(own.mean(0, keepdim=True).expand(len(own), -1) if concept.type == "ordinal" else own)
        order += concept.columns
    return pick(torch.cat(parts), torch.tensor(order).argsort(), 0)


class TiedLinear(nn.Linear):
    """A concept head whose ordinal rows share their slope, so that gradients by backward passes are projected too.

    Parameters
    ----------
    layout
        Types of the outputs.
    """

    def __init__(self, inputs: int, outputs: int, layout: ConceptLayout) -> None:
        super().__init__(inputs, outputs)
        self.layout = layout
        with torch.no_grad():
            self.weight.copy_(tied_weight(self.weight, layout))

    @classmethod
    def of(cls, layer: nn.Linear, layout: ConceptLayout | None) -> nn.Linear:
        """The same head as one that keeps slopes tied; the layer itself where there are none."""
        if layout is None or not layout.tied:
            return layer
        other = cls.__new__(cls)
        nn.Module.__init__(other)
        other.in_features, other.out_features, other.layout = layer.in_features, layer.out_features, layout
        other.weight, other.bias = layer.weight, layer.bias
        return other

    def untied(self) -> nn.Linear:
        """A plain layer with the same parameters."""
        other = nn.Linear.__new__(nn.Linear)
        nn.Module.__init__(other)
        other.in_features, other.out_features = self.in_features, self.out_features
        other.weight, other.bias = self.weight, self.bias
        return other

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, tied_weight(self.weight, self.layout), self.bias)
