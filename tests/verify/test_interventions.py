"""Interventions by name and by group, on both bottlenecks; policies and curves."""

from __future__ import annotations

import math

import pytest
import torch

import ecbm
from ecbm import InputError, UnknownNameError
from ecbm.verify.interventions import POLICIES, group_order
from kit import CLASSES, CONCEPTS, hand_model, tabular

BOTTLENECKS = ("logits", "probabilities")


@pytest.fixture(params=BOTTLENECKS)
def model(request):
    torch.manual_seed(0)
    return hand_model(torch.randn(3, 5), bottleneck=request.param)


@pytest.fixture
def x():
    return torch.randn(7, 5, generator=torch.Generator().manual_seed(1))


def by_hand(model, x, values):
    """Set bottleneck columns and apply the label head, in the open."""
    read = x.double() if model.bottleneck == "logits" else torch.sigmoid(x.double())
    for column, value in values.items():
        read[:, column] = value if model.bottleneck == "probabilities" else -2.0 + 5.0 * value
    return torch.softmax(read @ model.label_head.weight.T, 1).detach()


def test_setting_a_concept_replaces_its_column(model, x):
    torch.testing.assert_close(model.intervene(x, {"color::red": 1.0}), by_hand(model, x, {2: 1.0}))
    torch.testing.assert_close(model.intervene(x, {"round": 0}), by_hand(model, x, {4: 0.0}))
    torch.testing.assert_close(model.intervene(x, {"round": 0.25}), by_hand(model, x, {4: 0.25}))
    torch.testing.assert_close(model.intervene(x, {}), model.class_probabilities(x))


def test_one_value_a_sample(model, x):
    values = torch.linspace(0, 1, 7)
    expected = by_hand(model, x, {0: values.double()})
    torch.testing.assert_close(model.intervene(x, {"size=big": values}), expected)
    torch.testing.assert_close(model.intervene(x, {"size=big": values.tolist()}), expected)


@pytest.mark.parametrize(
    ("group", "value", "columns"),
    [("size", "small", {0: 0.0, 1: 1.0}), ("color", "red", {2: 1.0, 3: 0.0})],
)
def test_setting_a_group_sets_all_its_members(model, x, group, value, columns):
    torch.testing.assert_close(model.intervene(x, {group: value}), by_hand(model, x, columns))


def test_on_logits_a_value_is_a_percentile_of_training_logits_not_0_or_1():
    data = tabular(200)
    model = ecbm.train(data)
    logits = model.concept_logits(data.split("train").x)[:, 0]
    truth = data.split("train").concepts[:, 0]
    assert float(model.high[0]) == pytest.approx(float(torch.quantile(logits[truth == 1], 0.75)))
    assert float(model.low[0]) == pytest.approx(float(torch.quantile(logits[truth == 0], 0.25)))
    assert model.low[0] < 0 < model.high[0]


def test_yes_and_no_are_values_of_a_concept(model, x):
    assert torch.equal(model.intervene(x, {"round": "Yes"}), model.intervene(x, {"round": 1.0}))
    assert torch.equal(model.intervene(x, {"color::red": "absent"}), model.intervene(x, {"color::red": 0.0}))


@pytest.mark.parametrize(
    ("concepts", "error", "message"),
    [
        ({"color::rad": 1}, UnknownNameError, "unknown concept 'color::rad'; did you mean 'color::red'"),
        ({"colour": "red"}, UnknownNameError, "unknown concept group 'colour'; did you mean 'color'"),
        ({"color": "read"}, UnknownNameError, "unknown value of group 'color' 'read'; did you mean 'red'"),
        ({"color": 1.0}, InputError, "'color' is a group: set it to one of its values"),
        ({"round": "maybe"}, InputError, "'round': it has no named values; give yes, no or a number"),
        ({"round": 1.5}, InputError, r"'round': values must lie in \[0, 1\]"),
        ({"round": -0.1}, InputError, r"values must lie in \[0, 1\]"),
        ({"round": math.nan}, InputError, r"values must lie in \[0, 1\]"),
        ({"round": [1.0, 0.0]}, InputError, "one number or one for each of 7 samples"),
        ({"round": None}, InputError, "one number or one for each of 7 samples"),
    ],
)
def test_what_cannot_be_set_is_refused(model, x, concepts, error, message):
    with pytest.raises(error, match=message):
        model.intervene(x, concepts)


