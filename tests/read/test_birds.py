"""The drawn birds: exact concepts, a fixed picture for a fixed seed, and species that are tendencies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from ecbm.errors import InputError
from ecbm.read.birds import birds


@pytest.fixture(scope="module")
def data():
    return birds(n=1600, seed=3, size=32)


def test_the_same_arguments_give_the_same_bytes_and_another_seed_does_not():
    assert birds(n=100, seed=5, size=32) == birds(n=100, seed=5, size=32)
    assert birds(n=100, seed=5, size=32) != birds(n=100, seed=6, size=32)


def test_pictures_concepts_and_names_have_their_stated_form(data):
    pictures = data.inputs.raw(range(len(data)))
    assert pictures.dtype == torch.uint8
    assert pictures.shape == (1600, 3, 32, 32)
    assert set(data.concepts.unique().tolist()) == {0.0, 1.0}
    assert len(data.concept_names) == 21
    assert len(data.groups) == 9
    assert len(data.class_names) == 8
    assert data.ids[17] == "bird-00017"


def test_pictures_use_the_range_without_being_clipped_away(data):
    pictures = data.inputs.raw(range(len(data))).float()
    assert pictures.std((1, 2, 3)).min() > 10
    assert (pictures == 0).float().mean() < 0.01
    assert (pictures == 255).float().mean() < 0.05
    assert len({picture.numpy().tobytes() for picture in pictures}) == len(pictures)


def test_a_group_of_several_values_has_exactly_one_of_them(data):
    for members in data.groups.values():
        chosen = data.concepts[:, [data.concept_index(name) for name in members]].sum(1)
        assert (chosen == 1).all() if len(members) > 1 else (chosen <= 1).all()


def test_every_concept_varies_inside_every_species(data):
    for species in range(len(data.class_names)):
        share = data.concepts[data.labels == species].mean(0)
        assert ((share > 0) & (share < 1)).all()


@pytest.mark.parametrize("n", [80, 300, 1600])
def test_every_species_is_in_every_split_in_the_stated_shares(n):
    data = birds(n=n, size=24)
    for name, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
        part = data.split(name)
        assert set(part.labels.tolist()) == set(range(8))
        assert abs(len(part) / n - share) < 0.03


def test_a_linear_model_tells_species_from_true_concepts_well_but_not_perfectly(data):
    train, test = data.split("train"), data.split("test")
    model = LogisticRegression(max_iter=2000).fit(train.concepts, train.labels)
    assert 0.93 <= model.score(test.concepts, test.labels) < 1.0


def test_concepts_are_seen_in_the_pixels():
    """The picture differs where a concept differs: one bird redrawn with one value changed at a time."""
    from ecbm.read.birds import GROUPS
    from ecbm.read.birds_draw import draw

    for group, values in GROUPS.items():
        options = max(2, len(values))
        pictures = []
        for value in range(options):
            choices = {name: np.zeros(32, np.int64) for name in GROUPS}
            choices[group][:] = value
            pictures.append(draw(choices, 32, np.random.default_rng(0)).astype(float))
        for one in range(options):
            for two in range(one):
                changed = np.abs(pictures[one] - pictures[two]).max(1) > 40
                assert changed.sum((1, 2)).mean() >= 4, (group, one, two)


@pytest.mark.parametrize("size", [24, 33, 96])
def test_any_size_in_range_is_drawn(size):
    assert birds(n=80, size=size).inputs.shape == (3, size, size)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n": 79}, "n=79"),
        ({"n": 100.5}, "n=100.5"),
        ({"n": True}, "n=True"),
        ({"size": 23}, "size=23"),
        ({"size": 97}, "size=97"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_line(arguments, named):
    with pytest.raises(InputError, match=named) as caught:
        birds(**arguments)
    assert "\n" not in str(caught.value)
