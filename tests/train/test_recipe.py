"""A recipe is checked when it is made, and its plain form says only what an earlier one could not have said."""

from __future__ import annotations

import json

import pytest

import ecbm
from ecbm import InputError, Recipe
from kit import pictures

FIRST_FIELDS = {
    "backbone", "regime", "bottleneck", "concept_l2", "label_l2", "joint_weight", "pos_weight", "epochs",
    "batch_size", "learning_rate", "patience", "hidden", "small_stem", "weights", "resolve_concept_head",
    "head_tolerance", "seed",
}  # fmt: skip
LATER = {
    "augment": {"flip": 0.5, "crop": 0.1}, "class_balanced": True, "accumulate": 4, "backbone_rate": 0.1,
    "sync_batchnorm": True,
}  # fmt: skip


def test_at_their_defaults_later_fields_leave_no_trace():
    assert Recipe().to_dict().keys() == FIRST_FIELDS
    assert (
        Recipe(augment="none", class_balanced=False, accumulate=1, backbone_rate=1).to_dict() == Recipe().to_dict()
    )


def test_recipes_saved_earlier_load():
    fields = {name: value for name, value in Recipe(epochs=3).to_dict().items() if name in FIRST_FIELDS}
    assert Recipe.from_dict(json.loads(json.dumps(fields))) == Recipe(epochs=3)


@pytest.mark.parametrize("name", LATER)
def test_later_fields_are_saved_and_come_back(name):
    recipe = Recipe(**{name: LATER[name]})
    plain = json.loads(json.dumps(recipe.to_dict()))
    assert plain.keys() == FIRST_FIELDS | {name}
    assert plain[name] == LATER[name]
    assert Recipe.from_dict(plain) == recipe != Recipe()


def test_a_model_is_saved_with_how_it_was_trained(tmp_path):
    model = ecbm.train(pictures(80), Recipe(backbone="convnet", epochs=1, **LATER))
    again = ecbm.load(ecbm.save(model, tmp_path / "model"))
    assert again.recipe == model.recipe
    assert again.fingerprint == model.fingerprint
    assert {name: getattr(again.recipe, name) for name in LATER} == LATER


@pytest.mark.parametrize(
    "given", ["crop=0.1, flip", ["flip", "crop=0.1"], {"crop": 0.1, "flip": True, "colour": False}]
)
def test_augmentations_are_named_in_several_ways(given):
    assert Recipe(augment=given) == Recipe(augment=LATER["augment"])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("augment", "flop", "Recipe: augment: unknown augmentation 'flop'; did you mean 'flip'?"),
        ("augment", "crop=2", "Recipe: augment: crop must be above 0 and at most 1, got 2.0"),
        ("augment", "crop=much", "Recipe: augment: crop needs a number, got 'much'"),
        ("augment", {"colour": 0}, "Recipe: augment: colour must be above 0 and at most 1, got 0"),
        ("augment", {"colour": float("nan")}, "Recipe: augment: colour must be above 0 and at most 1, got nan"),
        ("augment", 3, "Recipe: augment must be names or a mapping to strengths, got 3"),
        ("class_balanced", 1, "Recipe: class_balanced must be True or False, got 1"),
        ("accumulate", 0, "Recipe: accumulate must be a whole number of at least 1, got 0"),
        ("backbone_rate", 0, "Recipe: backbone_rate must be a positive number, got 0"),
        ("sync_batchnorm", "yes", "Recipe: sync_batchnorm must be True or False, got 'yes'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field, value, message):
    with pytest.raises(InputError) as caught:
        Recipe(**{field: value})
    assert str(caught.value) == message
