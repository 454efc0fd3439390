"""Where EK-FAC is exact it equals the dense Gauss-Newton matrix; elsewhere it equals other libraries' EK-FAC."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from curvature_kit import Case, flatten, make_case, per_sample_gradients, random_vector, relative_error
from torch import Tensor, nn

from ecbm.curvature import EKFAC, ConceptLoss, ExactOperator, LabelLoss


def unit_hessian_case(module: nn.Module, inputs: Tensor) -> Case:
    """Weights 1/(p(1 − p)) make the loss's Hessian the identity, as for a squared loss."""
    module = module.double()
    with torch.no_grad():
        p = torch.sigmoid(module(inputs))
    return Case(module, inputs, ConceptLoss(torch.rand_like(p), 1 / (p * (1 - p))))


@pytest.mark.parametrize("depth", [1, 3])
def test_deep_linear_networks_have_the_dense_gauss_newton_blocks(depth: int) -> None:
    torch.manual_seed(0)
    sizes = [6, 5, 4, 3] if depth == 3 else [6, 3]
    module = nn.Sequential(*[nn.Linear(a, b, bias=depth == 1) for a, b in itertools.pairwise(sizes)])
    case = unit_hessian_case(module, torch.randn(20, 6, dtype=torch.float64))
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, fisher="exact", l2=0.1)
    for block in fitted.blocks:
        dense = ExactOperator(
            case.module, case.inputs, case.loss, l2=0.0, kind="gauss-newton", parameters=block.parameters
        ).dense()
        assert relative_error(block.dense(), dense) <= 1e-10


@pytest.mark.parametrize("kind", ["concepts", "labels"])
def test_the_mean_of_the_true_fisher_over_draws_is_the_weighted_gauss_newton_matrix(kind: str) -> None:
    case = make_case("linear", True, kind, "real", n=4)
    many = torch.cat([case.inputs] * 4000)
    rows = torch.arange(4).repeat(4000)
    # one layer, and a sample's gradient sᵢaᵢᵀ: the trace of Λ* is the trace of the Fisher matrix
    drawn = EKFAC.fit(case.module, many, case.loss.subset(rows), fisher="true", seed=3)
    exact = ExactOperator(case.module, case.inputs, case.loss).dense()
    trace = float(drawn.blocks[0].eigenvalues.sum())
    assert trace == pytest.approx(float(exact.trace()), rel=0.03)
    assert len({float(v) for v in drawn.blocks[0].eigenvalues.flatten()}) > 1


@pytest.mark.parametrize("model", ["mlp", "tokens", "shared", "residual", "conv stride"])
@pytest.mark.parametrize("kind", ["concepts", "labels"])
@pytest.mark.parametrize("matrix", ["gauss-newton", "hessian"])
def test_exact_operators_equal_autograd(model: str, kind: str, matrix: str) -> None:
    case = make_case(model, True, kind, "real", n=5)
    names = [name for name, _ in case.module.named_parameters()]
    operator = ExactOperator(case.module, case.inputs, case.loss, kind=matrix, l2=0.2, batch_size=2)
    parameters = [dict(case.module.named_parameters())[name] for name in names]
    if matrix == "gauss-newton":
        rows = per_sample_gradients(case, names, "exact")
        truth = rows.T @ rows / 5
    else:
        objective = case.loss.values(case.module(case.inputs), slice(0, 5)).sum() / 5
        first = torch.autograd.grad(objective, parameters, create_graph=True)
        flat = torch.cat([part.reshape(-1) for part in first])
        truth = torch.stack(
            [
                torch.cat(
                    [
                        (torch.zeros_like(p) if g is None else g).reshape(-1)
                        for g, p in zip(
                            torch.autograd.grad(entry, parameters, retain_graph=True, allow_unused=True),
                            parameters,
                            strict=True,
                        )
                    ]
                )
                for entry in flat
            ]
        )
    truth = truth + 0.2 * torch.eye(len(truth), dtype=torch.float64)
    vector = random_vector(case.module, names)
    assert relative_error(flatten(operator.multiply(vector), names), truth @ flatten(vector, names)) <= 1e-10
    if model == "mlp":
        assert relative_error(operator.dense(), truth) <= 1e-10


