"""Edits applied on edits: curvature is taken over until stale, and many small edits end where one large does."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

import ecbm
from ecbm.edit import state


def flips(data: ecbm.Dataset, rows: range, concept: int = 0) -> ecbm.Edit:
    train = data.split("train")
    name = data.concept_names[concept]
    return ecbm.Edit(correct_concepts=[(train.ids[r], name, 1 - float(train.concepts[r, concept])) for r in rows])


@pytest.fixture(scope="module")
def data() -> ecbm.Dataset:
    return ecbm.datasets.breast_cancer()


@pytest.fixture(scope="module")
def deep(data: ecbm.Dataset) -> ecbm.ConceptBottleneck:
    return ecbm.train(data, ecbm.Recipe(backbone="mlp", hidden=(16,), epochs=4))


def test_ten_exact_rounds_end_where_one_edit_does(data):
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor = ecbm.Editor(model, data)
    whole = [flips(data, range(4 * r, 4 * r + 4)) for r in range(10)]
    at_once = editor.apply(whole, "exact")
    for edit in whole:
        editor = editor.follow(editor.apply(edit, "exact"))
    assert editor.data == at_once.data
    difference = editor.model.concept_head.weight - at_once.model.concept_head.weight
    assert float(difference.detach().abs().max()) < 1e-9


def test_curvature_is_taken_over_after_a_small_edit_and_its_staleness_is_reported(data, deep):
    editor = ecbm.Editor(deep, data)
    first = editor.apply(flips(data, range(1)), "ekfac", damping=10.0, guarded=False)
    following = editor.follow(first)
    second = following.apply(flips(first.data, range(1, 2)), "ekfac", damping=10.0, guarded=False)
    staleness = second.report["settings"]["curvature_staleness"]["true"]
    assert 0 < staleness < state.STALENESS_LIMIT
    assert following.state.concept_curvature("true") is editor.state.concept_curvature("true")


def test_curvature_is_fitted_again_once_it_is_stale(data, deep, monkeypatch):
    monkeypatch.setattr(state, "STALENESS_LIMIT", 0.0)
    editor = ecbm.Editor(deep, data)
    following = editor.follow(editor.apply(flips(data, range(1)), "ekfac", damping=10.0, guarded=False))
    assert following.state.concept_curvature("true") is not editor.state.concept_curvature("true")


def test_another_set_of_concepts_never_takes_over_curvature(data, deep):
    editor = ecbm.Editor(deep, data)
    editor.state.concept_curvature("true")
    result = editor.apply(ecbm.Edit(remove_concepts=[data.concept_names[0]]), "exact")
    fresh = editor.follow(result).state.concept_curvature("true")
    assert fresh is not editor.state.concept_curvature("true")
    assert torch.isfinite(torch.tensor(list(fresh.mean_eigenvalues().values()))).all()


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_a_chain_of_edits_keeps_nothing_of_the_states_before(data, backbone):
    options = {"epochs": 2, "hidden": (16,)} if backbone == "mlp" else {}
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone=backbone, **options)), data)
    first = weakref.ref(editor.state)
    for turn in range(3):
        edit = ecbm.Edit(remove_samples=[editor.data.split("train").ids[turn]])
        editor = editor.follow(editor.apply(edit, "ekfac", damping=10.0, guarded=False))
        editor.state.concept_curvature("true")
    gc.collect()
    assert first() is None


def test_what_is_stored_is_restored_to_the_bit(data):
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor, other = ecbm.Editor(model, data), ecbm.Editor(model, data)
    column = {i: float(n % 2) for n, i in enumerate(data.split("train").ids)}
    edits = [
        flips(data, range(3)),
        ecbm.Edit(remove_concepts=[data.concept_names[2]]),
        ecbm.Edit(add_concepts={"fresh": column}),
        ecbm.Edit(remove_samples=data.split("train").ids[4:7]),
    ]
    results = [editor.apply(edit, "exact") for edit in edits]
    stored = editor.state.stored()
    assert {"heads", "preconditioner", "blocks"} <= stored.keys()
    other.state.restore(copy.deepcopy(stored))
    for edit, result in zip(edits, results, strict=True):
        assert other.apply(edit, "exact").model.fingerprint == result.model.fingerprint
    assert not any(name.startswith("fit") for name in other.apply(edits[0], "exact").report["seconds"])


def test_a_followed_state_is_that_of_the_edited_model(data):
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor = ecbm.Editor(model, data)
    following = editor.follow(editor.apply(flips(data, range(5)), "exact"))
    fresh = ecbm.Editor(following.model, following.data)
    kept, computed = following.state.frozen, fresh.state.frozen
    torch.testing.assert_close(kept.logits, computed.logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(kept.sums, computed.sums, rtol=0, atol=1e-10)
    torch.testing.assert_close(kept.diagonal, computed.diagonal)
    edit = flips(following.data, range(7, 12), concept=1)
    one, other = following.apply(edit, "exact"), fresh.apply(edit, "exact")
    gap = (one.model.concept_head.weight - other.model.concept_head.weight).abs().max()
    assert float(gap.detach()) < 1e-10


@pytest.mark.parametrize("name", ["heads", "preconditioner", "blocks"])
def test_facts_of_another_shape_are_refused(data, name):
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor, other = ecbm.Editor(model, data), ecbm.Editor(model, data)
    editor.apply(flips(data, range(3)), "exact")
    stored = editor.state.stored()
    stored[name] = {key: value[..., :-1] if value.ndim else value for key, value in stored[name].items()}
    with pytest.raises(ValueError, match="has shape"):
        other.state.restore(stored)
