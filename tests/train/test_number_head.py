"""Models of a number: the label head is a ridge regression in standardised units."""

from __future__ import annotations

import math

import pytest
import torch

import ecbm
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.objectives import LabelObjective, with_ones
from ecbm.verify.evaluate import number_metrics
from ecbm.verify.interventions import group_order, intervention_curve
from ecbm.verify.leakage import concept_leakage
from number_kit import label_row, numbered, predicted, ridge, with_price

DATA = numbered()
TRAIN, TEST = DATA.split("train"), DATA.split("test")
LINEAR = ecbm.Recipe(backbone="linear")


@pytest.fixture(scope="module")
def model() -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, LINEAR)


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
def test_the_label_head_is_the_dense_ridge_solution(bottleneck: str) -> None:
    found = ecbm.train(DATA, LINEAR.replace(bottleneck=bottleneck))
    read = found.bottleneck_from(found.concept_logits(TRAIN.inputs))
    wanted = ridge(read, TRAIN.labels, found.recipe.label_regularisation)
    torch.testing.assert_close(label_row(found), wanted, rtol=0, atol=1e-11)
    assert found.provenance.training["label_gradient_norm"] < 1e-10
    assert found.label_head.out_features == 1


def test_the_objective_of_numbers_has_the_gradient_and_curvature_of_its_value() -> None:
    draw = torch.Generator().manual_seed(1)
    design = with_ones(torch.randn(30, 4, generator=draw))
    labels, weights = torch.randn(30, generator=draw).double(), torch.rand(30, generator=draw).double()
    objective = LabelObjective(design, labels, weights, 0.03)
    rows = torch.randn(1, 5, generator=draw).double()

    def value(at: torch.Tensor) -> torch.Tensor:
        return objective.value(at, design @ at.T)

    logits = design @ rows.T
    torch.testing.assert_close(objective.gradient(logits, rows), torch.func.grad(value)(rows))
    hessian = torch.func.hessian(value)(rows)[0, :, 0]
    direction = torch.randn(1, 5, generator=draw).double()
    product = objective.product(design, torch.ones(30, 1).double(), direction)
    torch.testing.assert_close(product[0], hessian @ direction[0])
    curvature = objective.curvature(torch.ones(30, 1).double())
    torch.testing.assert_close(design.T @ (curvature * design) + 0.03 * torch.eye(5).double(), hessian)
    first, second = objective.slopes(logits, design @ direction.T)
    inner = hessian - 0.03 * torch.eye(5)
    torch.testing.assert_close(second[0], direction[0] @ inner @ direction[0])
    slope = (objective.gradient(logits, rows) - 0.03 * rows)[0] @ direction[0]
    torch.testing.assert_close(first[0], slope)


def test_weighted_numbers_are_solved_too() -> None:
    draw = torch.Generator().manual_seed(2)
    design, labels = with_ones(torch.randn(40, 3, generator=draw)), torch.randn(40, generator=draw).double()
    weights = torch.randint(0, 3, (40,), generator=draw).double()
    solved = solve_label_head(design, labels, weights, 1, 0.01)
    matrix = design.T @ (weights[:, None] * design) / 40 + 0.01 * torch.eye(4)
    wanted = torch.linalg.solve(matrix, design.T @ (weights * labels) / 40)
    torch.testing.assert_close(solved.parameters[0], wanted)


def test_predictions_are_numbers_in_their_unit_with_a_name(model: ecbm.ConceptBottleneck) -> None:
    found = model.predict(TEST)
    assert all(isinstance(number, float) for number in found)
    frame = found.to_frame()
    assert list(frame.columns) == ["price"]
    assert tuple(frame.index) == TEST.ids
    figures = ecbm.evaluate(model, TEST)
    error = predicted(model, DATA) - TEST.labels
    assert figures["rmse"] == pytest.approx(float(error.square().mean().sqrt()))
    assert figures["mae"] == pytest.approx(float(error.abs().mean()))
    assert figures["r2"] == pytest.approx(
        1 - float(error.square().sum() / (TEST.labels - TEST.labels.mean()).square().sum())
    )
    assert figures["r2"] > 0.9
    assert {"class_accuracy", "class_f1", "ece"}.isdisjoint(figures)


