"""How networks by name are trained: varied before their preprocessing, slowly, and never on what is kept."""

from __future__ import annotations

import pytest
import torch

import ecbm
import kit
import networks_kit
from ecbm.errors import InputError
from ecbm.train.augment import Augmentation
from ecbm.train.front import Front


@pytest.fixture(scope="module")
def data():
    return kit.pictures(80)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"backbone": "linear", "augment": ["flip"]}, "networks trained from pictures"),
        ({"backbone": "pretrained", "augment": ["flip"]}, "networks trained from pictures"),
        ({"backbone": "timm:resnet18", "frozen": "until:layer3", "augment": ["flip"]}, "kept maps"),
    ],
)
def test_what_is_kept_cannot_be_augmented(fields, words):
    with pytest.raises(InputError, match=words):
        ecbm.Recipe(**fields)


def test_a_frozen_network_sees_no_balanced_epochs(data):
    with pytest.raises(InputError, match="class_balanced= is for a backbone that is trained"):
        ecbm.train(data, networks_kit.own(class_balanced=True))


def test_a_tiny_rate_leaves_the_backbone_nearly_where_it_was(data):
    fresh = networks_kit.eye().first.weight.detach()
    slow, full = (
        ecbm.train(
            data, networks_kit.own(frozen=False, epochs=2, backbone_rate=rate)
        ).backbone.first.weight.detach()
        for rate in (1e-4, 1.0)
    )
    assert float((slow - fresh).norm()) < 1e-2 * float((full - fresh).norm())


def test_pictures_are_varied_before_the_networks_own_preprocessing(data, monkeypatch):
    seen, made = [], []
    call, through = Augmentation.__call__, Front.through

    def varied(self, pictures, epoch, places):
        seen.append((float(pictures.min()), float(pictures.max())))
        made.append(call(self, pictures, epoch, places))
        return made[-1]

    preprocessed = []

    def preprocess(self, pictures):
        preprocessed.append(any(pictures is one for one in made))
        return through(self, pictures)

    monkeypatch.setattr(Augmentation, "__call__", varied)
    monkeypatch.setattr(Front, "through", preprocess)
    changed = {"size": 24, "mean": [0.5, 0.5, 0.5], "std": [0.1, 0.1, 0.1]}
    recipe = networks_kit.own(
        frozen=False, epochs=2, batch_size=16, patience=None, augment="flip,colour", preprocessing=changed
    )
    model = ecbm.train(data, recipe)
    assert all(0 <= low < high <= 1 for low, high in seen), (
        "colours are those of pictures, not of what is made of them"
    )
    assert sum(preprocessed) == len(seen)
    assert model.provenance.training["concept_gradient_norm"] < 1e-10
    monkeypatch.undo()
    again = ecbm.train(data, recipe)
    assert kit.same_bytes(model, again)
    assert not kit.same_bytes(model, ecbm.train(data, recipe.replace(augment=None)))


def test_layers_behind_a_frozen_one_are_trained_in_balance_and_by_accumulation(data):
    recipe = networks_kit.own(frozen="until:first", epochs=2, batch_size=8)
    plain = ecbm.train(data, recipe)
    other = ecbm.train(data, recipe, class_balanced=True, accumulate=2, backbone_rate=0.5)
    assert not kit.same_bytes(plain, other)
    assert torch.isfinite(other.concept_probabilities(data)).all()