def test_conjugate_gradients_reach_the_dense_solution_sooner_with_ekfac() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    inputs = torch.randn(200, 20, dtype=torch.float64) * torch.logspace(-2, 1, 20, dtype=torch.float64)
    targets = torch.rand(200, 4, dtype=torch.float64)
    targets[torch.rand(200, 4) < 0.3] = float("nan")
    case = Case(module, inputs, ConceptLoss(targets))
    operator = ExactOperator(case.module, case.inputs, case.loss, l2=1e-4)
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, l2=1e-4, fisher="exact")
    vector = random_vector(case.module, operator.names)
    truth = flatten(operator.solve_dense(vector, 1e-4), operator.names)
    plain = operator.solve(vector, 1e-4, tolerance=1e-9, iterations=1000)
    helped = operator.solve(vector, 1e-4, preconditioner=fitted, tolerance=1e-9, iterations=1000)
    assert plain.converged
    assert helped.converged
    assert relative_error(flatten(helped.vector, operator.names), truth) <= 1e-6
    assert relative_error(flatten(plain.vector, operator.names), truth) <= 1e-6
    assert helped.iterations < 0.6 * plain.iterations


@pytest.mark.parametrize("model", ["mlp", "tokens", "residual", "conv stride", "conv dilation"])
@pytest.mark.parametrize("kind", ["concepts", "labels"])
@pytest.mark.parametrize("fisher", ["empirical", "exact"])
def test_curvlinops_agrees(model: str, kind: str, fisher: str) -> None:
    curvlinops = pytest.importorskip("curvlinops")
    case = make_case(model, True, kind, "none")
    n = len(case.inputs)
    if isinstance(case.loss, ConceptLoss):
        loss, targets = nn.BCEWithLogitsLoss(reduction="sum"), case.loss.targets
        if fisher == "exact":
            targets = (targets > 0.5).double()
    else:
        assert isinstance(case.loss, LabelLoss)
        loss, targets = nn.CrossEntropyLoss(reduction="sum"), case.loss.labels
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, fisher=fisher)
    layers = [b for b in fitted.blocks if b.name and hasattr(b, "left")]
    names = [name for block in layers for name in block.parameters]
    named = dict(case.module.named_parameters())
    operator = curvlinops.EKFACLinearOperator(
        case.module,
        loss,
        [named[name] for name in names],
        [(case.inputs[:6], targets[:6]), (case.inputs[6:], targets[6:])],
        fisher_type={"empirical": "empirical", "exact": "type-2"}[fisher],
        separate_weight_and_bias=False,
        check_deterministic=False,
        num_per_example_loss_terms=1,
    )
    vector = random_vector(case.module, names)
    theirs = operator @ [vector[name] for name in names]
    ours = fitted.multiply(vector)
    for name, product in zip(names, theirs, strict=True):
        assert relative_error(ours[name], product / n) <= 1e-3, name


def test_kronfluence_agrees(tmp_path: Path) -> None:
    pytest.importorskip("kronfluence", reason="kronfluence is in the bench extra and is not installed")
    from curvature_peers import kronfluence_blocks

    case = make_case("conv stride", True, "concepts", "none")
    module, inputs = case.module.float(), case.inputs.float()
    assert isinstance(case.loss, ConceptLoss)
    fitted = EKFAC.fit(module, inputs, case.loss, fisher="empirical")
    theirs = kronfluence_blocks(module, inputs, case.loss.targets.float(), tmp_path)
    assert set(theirs) == {block.name for block in fitted.blocks}
    for block in fitted.blocks:
        left, right, values = theirs[block.name]
        basis = torch.kron(left, right)
        matrix = basis @ torch.diag(values.flatten()) @ basis.T
        columns = right.shape[0]
        places = torch.arange(len(matrix)).view(-1, columns)
        order = torch.cat([places[:, :-1].reshape(-1), places[:, -1]])
        assert relative_error(block.dense(), matrix[order][:, order]) <= 1e-3, block.name