def test_interventions_change_neither_model_nor_inputs(model, x):
    before, state = x.clone(), model.fingerprint
    model.intervene(x, {"round": 1, "color": "blue"})
    assert torch.equal(x, before)
    assert model.fingerprint == state


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_orders_all_groups_of_every_sample(model, x, policy):
    order = group_order(model, model.concept_logits(x), policy)
    assert order.shape == (7, 3)
    assert (order.sort(1).values == torch.arange(3)).all()


def test_most_uncertain_group_comes_first(model):
    logits = torch.tensor([[9.0, -9, 0.1, 9, 2], [9.0, -9, 9, 9, 2], [1.0, -9, 9, 9, 2]]).double()
    order = group_order(model, logits, "uncertain")
    assert order.tolist() == [[1, 2, 0], [2, 0, 1], [0, 2, 1]]


def test_largest_expected_change_follows_its_definition(model, x):
    logits = model.concept_logits(x)
    base, p = model.classify(logits), torch.sigmoid(logits)
    scores = torch.zeros(7, 5).double()
    for column, name in enumerate(CONCEPTS):
        for value in (0.0, 1.0):
            chance = p[:, column] if value else 1 - p[:, column]
            change = (model.intervene(x, {name: value}) - base).abs().sum(1) / 2
            scores[:, column] += chance * change
    groups = torch.stack([scores[:, :2].max(1).values, scores[:, 2:4].max(1).values, scores[:, 4]], 1)
    torch.testing.assert_close(POLICIES["expected_change"](model, logits, 0), groups)


def test_a_concept_without_influence_on_the_class_comes_last():
    weight = torch.zeros(3, 5)
    weight[0, 4] = 5.0
    order = group_order(hand_model(weight), torch.zeros(2, 5).double(), "expected_change")
    assert order[:, 0].tolist() == [2, 2]


def test_random_order_depends_on_its_seed_alone(model, x):
    logits = model.concept_logits(x.repeat(20, 1))
    assert torch.equal(group_order(model, logits, "random", 3), group_order(model, logits, "random", 3))
    assert not torch.equal(group_order(model, logits, "random", 3), group_order(model, logits, "random", 4))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_curve_runs_from_no_correction_to_the_class_of_the_true_concepts(model, policy):
    draw = torch.Generator().manual_seed(2)
    truth = torch.rand(50, 5, generator=draw).round()
    x = torch.randn(50, 5, generator=draw)
    labels = model.label_head(model.concept_values(truth)).argmax(1)
    data = ecbm.Dataset([str(i) for i in range(50)], x, truth, labels, CONCEPTS, CLASSES)
    curve = ecbm.intervention_curve(model, data, policy)
    assert len(curve) == 4
    assert curve[0] == ecbm.evaluate(model, data)["class_accuracy"]
    assert curve[-1] == 1.0
    assert ecbm.intervention_curve(model, data, policy, steps=1) == curve[:2]
    assert ecbm.intervention_curve(model, data, policy, steps=99) == curve


def test_missing_labels_stay_as_predicted(model, x):
    data = ecbm.Dataset(
        [str(i) for i in range(7)], x, torch.full((7, 5), math.nan), torch.zeros(7), CONCEPTS, CLASSES
    )
    curve = ecbm.intervention_curve(model, data)
    assert len(set(curve)) == 1


def test_correcting_more_groups_helps_a_trained_model():
    data = tabular(600, seed=5)
    noisy = data.x + torch.randn(600, 6, generator=torch.Generator().manual_seed(0))
    rule = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    labels = (data.concepts @ rule).argmax(1)
    data = ecbm.Dataset(data.ids, noisy, data.concepts, labels, CONCEPTS, CLASSES, data.splits)
    for regime in ("sequential", "independent"):
        for bottleneck in BOTTLENECKS:
            model = ecbm.train(data, ecbm.Recipe(regime=regime, bottleneck=bottleneck))
            curve = ecbm.intervention_curve(model, data.split("test"), "expected_change")
            assert curve[-1] > curve[0] + 0.1
            assert curve[1] > curve[0]


def test_an_unknown_policy_is_refused_with_near_matches(model, x):
    data = ecbm.Dataset([str(i) for i in range(7)], x, torch.zeros(7, 5), torch.zeros(7), CONCEPTS, CLASSES)
    with pytest.raises(UnknownNameError, match="did you mean 'uncertain'"):
        ecbm.intervention_curve(model, data, "uncertainty")
