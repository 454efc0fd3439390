"""What cannot be trained on is refused before any work, in one line that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import ecbm
from ecbm import InputError, Recipe
from kit import CLASSES, CONCEPTS, pictures, tabular


def lacking(kind):
    data = tabular(60)
    concepts, labels, splits = data.concepts.clone(), data.labels.clone(), list(data.splits)
    names, classes = data.concept_names, data.class_names
    train = torch.tensor([split == "train" for split in splits])
    if kind == "class":
        labels[train & (labels == 1)] = 0
    if kind == "concept":
        concepts[train, 3] = torch.nan
    if kind == "train":
        splits = ["val"] * 60
    if kind == "val":
        splits = ["train"] * 60
    if kind == "val labels":
        concepts[torch.tensor([split == "val" for split in splits])] = torch.nan
    if kind == "concepts":
        concepts, names = concepts[:, :0], ()
    return ecbm.Dataset(data.ids, data.x, concepts, labels, names, classes, splits)


@pytest.mark.parametrize(
    ("kind", "recipe", "message"),
    [
        ("class", Recipe(), "class 'wren' has no sample in the train split"),
        ("concept", Recipe(), "concept 'color::blue' has no label in the train split"),
        ("train", Recipe(), r"the train split is empty \(splits: val\)"),
        ("val", Recipe(backbone="mlp"), "the val split is empty; .* set patience=None"),
        ("val", Recipe(regime="joint"), "the val split is empty"),
        ("val labels", Recipe(backbone="mlp"), "the val split has no concept label"),
        ("concepts", Recipe(), "the dataset has no concepts"),
    ],
)
def test_incomplete_data_is_refused(kind, recipe, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        ecbm.train(lacking(kind), recipe, checkpoint=tmp_path / "folder" / "state")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_early_stopping_no_validation_split_is_needed():
    assert ecbm.train(lacking("val"), Recipe(backbone="mlp", epochs=1, patience=None))
    assert ecbm.train(lacking("val labels"), Recipe(backbone="mlp", epochs=1, patience=None))


@pytest.mark.parametrize(
    ("x", "row"), [(torch.tensor([[0.0], [torch.nan]]), 2), (torch.tensor([[torch.inf], [0.0]]), 1)]
)
def test_features_that_are_not_finite_are_refused_with_their_row(x, row):
    with pytest.raises(InputError, match=f"row {row} .*NaN or infinity"):
        ecbm.Dataset("ab", x, torch.zeros(2, 1), torch.zeros(2), ["c"], ["k"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "resnet"}, "unknown backbone 'resnet'; did you mean 'resnet18'"),
        ({"backbone": 18}, "backbone must be a name or an nn.Module"),
        ({"backbone": nn.Linear}, "backbone must be a name or an nn.Module"),
        ({"regime": "sequental"}, "did you mean 'sequential'"),
        ({"bottleneck": "logit"}, "did you mean 'logits'"),
        ({"pos_weight": "balance"}, "did you mean 'balanced'"),
        ({"pos_weight": 0}, "pos_weight must be a positive number"),
        ({"pos_weight": [1, 2]}, "pos_weight must be a positive number"),
        ({"pos_weight": {"round": -1}}, "pos_weight of 'round' must be a positive number"),
        ({"concept_l2": 0}, "concept_l2 must be a positive number"),
        ({"label_l2": float("nan")}, "label_l2 must be a positive number"),
        ({"label_l2": float("inf")}, "label_l2 must be a positive number"),
        ({"learning_rate": "fast"}, "learning_rate must be a positive number"),
        ({"head_tolerance": -1}, "head_tolerance must be a positive number"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"patience": 0}, "patience must be"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"seed": 2**63}, r"seed must be below 2\*\*63"),
        ({"hidden": ()}, "hidden needs at least one layer width"),
        ({"hidden": (8, 0)}, "hidden must be a whole number of at least 1"),
        ({"weights": "x.pth"}, "weights= is for 'resnet18' and networks by name"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Recipe(**fields)


def test_a_recipe_is_plain_data_whatever_its_numbers_came_from():
    recipe = Recipe(
        concept_l2=np.float64(0.5), epochs=np.int64(3), pos_weight={"round": np.float32(2)}, hidden=[np.int32(4)]
    )
    assert recipe == Recipe(concept_l2=0.5, epochs=3, pos_weight={"round": 2.0}, hidden=(4,))
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(ecbm.UnknownNameError, match="did you mean 'epochs'"):
        Recipe.from_dict({"epoch": 3})


@pytest.mark.parametrize(
    ("data", "recipe", "message"),
    [
        (tabular(60), Recipe(backbone="convnet"), "'convnet' needs pictures"),
        (tabular(60), Recipe(backbone="resnet18"), "'resnet18' needs pictures"),
        (pictures(80), Recipe(backbone="linear"), "'linear' needs feature rows"),
        (tabular(60), Recipe(backbone=nn.Linear(7, 3)), "the backbone cannot take a float32 input of shape"),
        (tabular(60), Recipe(backbone=nn.Linear(6, 3).double()), "the backbone cannot take a float32 input"),
        (tabular(60), Recipe(backbone=nn.Unflatten(1, (2, 3))), "must give feature rows"),
        (tabular(60), Recipe(pos_weight={"roun": 1.0}), "did you mean 'round'"),
    ],
)
def test_a_recipe_that_does_not_fit_the_data_is_refused(data, recipe, message):
    with pytest.raises(InputError, match=message):
        ecbm.train(data, recipe)


def test_inputs_of_another_shape_are_refused_when_predicting():
    data = tabular(60)
    model = ecbm.train(data)
    with pytest.raises(InputError, match=r"inputs have shape \(5,\), the model expects \(6,\)"):
        model.class_probabilities(data.x[:, :5])
    with pytest.raises(InputError, match=r"one input still needs a batch: x\[None\]"):
        model.class_probabilities(data.x[0])
    with pytest.raises(InputError, match=r"inputs have shape \(4,\)"):
        ecbm.evaluate(model, tabular(20, width=4))
    other = ecbm.Dataset("a", torch.zeros(1, 6), torch.zeros(1, 5), torch.zeros(1), CONCEPTS, CLASSES)
    assert ecbm.evaluate(model, other)["count"] == 1
