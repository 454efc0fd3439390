"""All three regimes with both bottlenecks train and predict, on whatever labels there are."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import ecbm
from ecbm.train.heads.objectives import with_ones
from ecbm.train.stages import fill_missing, logit_range
from kit import CLASSES, CONCEPTS, label_objective, pictures, tabular

REGIMES = ("sequential", "independent", "joint")
BOTTLENECKS = ("logits", "probabilities")
GRID = list(itertools.product(REGIMES, BOTTLENECKS))


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
@pytest.mark.parametrize(("regime", "bottleneck"), GRID)
def test_every_regime_learns_from_incomplete_soft_labels(regime, bottleneck, backbone):
    data = tabular(400, missing=0.3, soft=True, seed=2)
    recipe = ecbm.Recipe(backbone=backbone, hidden=(16,), regime=regime, bottleneck=bottleneck, epochs=30)
    model = ecbm.train(data, recipe)
    test = data.split("test")
    concepts, classes = model.concept_probabilities(test.x), model.class_probabilities(test.x)
    assert concepts.shape == (80, len(CONCEPTS))
    assert classes.shape == (80, len(CLASSES))
    torch.testing.assert_close(classes.sum(1), torch.ones(80).double())
    figures = ecbm.evaluate(model, test)
    assert figures["concept_accuracy"] > 0.8
    assert figures["class_accuracy"] > 0.7
    assert model.provenance.training["label_gradient_norm"] <= recipe.head_tolerance


@pytest.mark.parametrize(("regime", "bottleneck"), GRID)
def test_the_label_head_is_at_the_optimum_of_its_stage(regime, bottleneck):
    data = tabular(150, missing=0.2)
    recipe = ecbm.Recipe(backbone="linear", regime=regime, bottleneck=bottleneck, epochs=3)
    model = ecbm.train(data, recipe)
    train = data.split("train")
    if regime == "independent":
        read = model.concept_values(fill_missing(train.concepts))
    else:
        read = model.bottleneck_from(model.concept_logits(train.x))
    head = torch.cat([model.label_head.weight, model.label_head.bias[:, None]], 1).detach()
    beta = recipe.label_regularisation
    _, gradient = label_objective(with_ones(read), train.labels, torch.ones(len(train)), head, beta)
    assert gradient.norm() < 1e-9


@pytest.mark.parametrize(("regime", "bottleneck"), GRID)
def test_pictures_train_in_every_regime(regime, bottleneck):
    data = pictures(80)
    recipe = ecbm.Recipe(backbone="convnet", regime=regime, bottleneck=bottleneck, epochs=1)
    model = ecbm.train(data, recipe)
    assert model.class_probabilities(data.split("test").inputs).isfinite().all()


def test_the_joint_weight_decides_between_concepts_and_classes():
    data = tabular(300, seed=3)
    accuracy = []
    for weight in (1e-3, 10.0):
        recipe = ecbm.Recipe(backbone="mlp", hidden=(8,), regime="joint", joint_weight=weight, epochs=15)
        accuracy.append(ecbm.evaluate(ecbm.train(data, recipe), data.split("train"))["concept_accuracy"])
    assert accuracy[1] > accuracy[0] + 0.01


def test_features_are_standardised_with_training_statistics_that_the_model_keeps():
    data = tabular(100)
    moved = ecbm.Dataset(
        data.ids, data.x * torch.tensor([1e4, 1, 1, 1e-4, 1, 1]) + 7, data.concepts, data.labels,
        data.concept_names, data.class_names, data.splits,
    )  # fmt: skip
    plain, other = (ecbm.train(d, ecbm.Recipe(backbone="linear")) for d in (data, moved))
    torch.testing.assert_close(
        plain.class_probabilities(data.x), other.class_probabilities(moved.x), atol=2e-3, rtol=0
    )
    train = moved.split("train").x.double()
    torch.testing.assert_close(other.backbone.mean, train.mean(0))
    torch.testing.assert_close(other.backbone.scale, train.std(0, correction=0))


def test_a_constant_feature_does_no_harm():
    data = tabular(60)
    x = torch.cat([data.x, torch.full((60, 1), 1e6)], 1)
    data = ecbm.Dataset(data.ids, x, data.concepts, data.labels, CONCEPTS, CLASSES, data.splits)
    assert ecbm.train(data).class_probabilities(x).isfinite().all()


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
@pytest.mark.parametrize("n", [1, 2, 3, 11])
def test_a_handful_of_samples_is_enough(n, backbone):
    data = tabular(n, splits=False, classes=["only"])
    model = ecbm.train(data, ecbm.Recipe(backbone=backbone, epochs=2, patience=None))
    assert model.class_probabilities(data.x).tolist() == [[1.0]] * n


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_one_class_and_one_concept_are_enough(backbone):
    data = tabular(60, concepts=["striped"], classes=["finch"])
    model = ecbm.train(data, ecbm.Recipe(backbone=backbone, epochs=2))
    figures = ecbm.evaluate(model, data.split("test"))
    assert figures["class_accuracy"] == 1.0
    assert ecbm.intervention_curve(model, data.split("test")) == [1.0, 1.0]
    data = tabular(60, concepts=["striped"], classes=["finch", "wren"])
    assert ecbm.evaluate(ecbm.train(data), data.split("test"))["class_accuracy"] > 0.5


def test_a_concept_that_is_always_the_same_can_be_learnt_and_set():
    data = tabular(60)
    values = data.concepts.clone()
    values[:, 0] = 1.0
    model = ecbm.train(data.replace(concepts=values))
    assert (model.concept_probabilities(data.x)[:, 0] > 0.8).all()
    assert model.intervene(data.x, {"size=big": 0}).isfinite().all()


def test_half_precision_and_integer_inputs_are_read_as_float32():
    data = tabular(60)
    halved = ecbm.Dataset(data.ids, data.x.half(), data.concepts, data.labels, CONCEPTS, CLASSES, data.splits)
    model = ecbm.train(halved)
    assert torch.equal(model.class_probabilities(data.x.half()), model.class_probabilities(data.x.half().float()))
    assert model.class_probabilities(data.x.numpy()).shape == (60, 3)
    assert model.class_probabilities(data.x.tolist()).shape == (60, 3)
    assert model.class_probabilities(torch.zeros(0, 6)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_backbone_may_give_features_of_another_precision(dtype):
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)

        def forward(self, x):
            return self.layer(x).to(dtype)

    data = tabular(60)
    model = ecbm.train(data, ecbm.Recipe(backbone=Cast(), epochs=2))
    assert model.class_probabilities(data.x).dtype == torch.float64


def test_a_warm_start_begins_from_the_given_backbone():
    data = tabular(60)
    recipe = ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=1, learning_rate=1e-12, patience=None)
    first = ecbm.train(data, recipe.replace(seed=1))
    again = ecbm.train(data, recipe, start=first)
    torch.testing.assert_close(again.backbone.layers[0].weight, first.backbone.layers[0].weight)
    assert again.backbone is not first.backbone


def test_low_and_high_logits_are_quartiles_of_the_absent_and_the_present():
    logits = torch.arange(8.0).double()[:, None].repeat(1, 2)
    concepts = torch.tensor([[0.0, 1], [0, 1], [0, 1], [0, 1], [1, 1], [1, 1], [1, 1], [torch.nan, 1]])
    low, high = logit_range(logits, concepts)
    assert low[0] == 0.75
    assert high[0] == 5.5
    torch.testing.assert_close(torch.stack([low[1], high[1]]), torch.tensor([0.35, 6.65]).double())


def test_low_and_high_logits_of_many_samples():
    low, high = logit_range(torch.zeros(17 * 2**20, 1), torch.zeros(17 * 2**20, 1))
    assert low.tolist() == high.tolist() == [0.0]


def test_the_backbone_is_chosen_by_the_inputs():
    assert ecbm.train(tabular(60)).recipe.backbone == "linear"
    assert ecbm.train(pictures(80), ecbm.Recipe(epochs=1)).recipe.backbone == "convnet"
