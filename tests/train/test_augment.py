"""Augmentation is drawn by seed, epoch and place alone, and seen by nothing but the epochs of a deep training."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm import InputError, Recipe
from ecbm.train import loop
from ecbm.train.augment import AUGMENTATIONS, Augmentation, uniform
from kit import concept_objective, pictures, same_bytes, tabular

PLACES = torch.arange(64)


def some_pictures(n=64, height=12, width=16):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(1))


def splitmix(state, count):
    """Steele, Lea and Flood's generator, in Python's whole numbers."""
    out, most = [], 2**64
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % most
        value = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % most
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % most
        out.append(value ^ (value >> 31))
    return out


def test_numbers_are_those_of_splitmix_started_by_seed_and_epoch():
    for seed, epoch in ((0, 0), (2**63 - 1, 3)):
        (first,) = splitmix(seed, 1)
        # One step of the generator adds the golden number before it mixes: one less here.
        (key,) = splitmix((first + (epoch - 1) * 0x9E3779B97F4A7C15) % 2**64, 1)
        expected = torch.tensor([(value >> 11) / 2**53 for value in splitmix(key, 5 * 10)], dtype=torch.float64)
        assert torch.equal(uniform(seed, epoch, torch.arange(5)), expected.view(5, 10))


def test_numbers_fill_their_range_and_differ_by_seed_and_epoch():
    drawn = uniform(0, 0, torch.arange(4000))
    assert 0 <= float(drawn.min()) < 0.001 < 0.999 < float(drawn.max()) < 1
    assert (drawn.mean(0) - 0.5).abs().max() < 4 * (1 / 12 / 4000) ** 0.5
    assert torch.corrcoef(drawn.T).fill_diagonal_(0).abs().max() < 0.07
    for seed, epoch in ((1, 0), (0, 1)):
        assert not (uniform(seed, epoch, torch.arange(4000)) == drawn).any()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_picture_looks_the_same_in_any_batch_and_another_way_in_the_next_epoch(name):
    augment, x = Augmentation({name: AUGMENTATIONS[name]}, 3), some_pictures()
    whole = augment(x, 2, PLACES)
    for rows in (PLACES[::2], PLACES[5:6], PLACES.flip(0)):
        assert torch.equal(augment(x[rows], 2, rows), whole[rows])
    assert not torch.equal(augment(x, 3, PLACES), whole)
    assert torch.equal(some_pictures(), x), "the pictures themselves stay"


@pytest.mark.parametrize(("name", "side"), [("flip", -1), ("vertical_flip", -2)])
def test_a_flip_mirrors_about_its_share_of_pictures(name, side):
    x = some_pictures()
    out = Augmentation({name: 0.5}, 0)(x, 0, PLACES)
    flipped = torch.tensor([torch.equal(a, b.flip(side)) for a, b in zip(out, x, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(out, x, strict=True)])
    assert (flipped ^ same).all()
    assert 16 < int(flipped.sum()) < 48
    assert torch.equal(Augmentation({name: 1.0}, 0)(x, 0, PLACES), x.flip(side))


def test_a_crop_moves_a_picture_by_its_share_at_most_and_mirrors_the_border():
    x = torch.zeros(200, 1, 16, 24)
    x[:, :, 8, 12] = 1
    places = Augmentation({"crop": 0.125}, 0)(x, 0, torch.arange(200)).flatten(1).argmax(1)
    assert set((places // 24).tolist()) == {6, 7, 8, 9, 10}
    assert set((places % 24).tolist()) == {9, 10, 11, 12, 13, 14, 15}
    ramp = torch.arange(8.0).expand(64, 1, 8, 8)
    rows = {tuple(picture[0, 0].tolist()) for picture in Augmentation({"crop": 0.25}, 0)(ramp, 0, PLACES)}
    assert (2, 1, 0, 1, 2, 3, 4, 5) in rows
    assert (2, 3, 4, 5, 6, 7, 6, 5) in rows
    assert Augmentation({"crop": 1.0}, 0)(ramp, 0, PLACES).shape == ramp.shape


def test_a_zoom_enlarges_a_window_of_the_pictures_own_shape():
    height, width = 20, 30
    down = torch.linspace(0, 1, height)[:, None].expand(height, width)
    across = torch.linspace(0, 1, width).expand(height, width)
    x = torch.stack([down, across, torch.full((height, width), 0.25)]).expand(64, -1, -1, -1)
    out = Augmentation({"zoom": 0.5}, 0)(x, 0, PLACES)
    assert out.shape == x.shape
    assert (out[:, 2] - 0.25).abs().max() < 1e-6
    # In the middle, where no border is repeated, ramps stay ramps: their slope is the window's share of the side.
    slope_down = (out[:, 0, 12, 15] - out[:, 0, 8, 15]) / 4 * (height - 1)
    slope_across = (out[:, 1, 10, 18] - out[:, 1, 10, 12]) / 6 * (width - 1)
    assert (slope_down - slope_across).abs().max() < 1e-4
    assert 0.499 < float(slope_down.min()) < 0.55
    assert 0.95 < float(slope_down.max()) < 1.001
    middles = out[:, 0, 9:11, 15].mean(1)
    assert float(middles.min()) < 0.4 < 0.6 < float(middles.max()), "windows lie in different places"
    assert (Augmentation({"zoom": 1.0}, 0)(x, 0, PLACES) - x).abs().max() < 1e-5


def test_colour_changes_brightness_contrast_and_saturation_and_nothing_of_the_form():
    augment, x = Augmentation({"colour": 0.3}, 0), some_pictures()
    out = augment(x, 0, PLACES)
    assert 0 <= float(out.min()) <= float(out.max()) <= 1
    even = augment(torch.full((64, 3, 4, 4), 0.5), 0, PLACES)
    assert (even - even[:, :, :1, :1]).abs().max() < 1e-6, "an even picture stays even"
    assert (even - even[:, :1]).abs().max() < 1e-6, "a grey picture stays grey"
    assert 0.35 - 1e-6 <= float(even.min()) < 0.4 < 0.6 < float(even.max()) <= 0.65 + 1e-6
    coloured = torch.tensor([0.6, 0.5, 0.4])[:, None, None].expand(64, 3, 4, 4)
    spread = augment(coloured, 0, PLACES)[:, :, 0, 0]
    ratio = (spread[:, 0] - spread[:, 2]) / 0.2
    assert float(ratio.min()) < 0.8 < 1.2 < float(ratio.max())


def test_leaving_one_out_changes_no_other():
    x = some_pictures()
    alone, both = Augmentation({"flip": 0.5}, 0), Augmentation({"flip": 0.5, "vertical_flip": 1.0}, 0)
    assert torch.equal(both(x, 0, PLACES), alone(x, 0, PLACES).flip(-2))


@pytest.fixture
def watched(monkeypatch):
    """Every call of an augmentation: its epoch and how many pictures it saw."""
    calls, real = [], Augmentation.__call__

    def call(self, x, epoch, places):
        calls.append((epoch, len(x)))
        return real(self, x, epoch, places)

    monkeypatch.setattr(Augmentation, "__call__", call)
    return calls


def test_epochs_see_augmented_pictures_and_everything_else_sees_them_as_they_are(watched):
    data = pictures(80)
    recipe = Recipe(backbone="convnet", epochs=2, batch_size=16, augment="flip,crop,zoom,colour")
    model = ecbm.train(data, recipe)
    train = data.split("train")
    assert [sum(n for epoch, n in watched if epoch == e) for e in (0, 1)] == [len(train), len(train)]
    assert ecbm.train(data, recipe.replace(augment=None)).fingerprint != model.fingerprint
    watched.clear()
    design = torch.cat([model.features(train.inputs).double(), torch.ones(len(train), 1)], 1)
    head = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1)
    _, gradient = concept_objective(
        design, train.concepts, (~train.concepts.isnan()).double(), head.detach(), recipe.concept_regularisation
    )
    assert gradient.norm() < 1e-9, "the closing head is solved on features of the pictures themselves"
    edit = ecbm.Edit(correct_labels=[(train.ids[0], data.class_names[int(train.labels[0]) - 1])])
    for method in ("auto", "exact", "ekfac"):
        ecbm.Editor(model, data).apply(edit, method=method)
    assert watched == []
    ecbm.Editor(model, data).apply(edit, method="retrain")
    assert watched, "a training anew is a training by the same recipe"


def test_pictures_that_are_read_from_disk_are_augmented_like_those_in_memory(monkeypatch):
    data = pictures(80)
    recipe = Recipe(backbone="convnet", epochs=2, batch_size=8, accumulate=2, augment="flip,crop")
    held = ecbm.train(data, recipe)
    monkeypatch.setattr(loop, "_KEEP_IN_MEMORY_BYTES", 0)
    assert same_bytes(ecbm.train(data, recipe), held)


@pytest.mark.parametrize(
    ("data", "recipe", "message"),
    [
        (
            tabular(60),
            Recipe(backbone="mlp", augment="flip"),
            r"augment= is for networks trained from pictures; inputs are \(6,\)",
        ),
        (tabular(60), Recipe(augment="flip"), "augment= is for networks trained from pictures"),
        (tabular(60), Recipe(class_balanced=True), "class_balanced= is for a backbone that is trained"),
    ],
)
def test_what_has_nothing_to_augment_is_refused(data, recipe, message, tmp_path):
    for action in (lambda: ecbm.train(data, recipe), lambda: ecbm.Workspace.create(tmp_path / "w", data, recipe)):
        with pytest.raises(InputError, match=message) as caught:
            action()
        assert "\n" not in str(caught.value)


def test_colour_is_refused_where_pictures_are_no_photographs():
    data = pictures(80)
    floats = ecbm.Dataset(
        data.ids, data.x * 7, data.concepts, data.labels, data.concept_names, data.class_names, data.splits
    )
    recipe = Recipe(backbone="convnet", epochs=1, augment="flip,colour")
    with pytest.raises(InputError, match="augment='colour' needs pictures in red, green and blue"):
        ecbm.train(floats, recipe)
    assert ecbm.train(floats, recipe.replace(augment="flip"))
