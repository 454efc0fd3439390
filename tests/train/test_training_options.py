"""What people expect of training: augmentation, two learning rates, balanced sampling, batches in parts."""

from __future__ import annotations

import pytest
import torch

import ecbm
import kit
import networks_kit
from ecbm.errors import InputError
from ecbm.train import loop
from ecbm.train.augmentation import augmented
from ecbm.train.train import _class_chances


@pytest.fixture(scope="module")
def data():
    return kit.pictures(80)


def small(data, **fields):
    return ecbm.train(data, backbone="convnet", epochs=2, batch_size=16, **fields)


def test_flips_exchange_left_and_right_in_some_pictures():
    torch.manual_seed(0)
    x = torch.rand(64, 3, 8, 8)
    out = augmented(x, ("flip",))
    same = (out == x).flatten(1).all(1)
    turned = (out == x.flip(3)).flatten(1).all(1)
    assert bool((same | turned).all())
    assert 16 < int(turned.sum()) < 48


def test_crops_move_a_picture_by_an_eighth_at_most():
    torch.manual_seed(0)
    x = torch.zeros(200, 1, 16, 16)
    x[:, :, 8, 8] = 1
    places = augmented(x, ("crop",)).flatten(1).argmax(1)
    rows, columns = places // 16, places % 16
    assert set(rows.tolist()) == set(columns.tolist()) == {6, 7, 8, 9, 10}


def test_colours_change_and_the_given_pictures_do_not():
    x = torch.rand(4, 3, 8, 8)
    before = x.clone()
    assert not torch.allclose(augmented(x, ("colour",)), x)
    assert torch.equal(x, before)


def test_augmented_training_is_the_same_from_one_seed_and_another_without(data):
    first, second, plain = small(data, augment=["flip", "crop"]), small(data, augment=["flip", "crop"]), small(data)
    assert first.fingerprint == second.fingerprint
    assert not kit.same_bytes(first.backbone, plain.backbone)


def test_augmented_training_resumes_to_the_bit(data, tmp_path, monkeypatch):
    whole = small(data, augment=("flip", "crop", "colour"))
    save = loop.Checkpoint.save

    def stop(self, *rest):
        save(self, *rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Checkpoint, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        small(data, augment=("flip", "crop", "colour"), checkpoint=tmp_path / "c")
    monkeypatch.undo()
    assert (
        small(data, augment=("flip", "crop", "colour"), checkpoint=tmp_path / "c").fingerprint == whole.fingerprint
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"augment": ["mirror"]}, "unknown augmentation 'mirror'"),
        ({"backbone": "linear", "augment": ["flip"]}, "networks trained from pictures"),
        ({"backbone": "pretrained", "augment": ["flip"]}, "networks trained from pictures"),
        ({"backbone": "timm:resnet18", "frozen": "until:layer3", "augment": ["flip"]}, "kept maps"),
        ({"accumulate": 0}, "accumulate"),
        ({"backbone_rate": -1}, "backbone_rate"),
    ],
)
def test_options_that_make_no_sense_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        ecbm.Recipe(**fields)


def test_tables_are_not_augmented():
    with pytest.raises(InputError, match="augment= is for networks trained from pictures"):
        ecbm.train(kit.tabular(), backbone="mlp", augment=["flip"])


def test_a_tiny_rate_leaves_the_backbone_nearly_where_it_was(data):
    fresh = networks_kit.eye().first.weight.detach()
    slow, full = (
        ecbm.train(data, networks_kit.own(frozen=False, epochs=2, backbone_rate=r)).backbone.first.weight.detach()
        for r in (1e-4, 1.0)
    )
    assert float((slow - fresh).norm()) < 1e-2 * float((full - fresh).norm())


def test_balanced_sampling_shows_every_class_equally_often():
    labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    drawn = torch.cat(loop._batches(1000, 64, 0, 0, _class_chances(labels)))
    counts = torch.bincount(labels[drawn])
    assert len(drawn) == 1000
    assert int(counts.min()) > 270


def test_batches_in_parts_sum_to_the_same_gradient():
    data = kit.tabular(60)
    fields = {"backbone": "mlp", "epochs": 3, "batch_size": 16}
    whole, parts = ecbm.train(data, **fields), ecbm.train(data, accumulate=4, **fields)
    difference = whole.concept_probabilities(data) - parts.concept_probabilities(data)
    assert float(difference.abs().max()) < 1e-4


def test_the_options_are_part_of_the_recipe():
    recipe = ecbm.Recipe(backbone="convnet", augment="flip", backbone_rate=0.1, class_balanced=True, accumulate=2)
    assert recipe.augment == ("flip",)
    assert ecbm.Recipe.from_dict(recipe.to_dict()) == recipe
