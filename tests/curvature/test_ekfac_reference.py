"""EK-FAC equals explicit Kronecker products of explicit per-sample gradients, for every layer and loss."""

from __future__ import annotations

import itertools

import pytest
import torch
from curvature_kit import (
    MODELS,
    flatten,
    make_case,
    per_sample_gradients,
    random_vector,
    reference_blocks,
    relative_error,
)

from ecbm.curvature import EKFAC
from ecbm.curvature.kronecker import DenseBlock

TOLERANCE = 1e-10

LAYER_ROWS = [(model, bias, "concepts", "none", 5, "empirical") for model in MODELS for bias in (True, False)]
LOSS_ROWS = [
    (model, True, kind, weights, batch, fisher)
    for model, kind, weights, batch, fisher in itertools.product(
        ["mlp", "shared", "residual", "conv 3x3 same"],
        ["concepts", "labels"],
        ["none", "real", "missing"],
        [4, 128],
        ["true", "empirical", "exact"],
    )
]


def check(model: str, bias: bool, kind: str, weights: str, batch: int, fisher: str, limit: int) -> None:
    case = make_case(model, bias, kind, weights)
    l2, damping = 0.03, 0.2
    fitted = EKFAC.fit(
        case.module,
        case.inputs,
        case.loss,
        l2=l2,
        fisher=fisher,
        seed=7,
        batch_size=batch,
        memory_limit_bytes=limit,
    )
    truth = reference_blocks(case, fisher, seed=7)
    assert set(truth) | {b.name for b in fitted.blocks if isinstance(b, DenseBlock)} == {
        b.name if b.name != "(model)" else "" for b in fitted.blocks
    }
    assert fitted.uncovered == {}
    vector = random_vector(case.module, fitted.covered)
    product, solution = fitted.multiply(vector), fitted.solve(vector, damping)
    for block in fitted.blocks:
        if isinstance(block, DenseBlock):
            rows = per_sample_gradients(case, block.parameters, fisher, seed=7)
            matrix = rows.T @ rows / len(case.inputs)
        else:
            matrix = truth[block.name if block.name != "(model)" else ""]
        matrix = matrix + l2 * torch.eye(len(matrix), dtype=torch.float64)
        flat = flatten(vector, block.parameters)
        assert relative_error(flatten(product, block.parameters), matrix @ flat) <= TOLERANCE, block.name
        exact = torch.linalg.solve(matrix + damping * torch.eye(len(matrix), dtype=torch.float64), flat)
        assert relative_error(flatten(solution, block.parameters), exact) <= TOLERANCE, block.name


@pytest.mark.parametrize(("model", "bias", "kind", "weights", "batch", "fisher"), LAYER_ROWS)
def test_every_layer_type_equals_explicit_kronecker_products(
    model: str, bias: bool, kind: str, weights: str, batch: int, fisher: str
) -> None:
    check(model, bias, kind, weights, batch, fisher, limit=0)


@pytest.mark.parametrize(("model", "bias", "kind", "weights", "batch", "fisher"), LOSS_ROWS)
def test_every_loss_weight_and_fisher_type_equals_explicit_kronecker_products(
    model: str, bias: bool, kind: str, weights: str, batch: int, fisher: str
) -> None:
    check(model, bias, kind, weights, batch, fisher, limit=2**30 if batch == 4 else 0)
