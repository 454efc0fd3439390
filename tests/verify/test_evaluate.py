"""Metrics agree with scikit-learn and with calculations by hand; missing labels are ignored."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

import ecbm
from ecbm.verify.evaluate import concept_metrics, expected_calibration_error
from kit import CLASSES, CONCEPTS, hand_model, tabular

NAN = math.nan


def hand_data(n=60, seed=0, missing=0.3, soft=True):
    """Inputs are concept logits; labels of every kind."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, len(CONCEPTS), generator=draw)
    truth = torch.sigmoid(logits + 2 * torch.randn(logits.shape, generator=draw))
    truth = truth if soft else truth.round()
    truth[torch.rand(truth.shape, generator=draw) < missing] = NAN
    labels = torch.randint(3, (n,), generator=draw)
    return ecbm.Dataset([str(i) for i in range(n)], logits, truth, labels, CONCEPTS, CLASSES)


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
@pytest.mark.parametrize("soft", [False, True])
def test_metrics_are_those_of_scikit_learn(soft, bottleneck):
    data = hand_data(soft=soft)
    model = hand_model(torch.randn(3, 5), bottleneck=bottleneck)
    figures = ecbm.evaluate(model, data)
    probabilities = torch.sigmoid(data.x.double()).numpy()
    predicted = model.class_probabilities(data.x).argmax(1).numpy()
    assert figures["class_accuracy"] == pytest.approx(accuracy_score(data.labels, predicted))
    assert figures["class_f1"] == pytest.approx(f1_score(data.labels, predicted, average="macro"))
    truth = data.concepts.numpy()
    known = ~np.isnan(truth)
    assert figures["concept_accuracy"] == pytest.approx(
        accuracy_score(truth[known] >= 0.5, probabilities[known] >= 0.5)
    )
    each = []
    for column, name in enumerate(CONCEPTS):
        rows = known[:, column]
        actual, p = truth[rows, column] >= 0.5, probabilities[rows, column]
        each.append((f1_score(actual, p >= 0.5), roc_auc_score(actual, p)))
        found = figures["per_concept"][name]
        assert found["count"] == rows.sum()
        assert found["accuracy"] == pytest.approx(accuracy_score(actual, p >= 0.5))
        assert (found["f1"], found["auc"]) == pytest.approx(each[-1])
    assert (figures["concept_f1"], figures["concept_auc"]) == pytest.approx(tuple(np.mean(each, axis=0)))
    assert figures["count"] == 60


def test_concept_auc_is_on_probabilities_not_on_decisions():
    figures = concept_metrics(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.0, 0, 1, 1]))
    assert figures["auc"] == 1.0
    assert figures["accuracy"] == 0.5
    assert figures["f1"] == 0.0


def test_calibration_error_by_hand():
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.55, 0.55])
    correct = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    # Bins of a tenth: |0.95 − 0.75| on four samples, |0.55 − 0.5| on two.
    by_hand = (4 * 0.20 + 2 * 0.05) / 6
    assert expected_calibration_error(confidence, correct, bins=10) == pytest.approx(by_hand, abs=1e-7)
    assert expected_calibration_error(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])) == 0.0
    assert math.isnan(expected_calibration_error(torch.zeros(0), torch.zeros(0)))


@pytest.mark.parametrize(
    ("p", "truth", "undefined"),
    [
        ([0.9, 0.8], [1.0, 1.0], {"auc"}),
        ([0.1, 0.2], [0.0, 0.0], {"auc", "f1"}),
        ([0.9, 0.2], [NAN, NAN], {"accuracy", "f1", "auc", "ece"}),
    ],
)
def test_what_is_not_defined_is_nan_and_left_out_of_means(p, truth, undefined):
    figures = concept_metrics(torch.tensor(p), torch.tensor(truth))
    assert {name for name, value in figures.items() if math.isnan(value)} == undefined


def test_a_concept_without_labels_does_not_spoil_the_others():
    data = hand_data(soft=False)
    values = data.concepts.clone()
    values[:, 2] = NAN
    figures = ecbm.evaluate(hand_model(torch.randn(3, 5)), data.replace(concepts=values))
    assert figures["per_concept"]["color::red"]["count"] == 0
    assert 0 < figures["concept_auc"] < 1
    nothing = ecbm.evaluate(hand_model(torch.randn(3, 5)), data.replace(concepts=torch.full((60, 5), NAN)))
    assert math.isnan(nothing["concept_accuracy"])
    assert 0 <= nothing["class_accuracy"] <= 1


def reordered(data, concepts, classes):
    """The same data with its columns and classes in another order."""
    columns = [data.concept_index(name) for name in concepts]
    renumber = torch.tensor([classes.index(name) for name in data.class_names])
    return ecbm.Dataset(data.ids, data.inputs, data.concepts[:, columns], renumber[data.labels], concepts, classes)


def test_the_order_of_concepts_and_classes_in_the_data_does_not_matter():
    data, model = hand_data(), hand_model(torch.randn(3, 5))
    other = reordered(data, CONCEPTS[::-1], CLASSES[::-1])
    a, b = ecbm.evaluate(model, data), ecbm.evaluate(model, other)
    assert a == b
    for policy in ("random", "uncertain", "expected_change"):
        assert ecbm.intervention_curve(model, data, policy) == ecbm.intervention_curve(model, other, policy)


def test_unknown_classes_and_concepts_are_refused_with_near_matches():
    data, model = hand_data(), hand_model(torch.randn(3, 5))
    with pytest.raises(ecbm.UnknownNameError, match=r"unknown class 'wrens'.*did you mean 'wren'"):
        ecbm.evaluate(model, data.replace(class_names=["finch", "wrens", "crow"]))
    with pytest.raises(ecbm.UnknownNameError, match=r"unknown concept 'round'.*did you mean 'rounded'"):
        ecbm.evaluate(model, data.replace(concept_names=[*CONCEPTS[:4], "rounded"]))


def test_evaluating_on_nothing_is_refused():
    with pytest.raises(ecbm.InputError, match="empty"):
        ecbm.evaluate(hand_model(torch.randn(3, 5)), hand_data().select([]))


def test_the_metrics_of_the_interface_are_there_and_are_plain_numbers():
    data = tabular(60)
    figures = ecbm.evaluate(ecbm.train(data), data.split("test"))
    for name in ("class_accuracy", "class_f1", "concept_accuracy", "concept_f1", "concept_auc", "ece"):
        assert type(figures[name]) is float


def test_logits_at_hand_give_the_same_figures():
    data = ecbm.datasets.breast_cancer()
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    test = data.split("test")
    assert ecbm.evaluate(model, test, logits=model.concept_logits(test.inputs)) == ecbm.evaluate(model, test)
    with pytest.raises(ecbm.InputError, match="1 rows of logits"):
        ecbm.evaluate(model, test, logits=torch.zeros(1, len(model.concept_names)))


@pytest.mark.parametrize("swap", [False, True])
def test_what_is_no_model_or_no_dataset_is_refused(swap):
    data = tabular(30)
    model = ecbm.train(data)
    given = (data, model) if swap else (model, "test")
    with pytest.raises(
        ecbm.InputError, match=r"evaluate: expected a model and a dataset \(data\.split\('test'\)\)"
    ):
        ecbm.evaluate(*given)
