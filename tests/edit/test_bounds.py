"""The paper's error bounds, corrected: measured errors never exceed them, and they are not empty words."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, hessian

from ecbm.edit.bounds import (
    LOGISTIC,
    SOFTMAX,
    InfluenceBound,
    concept_bound,
    concept_hessian_lipschitz,
    label_bound,
    label_hessian_lipschitz,
)
from kit import concept_objective, label_objective, newton_logistic, newton_multinomial

LEVELS = ("labels", "removed", "added", "weights")


def logistic_terms(draw: torch.Generator, n: int, width: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    x = scale * torch.randn(n, width, generator=draw, dtype=torch.float64)
    design = torch.cat([x, torch.ones(n, 1).double()], 1)
    targets = (x[:, 0] + 0.5 * torch.randn(n, generator=draw).double() > 0).double()
    return design, targets, 0.5 + torch.rand(n, generator=draw).double()


def edited(
    terms: tuple[Tensor, Tensor, Tensor], level: str, count: int, draw: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    design, targets, weights = terms
    if level == "labels":
        return design, torch.cat([1 - targets[:count], targets[count:]]), weights
    if level == "weights":
        return design, targets, torch.cat([torch.zeros(count).double(), weights[count:]])
    if level == "removed":
        return design[count:], targets[count:], weights[count:]
    more = logistic_terms(draw, count, design.shape[1] - 1, 1.0)
    return torch.cat([design, more[0]]), torch.cat([targets, more[1]]), torch.cat([weights, more[2]])


def measured_concept(
    before: tuple[Tensor, Tensor, Tensor], after: tuple[Tensor, Tensor, Tensor], l2: float, damping: float
) -> tuple[InfluenceBound, InfluenceBound, float]:
    """The bound, and Newton's and the influence step's true errors, every derivative by autograd."""

    def objective(w: Tensor, terms: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        design, targets, weights = terms
        return concept_objective(design, targets[:, None], weights[:, None], w[None], l2)[0][0]

    start, true = newton_logistic(*before, l2), newton_logistic(*after, l2)
    change = grad(objective)(start, after)
    shift = damping * torch.eye(len(start)).double()
    newton = start - torch.linalg.solve(hessian(objective)(start, after) + shift, change)
    influence = start - torch.linalg.solve(hessian(objective)(start, before) + shift, change)
    errors = InfluenceBound(float((newton - true).norm()), float((newton - influence).norm()))
    bound = concept_bound(start, before, after, l2, damping)
    return bound, errors, float((influence - true).norm())


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(8, 40),
    width=st.integers(1, 5),
    l2=st.sampled_from([1e-2, 0.1, 1.0]),
    damping=st.sampled_from([0.0, 0.0, 0.01, 0.3]),
    level=st.sampled_from(LEVELS),
    count=st.integers(1, 6),
    scale=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_concept_errors_never_exceed_the_bounds(
    seed: int, n: int, width: int, l2: float, damping: float, level: str, count: int, scale: float
) -> None:
    draw = torch.Generator().manual_seed(seed)
    before = logistic_terms(draw, n, width, scale)
    bound, errors, total = measured_concept(before, edited(before, level, count, draw), l2, damping)
    assert errors.newton_to_retrained <= bound.newton_to_retrained + 1e-12
    assert errors.newton_to_influence <= bound.newton_to_influence + 1e-12
    assert total <= bound.influence_to_retrained + 1e-12


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    l2=st.sampled_from([1e-2, 0.1]),
    damping=st.sampled_from([0.0, 0.05]),
    level=st.sampled_from(["labels", "removed", "inputs"]),
)
def test_label_errors_never_exceed_the_bounds(seed: int, l2: float, damping: float, level: str) -> None:
    draw = torch.Generator().manual_seed(seed)
    design = torch.cat([torch.randn(20, 2, generator=draw), torch.ones(20, 1)], 1).double()
    labels = torch.randint(3, (20,), generator=draw)
    after = design, labels.clone()
    if level == "labels":
        after[1][:2] = (labels[:2] + 1) % 3
    elif level == "removed":
        after = design[2:], labels[2:]
    else:
        moved = 0.1 * torch.randn(20, 2, generator=draw).double()
        after = torch.cat([design[:, :2] + moved, design[:, 2:]], 1), labels
    ones = torch.ones(20).double()

    def objective(flat: Tensor, read: Tensor, y: Tensor) -> Tensor:
        return label_objective(read, y, ones[: len(y)], flat.view(3, 3), l2)[0]

    start = newton_multinomial(design, labels, ones, 3, l2).flatten()
    true = newton_multinomial(*after, ones[: len(after[1])], 3, l2).flatten()
    change = grad(objective)(start, *after)
    shift = damping * torch.eye(9).double()
    newton = start - torch.linalg.solve(hessian(objective)(start, *after) + shift, change)
    influence = start - torch.linalg.solve(hessian(objective)(start, design, labels) + shift, change)
    bound = label_bound(start.view(3, 3), (design, labels), after, l2, damping)
    assert float((newton - true).norm()) <= bound.newton_to_retrained + 1e-11
    assert float((newton - influence).norm()) <= bound.newton_to_influence + 1e-11
    assert float((influence - true).norm()) <= bound.influence_to_retrained + 1e-11


@pytest.mark.parametrize("level", LEVELS)
def test_the_bounds_are_not_vacuous(level: str) -> None:
    """One term of 200, well-conditioned: within a factor 40 of the error, and far below the step itself."""
    draw = torch.Generator().manual_seed(0)
    before = logistic_terms(draw, 200, 2, 1.0)
    after = edited(before, level, 1, draw)
    bound, errors, total = measured_concept(before, after, 0.5, 0.0)
    assert bound.newton_to_influence <= 40 * max(errors.newton_to_influence, 1e-12)
    assert bound.influence_to_retrained <= 40 * max(total, 1e-12)
    step = float((newton_logistic(*after, 0.5) - newton_logistic(*before, 0.5)).norm())
    assert bound.influence_to_retrained < 0.2 * step


def test_the_constants_are_the_maxima() -> None:
    z = torch.linspace(-6, 6, 200_001, dtype=torch.float64)
    p = torch.sigmoid(z)
    assert float((p * (1 - p) * (1 - 2 * p)).abs().max()) == pytest.approx(LOGISTIC, rel=1e-8)
    assert pytest.approx(1 / (6 * math.sqrt(3))) == LOGISTIC
    draw = torch.Generator().manual_seed(1)
    u, w = torch.randn(2, 5000, 4, generator=draw, dtype=torch.float64)
    p = torch.softmax(2 * torch.randn(5000, 4, generator=draw, dtype=torch.float64), 1)
    third = (p * (u - (p * u).sum(1, keepdim=True)) * (w - (p * w).sum(1, keepdim=True)).square()).sum(1)
    assert bool((third.abs() <= SOFTMAX * u.norm(dim=1) * w.square().sum(1)).all())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), distance=st.sampled_from([0.01, 0.3, 2.0]))
def test_hessians_move_no_faster_than_their_lipschitz_constant(seed: int, distance: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    design, targets, weights = logistic_terms(draw, 12, 2, 1.0)
    labels = torch.randint(3, (12,), generator=draw)
    ones = torch.ones(12).double()

    def concept(w: Tensor) -> Tensor:
        return concept_objective(design, targets[:, None], weights[:, None], w[None], 0.1)[0][0]

    def label(w: Tensor) -> Tensor:
        return label_objective(design, labels, ones, w.view(3, 3), 0.1)[0]

    for objective, size, constant in (
        (concept, 3, concept_hessian_lipschitz(design, weights)),
        (label, 9, label_hessian_lipschitz(design)),
    ):
        one = torch.randn(size, generator=draw).double()
        other = one + distance * torch.randn(size, generator=draw).double()
        gap = torch.linalg.matrix_norm(hessian(objective)(one) - hessian(objective)(other), 2)
        assert float(gap) <= constant * float((one - other).norm()) + 1e-12


def test_no_change_no_error() -> None:
    terms = logistic_terms(torch.Generator().manual_seed(0), 20, 2, 1.0)
    start = newton_logistic(*terms, 0.1)
    assert concept_bound(start, terms, terms, 0.1).influence_to_retrained == 0
