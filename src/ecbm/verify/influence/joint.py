"""H⁻¹∇T over both heads of a joint model: they are coupled, so the Hessian is that of J_Y + c·J_C over both."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.edit.state import EditorState
from ecbm.train.heads.activations import activate, tie
from ecbm.train.heads.newton import conjugate_gradients
from ecbm.train.heads.objectives import concept_curvature, concept_losses, rows_of
from ecbm.train.terms import label_targets

__all__ = ["solve_jointly"]

_RESIDUAL = 1e-7


def solve_jointly(state: EditorState, by_concept: Tensor, by_label: Tensor) -> tuple[Tensor, Tensor]:
    """Both parts of u, from ∂T/∂W (k, d) and ∂T/∂φ (classes, k + 1)."""
    model, recipe, terms, design = state.model, state.model.recipe, state.terms, state.design
    concept, label = rows_of(model.concept_head), rows_of(model.label_head)
    labels, count = label_targets(state.train, model.target_scaling), len(design)
    targets, weights = terms.targets.double(), terms.weights.double() / count
    alpha, beta, weight = recipe.concept_regularisation, recipe.label_regularisation, recipe.joint_weight
    size = concept.numel()

    def objective(flat: Tensor) -> Tensor:
        rows, head = tie(flat[:size].view_as(concept), terms.layout), flat[size:].view_as(label)
        logits = design @ rows.T
        read = logits if recipe.bottleneck == "logits" else activate(logits, terms.layout)
        outputs = read @ head[:, :-1].T + head[:, -1]
        if labels.is_floating_point():
            classes = 0.5 * (outputs[:, 0] - labels).square().mean()
        else:
            classes = functional.cross_entropy(outputs, labels)
        concepts = concept_losses(logits, targets, weights, terms.layout).sum()
        penalty = 0.5 * (weight * alpha * rows.square().sum() + beta * head.square().sum())
        return classes + weight * concepts + penalty

    flat = torch.cat([concept.flatten(), label.flatten()]).requires_grad_()
    (gradient,) = torch.autograd.grad(objective(flat), flat, create_graph=True)

    def multiply(vector: Tensor, _: Tensor) -> Tensor:
        (product,) = torch.autograd.grad(gradient, flat, vector[0], retain_graph=True)
        return product[None]

    basis = state.basis
    curvature = concept_curvature(state.logits, weights, terms.layout)
    diagonal = weight * basis.diagonal(curvature, alpha)

    def precondition(vector: Tensor, _: Tensor) -> Tensor:
        rows = tie(basis.precondition(diagonal, vector[0, :size].view_as(concept)), terms.layout)
        return torch.cat([rows.flatten(), vector[0, size:]])[None]

    back = torch.cat([tie(by_concept, terms.layout).flatten(), by_label.flatten()])[None]
    limit = torch.full((1,), _RESIDUAL, dtype=torch.float64)
    found = conjugate_gradients(multiply, precondition, back, limit, together=True)
    return found.solution[0, :size].view_as(concept).detach(), found.solution[0, size:].view_as(label).detach()
