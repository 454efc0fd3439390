"""Kept maps: what the front of a cut backbone gives, bounded in memory, of the samples that are there."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import ecbm
from ecbm.edit import maps as kept
from ecbm.edit.alignment import align
from ecbm.edit.carry import carry
from ecbm.edit.maps import KeptMaps, tail_design
from ecbm.train import stages
from ecbm.train.cuts import Cut, cuts_of
from kit import tabular

BIRDS = ecbm.datasets.birds(n=150, size=24)
DATA = tabular(90)


@pytest.fixture(scope="module")
def editors() -> dict[str, ecbm.Editor]:
    birds = ecbm.train(BIRDS, ecbm.Recipe(backbone="convnet", epochs=1))
    rows = ecbm.train(DATA, ecbm.Recipe(backbone="mlp", hidden=(8, 6), epochs=2))
    return {"convnet": ecbm.Editor(birds, BIRDS), "mlp": ecbm.Editor(rows, DATA)}


def cut_of(editor: ecbm.Editor, place: int = 0) -> Cut:
    return cuts_of(editor.model.backbone)[place]


@pytest.mark.parametrize("name", ["convnet", "mlp"])
@pytest.mark.parametrize("place", [0, 1])
def test_features_from_maps_are_the_models_own_to_the_bit(editors: Any, name: str, place: int) -> None:
    editor = editors[name]
    cut, inputs = cut_of(editor, place), editor.data.split("train").inputs
    design = tail_design(cut, editor.state.maps.of(cut, "train"), inputs.shape)
    assert torch.equal(design, stages.feature_design(editor.model.backbone, inputs))


def test_large_maps_are_halved_and_larger_ones_go_to_a_file(editors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cut, inputs = cut_of(editors["convnet"]), BIRDS.split("train").inputs
    whole = KeptMaps.of(cut.front, inputs)
    monkeypatch.setattr(kept, "_SINGLE_BYTES", 1000)
    half = KeptMaps.of(cut.front, inputs)
    monkeypatch.setattr(kept, "_MEMORY_BYTES", 1000)
    filed = KeptMaps.of(cut.front, inputs)
    rows = torch.tensor([5, 0, 70])
    assert whole.exact
    assert not half.exact
    assert half.bytes * 2 == whole.bytes
    torch.testing.assert_close(half.take(rows), whole.take(rows), rtol=1e-3, atol=1e-3)
    assert filed._file is not None
    assert torch.equal(filed.take(rows), half.take(rows))
    assert filed.take(rows).dtype == torch.float32


@pytest.mark.parametrize("name", ["convnet", "mlp"])
def test_only_samples_that_came_are_computed(editors: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = editors[name]
    data, gone = editor.data, editor.data.split("train").ids[3:6]
    old = data.split("train").select([0, 1])
    more = ecbm.Dataset(["p", "q"], old.inputs, old.concepts, old.labels, data.concept_names, data.class_names)
    edit = ecbm.Edit(remove_samples=gone, add_samples=more)
    alignment = align(editor.model, data, edit, edit.apply_to(data))
    editor.state.maps.of(cut_of(editor), "train")
    computed: list[int] = []
    plain = KeptMaps.of

    def counted(front: Any, inputs: Any) -> KeptMaps:
        computed.append(len(inputs))
        return plain(front, inputs)

    monkeypatch.setattr(KeptMaps, "of", counted)
    carried = carry(alignment)
    cut = cuts_of(carried.backbone)[0]
    found = editor.state.maps.carried(alignment, cut, "train")
    assert computed == [2]
    assert len(found) == len(alignment.after)
    design = tail_design(cut, found, alignment.after.inputs.shape)
    expected = stages.feature_design(carried.backbone, alignment.after.inputs)
    torch.testing.assert_close(design, expected, rtol=1e-4, atol=1e-5)


def test_maps_are_taken_along_while_samples_and_front_are_the_same(editors: Any) -> None:
    editor = editors["convnet"]
    front = cut_of(editor)
    editor.state.maps.of(front, "train")
    train, name = BIRDS.split("train"), BIRDS.concept_names[0]
    flips = ecbm.Edit(
        correct_concepts=[(i, name, 1 - float(train.concepts[train.row(i), 0])) for i in train.ids[:3]]
    )
    following = editor.follow(editor.apply(flips, "exact"))
    assert following.state.maps.kept[front.name, "train"] is editor.state.maps.kept[front.name, "train"]
    removed = editor.follow(editor.apply(ecbm.Edit(remove_samples=train.ids[:2]), "exact"))
    assert (front.name, "train") not in removed.state.maps.kept
    moved = copy.deepcopy(following.model)
    with torch.no_grad():
        next(moved.backbone.parameters()).add_(0.1)
    other = ecbm.Editor(moved, following.data)
    other.state.maps.follow(editor.state.maps)
    assert not other.state.maps.kept


def test_stored_maps_are_restored_and_those_of_another_shape_refused(editors: Any) -> None:
    editor = editors["convnet"]
    cut = cut_of(editor)
    known = editor.state.maps.of(cut, "train")
    stored = editor.state.stored()
    other = ecbm.Editor(editor.model, BIRDS)
    other.state.restore(copy.deepcopy(stored))
    rows = torch.tensor([1, 4])
    assert torch.equal(other.state.maps.of(cut, "train").take(rows), known.take(rows))
    assert "maps" not in other.state.seconds
    wrong = {"maps": {key: value[:-1] for key, value in stored["maps"].items()}}
    with pytest.raises(ValueError, match="has shape"):
        ecbm.Editor(editor.model, BIRDS).state.restore(wrong)


def test_too_large_maps_are_not_stored(editors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = editors["convnet"]
    editor.state.maps.of(cut_of(editor), "train")
    assert "maps" in editor.state.stored()
    monkeypatch.setattr(kept, "_STORED_BYTES", 1000)
    assert "maps" not in editor.state.stored()
