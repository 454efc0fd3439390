"""A training is asked for by a recipe, by its fields, or both; what an interrupt leaves is said."""

from __future__ import annotations

import pytest

import ecbm
from ecbm.train import loop
from ecbm.train.asked import epochs_kept
from kit import same_bytes, tabular

DATA = tabular(40)


def test_fields_of_the_recipe_may_be_given_as_keywords():
    recipe = ecbm.Recipe(backbone="mlp", hidden=(4,), epochs=2, seed=3)
    model = ecbm.train(DATA, backbone="mlp", hidden=(4,), epochs=2, seed=3)
    assert model.recipe == recipe
    assert same_bytes(model, ecbm.train(DATA, recipe))
    assert ecbm.train(DATA, recipe, epochs=1).recipe == recipe.replace(epochs=1)


@pytest.mark.parametrize(
    ("arguments", "fields", "words"),
    [
        ((DATA, {"epochs": 3}), {}, r"expected a Recipe, got a mapping; write train\(data, \*\*fields\)"),
        ((DATA, "linear"), {}, "expected a Recipe, got str"),
        ((DATA,), {"epoch": 3}, "unknown recipe field 'epoch'; did you mean 'epochs'"),
        ((DATA,), {"epochs": 0}, "epochs must be a whole number"),
        (([1, 2],), {}, "expected a Dataset"),
    ],
)
def test_what_is_no_recipe_is_refused_before_any_work(arguments, fields, words):
    with pytest.raises(ecbm.InputError, match=words):
        ecbm.train(*arguments, **fields)


@pytest.mark.parametrize(
    ("stop_after", "checkpoint", "words"),
    [
        (2, True, "interrupted: 2 finished epochs kept; the same call goes on from there"),
        (0, True, "interrupted: no epoch was finished, so nothing is kept; the same call starts anew"),
        (2, False, "interrupted: nothing is kept; with checkpoint=FILE a training can go on after an interrupt"),
    ],
)
def test_an_interrupt_says_what_is_kept_and_how_to_go_on(tmp_path, monkeypatch, stop_after, checkpoint, words):
    real, seen = loop._batches, []

    def batches(count, size, seed, epoch, chances=None):
        seen.append(epoch)
        if epoch == stop_after and len(seen) > 1:
            raise KeyboardInterrupt
        return real(count, size, seed, epoch, chances)

    monkeypatch.setattr(loop, "_batches", batches)
    path = tmp_path / "state" if checkpoint else None
    with pytest.raises(KeyboardInterrupt) as stopped:
        ecbm.train(DATA, backbone="mlp", hidden=(4,), epochs=4, checkpoint=path)
    assert str(stopped.value) == words
    monkeypatch.setattr(loop, "_batches", real)
    if path is not None:
        assert epochs_kept(path) == stop_after
        resumed = ecbm.train(DATA, backbone="mlp", hidden=(4,), epochs=4, checkpoint=path)
        assert same_bytes(resumed, ecbm.train(DATA, backbone="mlp", hidden=(4,), epochs=4))