def test_a_constant_label_has_no_variance_to_explain() -> None:
    assert math.isnan(number_metrics(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]).double())["r2"])


def test_predictions_follow_the_unit_of_the_labels(model: ecbm.ConceptBottleneck) -> None:
    cents = ecbm.train(with_price(DATA, 100 * DATA.labels - 7), LINEAR)
    torch.testing.assert_close(predicted(cents, DATA), 100 * predicted(model, DATA) - 7)


def test_an_intervention_moves_the_number_by_the_weight_of_what_was_set(model: ecbm.ConceptBottleneck) -> None:
    low, high = (model.intervene(TEST, {"striped": value})[:, 0] for value in (0.0, 1.0))
    assert model.target_scaling is not None
    step = model.label_head.weight[0, 0] * (model.high[0] - model.low[0]) * model.target_scaling[1]
    torch.testing.assert_close(high - low, step.detach().expand(len(TEST)))


def test_a_constant_target_is_predicted_as_it_is() -> None:
    flat = ecbm.train(with_price(DATA, torch.full((len(DATA),), 12.5).double()), LINEAR)
    torch.testing.assert_close(predicted(flat, DATA), torch.full((len(TEST),), 12.5).double())


def test_a_sparse_head_of_a_number_reads_few_concepts_and_meets_its_optimality_conditions() -> None:
    found = ecbm.train(DATA, LINEAR.replace(label_l1=0.1))
    read = found.bottleneck_from(found.concept_logits(TRAIN.inputs))
    design, row = with_ones(read), label_row(found)
    labels = (TRAIN.labels - TRAIN.labels.mean()) / TRAIN.labels.std(correction=0)
    slope = design.T @ (design @ row - labels) / len(design) + found.recipe.label_regularisation * row
    zero = row[:-1] == 0
    assert bool(zero.any())
    assert float(slope[:-1][zero].abs().max()) <= 0.1 + 1e-9
    torch.testing.assert_close(slope[:-1][~zero], -0.1 * row[:-1][~zero].sign(), rtol=0, atol=1e-8)
    assert ecbm.evaluate(found, TEST)["concepts_per_class"]["price"] < 5


def test_a_joint_model_of_a_number_ends_at_a_stationary_point() -> None:
    found = ecbm.train(DATA, LINEAR.replace(regime="joint"))
    assert found.provenance.training["joint_gradient_norm"] < 1e-5
    assert ecbm.evaluate(found, TEST)["r2"] > 0.9


@pytest.mark.parametrize("regime", ["sequential", "joint"])
def test_a_deep_backbone_learns_a_number(regime: str) -> None:
    recipe = ecbm.Recipe(backbone="mlp", regime=regime, epochs=15, seed=0)
    assert ecbm.evaluate(ecbm.train(DATA, recipe), TEST)["r2"] > 0.5


def test_what_is_about_classes_is_refused_in_one_line(model: ecbm.ConceptBottleneck) -> None:
    with pytest.raises(ecbm.InputError, match="predicts a number, 'price', and no classes"):
        model.class_probabilities(TEST)
    with pytest.raises(ecbm.InputError, match=r"class_balanced .* labels are numbers"):
        ecbm.train(DATA, ecbm.Recipe(backbone="mlp", class_balanced=True))
    with pytest.raises(ecbm.InputError, match="predicts a number"):
        intervention_curve(model, TEST)
    with pytest.raises(ecbm.InputError, match="predicts a number"):
        group_order(model, model.concept_logits(TEST), "expected_change")
    with pytest.raises(ecbm.InputError, match="predicts a number"):
        concept_leakage(model, DATA)
    classes = ecbm.Dataset(
        TEST.ids, TEST.inputs, TEST.concepts, [0] * len(TEST), TEST.concept_names, ["price"], TEST.splits,
        TEST.layout.declared,
    )  # fmt: skip
    with pytest.raises(ecbm.InputError, match="labels of the data are classes and the model predicts a number"):
        ecbm.evaluate(model, classes)
