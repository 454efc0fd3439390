"""Both heads of a joint model, given features: a nearby minimum of J_Y + c·J_C.

The label head reads the concept head's output, so the two are coupled and the problem is not convex. It is smooth
and small, and training leaves it near a minimum: L-BFGS (SciPy's) in variables scaled by the features' eigenbasis
goes there. The same step ends a joint training and a joint edit, so that the two can be compared.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.train.heads.activations import activate, activation_gradient, tie
from ecbm.train.heads.objectives import concept_objective, label_objective, label_residual, with_ones
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.recipe import Recipe
from ecbm.train.terms import ConceptTerms

__all__ = ["JointHeads", "joint_objective", "solve_joint_heads"]

_ITERATIONS = 300
_TOLERANCE = 1e-7


@dataclasses.dataclass(frozen=True)
class JointHeads:
    """Parameters of both heads (bias last) at the point that was reached."""

    concept: Tensor
    label: Tensor
    objective: float
    gradient_norm: float
    iterations: int


def joint_objective(
    design: Tensor, terms: ConceptTerms, labels: Tensor, recipe: Recipe, concept: Tensor, label: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """J_Y + c·J_C over both heads, and its gradients."""
    alpha, beta = recipe.concept_regularisation, recipe.label_regularisation
    layout = terms.layout
    values, concept_gradient = concept_objective(design, terms.targets, terms.weights, concept, alpha, layout)
    logits = design @ concept.T
    bottleneck = logits if recipe.bottleneck == "logits" else activate(logits, layout)
    read = with_ones(bottleneck)
    value, label_gradient = label_objective(read, labels, None, label, beta)
    back = label_residual(read @ label.T, labels) @ label[:, :-1] / len(labels)
    if recipe.bottleneck == "probabilities":
        back = activation_gradient(bottleneck, back, layout)
    gradient = tie(recipe.joint_weight * concept_gradient + back.T @ design, layout)
    return value + recipe.joint_weight * values.sum(), gradient, label_gradient


def solve_joint_heads(
    design: Tensor,
    terms: ConceptTerms,
    labels: Tensor,
    recipe: Recipe,
    concept: Tensor,
    label: Tensor | None,
) -> JointHeads:
    """Go to a nearby minimum from the given heads (a missing label head starts at zero)."""
    from scipy.optimize import minimize  # takes half a second to load, and few models are joint

    classes = 1 if labels.is_floating_point() else int(labels.max()) + 1 if label is None else len(label)
    label = torch.zeros(classes, len(concept) + 1, dtype=torch.float64) if label is None else label
    concept = tie(concept, terms.layout)
    basis = FeatureBasis.of(design)
    mean = basis.squares.mean(0).double()
    vectors = basis.vectors.double()
    scale = (0.25 * mean + recipe.concept_regularisation).rsqrt()
    size = concept.numel()

    def heads(flat: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
        values = torch.from_numpy(flat)
        moved = (values[:size].view_as(concept) * scale) @ vectors.T
        # Rows that share their slope do so but for rounding; the projection makes it exact.
        return tie(concept + moved, terms.layout), label + values[size:].view_as(label)

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, first, second = joint_objective(design, terms, labels, recipe, *heads(flat))
        inner = (first @ vectors) * scale
        return float(value), torch.cat([inner.flatten(), second.flatten()]).numpy()

    start = np.zeros(size + label.numel())
    options = {"maxiter": _ITERATIONS, "maxcor": 30, "gtol": _TOLERANCE, "ftol": 0.0}
    result = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    final = heads(result.x)
    value, first, second = joint_objective(design, terms, labels, recipe, *final)
    norm = float(torch.cat([first.flatten(), second.flatten()]).norm())
    return JointHeads(*final, float(value), norm, int(result.nit))
