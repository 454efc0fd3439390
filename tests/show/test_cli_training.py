"""How pictures are trained on, from the command line."""

from __future__ import annotations

import pytest

import ecbm

OPTIONS = ("--augment", "flip,crop=0.1", "--class-balanced", "--accumulate", "2", "--backbone-rate", "0.5",
           "--sync-batchnorm")  # fmt: skip
FIELDS = {"augment": {"flip": 0.5, "crop": 0.1}, "class_balanced": True, "accumulate": 2, "backbone_rate": 0.5,
          "sync_batchnorm": True}  # fmt: skip


def test_options_of_a_deep_training_are_kept_and_come_out_again_to_the_bit(tmp_path, machine):
    w = tmp_path / "w"
    machine("init", w, "--builtin", "birds", "--samples", 80, "--image-size", 24, "--epochs", 2, *OPTIONS)
    recipe = machine("train", w)["recipe"]
    assert {name: recipe[name] for name in FIELDS} == FIELDS
    assert ecbm.Workspace(w).model().recipe.augment == FIELDS["augment"]
    assert [item["same"] for item in machine("check", w, "--replay")["replayed"]] == [None, True]
    without = machine("train", w, "--augment", "none", "--no-class-balanced")["recipe"]
    assert "augment" not in without
    assert "class_balanced" not in without
    assert without["accumulate"] == 2


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--augment", "spin", "Recipe: augment: unknown augmentation 'spin'"),
        ("--augment", "crop=7", "Recipe: augment: crop must be above 0 and at most 1"),
        ("--augment", "flip", "augment= is for networks trained from pictures"),
        ("--accumulate", "0", "Recipe: accumulate must be a whole number of at least 1"),
        ("--backbone-rate", "-1", "Recipe: backbone_rate must be a positive number"),
    ],
)
def test_what_cannot_be_trained_is_one_line(workspace, run, option, value, words):
    status, out, err = run("train", workspace, option, value)
    assert (status, out) == (2, "")
    assert err.startswith(f"ecbm: {words}")
    assert err.count("\n") == 1
