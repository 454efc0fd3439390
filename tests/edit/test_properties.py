"""What every edit must satisfy, whatever the data: identity, inverse, order, removal, purity."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from edit_kit import (
    LEVELS,
    METHODS,
    column_of,
    edit_of,
    flat,
    known,
    new_samples,
    parameters,
    pos_weight,
    relative_gap,
    spare,
    standing_values,
)
from torch import nn

import ecbm
from kit import same_bytes, tabular

DATA = tabular(90, missing=0.1)


def linear(regime: str = "sequential", bottleneck: str = "logits", weights: str = "none") -> ecbm.Recipe:
    return ecbm.Recipe(backbone="linear", regime=regime, bottleneck=bottleneck, pos_weight=pos_weight(weights))


@pytest.fixture(scope="module")
def editor() -> ecbm.Editor:
    return ecbm.Editor(ecbm.train(DATA, linear(weights="balanced")), DATA)


@pytest.fixture(scope="module")
def deep() -> ecbm.Editor:
    recipe = ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=3)
    return ecbm.Editor(ecbm.train(DATA, recipe), DATA)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", ["editor", "deep"])
def test_the_empty_edit_is_the_identity_bit_for_bit(
    which: str, method: str, request: pytest.FixtureRequest
) -> None:
    one: ecbm.Editor = request.getfixturevalue(which)
    for edit in (ecbm.Edit(), [], [ecbm.Edit(), ecbm.Edit()]):
        result = one.apply(edit, method)
        assert result.model.fingerprint == one.model.fingerprint
        assert same_bytes(result.model, one.model)
        assert result.data == one.data
        json.dumps(result.report, allow_nan=False)


def test_an_edit_and_its_inverse_in_one_step_are_nothing(editor: ecbm.Editor) -> None:
    edit = edit_of("mix", DATA)
    result = editor.apply([edit, edit.inverse(DATA)], "exact")
    assert result.model.fingerprint == editor.model.fingerprint


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
@pytest.mark.parametrize("regime", ["sequential", "independent"])
@pytest.mark.parametrize("level", LEVELS)
def test_an_edit_and_then_its_inverse_return(level: str, regime: str, bottleneck: str) -> None:
    model = ecbm.train(DATA, linear(regime, bottleneck, "balanced"))
    edit = edit_of(level, DATA)
    there = ecbm.Editor(model, DATA).apply(edit, "exact")
    back = ecbm.Editor(there.model, there.data).apply(edit.inverse(DATA), "exact")
    assert relative_gap(back.model, model) < 1e-8
    before = standing_values(model)
    for name, value in standing_values(back.model).items():
        torch.testing.assert_close(value, before[name], rtol=1e-8, atol=1e-8, msg=name)


def test_the_order_of_parts_does_not_matter(editor: ecbm.Editor) -> None:
    gone = spare(DATA, 3)
    parts = [
        ecbm.Edit(correct_concepts=[(i, "round", 1 - v) for i, v in known(DATA, 9, 4) if i not in gone]),
        ecbm.Edit(remove_samples=gone),
        ecbm.Edit(remove_concepts=["size=small"]),
        ecbm.Edit(add_concepts={"fresh": {i: v for i, v in column_of(DATA).items() if i not in gone}}),
        ecbm.Edit(
            add_samples=new_samples(DATA).replace(
                concepts=new_samples(DATA).concepts[:, [0, 2, 3, 4]],
                concept_names=["size=big", "color::red", "color::blue", "round"],
            )
        ),
    ]
    together = editor.apply(
        ecbm.Edit(
            correct_concepts=parts[0].correct_concepts,
            remove_samples=gone,
            remove_concepts=["size=small"],
            add_concepts=parts[3].add_concepts,
            add_samples=parts[4].add_samples,
        ),
        "exact",
    )
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        now = editor
        for index in order:
            now = now.follow(now.apply(parts[index], "exact"))
        assert relative_gap(now.model, together.model) < 1e-8


@pytest.mark.parametrize("method", METHODS)
def test_a_removed_concept_cannot_influence_anything(method: str) -> None:
    gone = "size=small"
    model = ecbm.train(DATA, linear(weights="mapping"))
    result = ecbm.Editor(model, DATA).apply(ecbm.Edit(remove_concepts=[gone]), method)
    after = result.model
    assert gone not in after.concept_names
    assert gone not in result.data.concept_names
    assert gone not in json.dumps(after.recipe.to_dict())
    assert all(len(v) == 4 for v in (after.low, after.high, after.positive_weights))
    assert after.concept_head.out_features == after.label_head.in_features == 4
    assert all(gone not in members for members in after.groups.values())
    with pytest.raises(ecbm.UnknownNameError):
        after.intervene(DATA.x, {gone: 1.0})
    # Whatever the removed concept was in the old model, the new one is the same.
    other = copy.deepcopy(model)
    row = other.concept_index(gone)
    with torch.no_grad():
        other.concept_head.weight[row] += 7.0
        other.concept_head.bias[row] -= 3.0
    if method in ("exact", "auto", "retrain"):
        again = ecbm.Editor(other, DATA).apply(ecbm.Edit(remove_concepts=[gone]), method).model
        assert relative_gap(again, after) < 1e-8
    x = DATA.split("test").x
    before = after.class_probabilities(x)
    with torch.no_grad():
        model.concept_head.weight[row] += 7.0
    assert torch.equal(after.class_probabilities(x), before)


def test_labels_of_a_removed_concept_leave_no_trace(editor: ecbm.Editor) -> None:
    gone = "round"
    changed = ecbm.Edit(correct_concepts=[(i, gone, 1 - v) for i, v in known(DATA, 20, 4)]).apply_to(DATA)
    other = ecbm.Editor(ecbm.train(changed, linear(weights="balanced")), changed)
    one, two = (e.apply(ecbm.Edit(remove_concepts=[gone]), "exact") for e in (editor, other))
    assert one.data == two.data
    assert relative_gap(one.model, two.model) < 1e-8


def test_removing_and_adding_the_same_sample_is_the_original(editor: ecbm.Editor) -> None:
    gone = spare(DATA, 4)
    kept = DATA.select([DATA.row(i) for i in gone])
    after = editor.apply(ecbm.Edit(remove_samples=gone), "exact")
    back = editor.follow(after).apply(ecbm.Edit(add_samples=kept), "exact")
    assert relative_gap(back.model, editor.model) < 1e-8
    assert relative_gap(after.model, editor.model) > 1e-5
    once = editor.apply([ecbm.Edit(remove_samples=gone), ecbm.Edit(add_samples=kept)], "exact")
    assert once.model.fingerprint == editor.model.fingerprint


@pytest.mark.parametrize("level", ["add concepts", "remove concepts", "correct classes"])
@pytest.mark.parametrize("which", ["editor", "deep"])
def test_other_concepts_heads_stay_bit_for_bit(which: str, level: str, request: pytest.FixtureRequest) -> None:
    one: ecbm.Editor = request.getfixturevalue(which)
    result = one.apply(edit_of(level, DATA), "exact")
    before, after = parameters(one.model), parameters(result.model)
    shared = [name for name in before if name in after and name.startswith("concept ")]
    assert len(shared) >= 4
    for name in shared:
        assert torch.equal(before[name], after[name])


def test_only_the_corrected_concept_moves(editor: ecbm.Editor) -> None:
    edit = ecbm.Edit(correct_concepts=[(i, "round", 1 - v) for i, v in known(DATA, 3, 4)])
    before, after = parameters(editor.model), parameters(editor.apply(edit, "exact").model)
    moved = [n for n in before if n.startswith("concept ") and not torch.equal(before[n], after[n])]
    assert moved == ["concept round"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", ["editor", "deep"])
def test_nothing_is_changed_in_place(which: str, method: str, request: pytest.FixtureRequest) -> None:
    one: ecbm.Editor = request.getfixturevalue(which)
    fresh = ecbm.Editor(one.model, tabular(90, missing=0.1))
    model, data = one.model.fingerprint, fresh.data.fingerprint
    arrays = [fresh.data.x.clone(), fresh.data.concepts.clone(), fresh.data.labels.clone()]
    state = torch.get_rng_state()
    result = fresh.apply(edit_of("mix", DATA), method)
    assert torch.equal(torch.get_rng_state(), state)
    assert one.model.fingerprint == model
    del fresh.data.__dict__["fingerprint"], fresh.data.__dict__["row_digests"]
    assert fresh.data.fingerprint == data
    for before, after in zip(arrays, (fresh.data.x, fresh.data.concepts, fresh.data.labels), strict=True):
        assert torch.equal(before.nan_to_num(-1), after.nan_to_num(-1))
    # Nothing is shared either: changing the result changes no original.
    with torch.no_grad():
        for value in result.model.state_dict().values():
            value.fill_(0.5)
    assert one.model.fingerprint == model


@pytest.mark.parametrize("method", ["auto", "exact", "retrain", "ekfac", "hessian"])
@pytest.mark.parametrize("which", ["editor", "deep"])
def test_no_trace_of_a_removed_sample_in_fitted_statistics(
    which: str, method: str, request: pytest.FixtureRequest
) -> None:
    """Standardisation and positive weights are those of training from scratch without the sample."""
    one: ecbm.Editor = request.getfixturevalue(which)
    result = one.apply(ecbm.Edit(remove_samples=spare(DATA, 3)), method)
    scratch = ecbm.train(result.data, one.model.recipe)
    mine, theirs = dict(result.model.backbone.named_buffers()), dict(scratch.backbone.named_buffers())
    assert mine
    for name in theirs:
        assert torch.equal(mine[name], theirs[name])
    assert torch.equal(result.model.positive_weights, scratch.positive_weights)
    assert any("standardisation" in words for words in result.report["statistics_refitted"])
    if which == "editor":
        assert "positive weights" in result.report["statistics_refitted"]
        if method in ("auto", "exact", "retrain"):
            torch.testing.assert_close(result.model.low, scratch.low, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(result.model.high, scratch.high, rtol=1e-8, atol=1e-8)


def test_a_removed_outlier_leaves_no_trace() -> None:
    """A sample that dominates every statistic is forgotten entirely."""
    far = new_samples(DATA, 2)
    far = ecbm.Dataset(far.ids, 1e3 * far.x, far.concepts, far.labels, far.concept_names, far.class_names)
    dirty = ecbm.Edit(add_samples=far).apply_to(DATA)
    model = ecbm.train(dirty, linear(weights="balanced"))
    result = ecbm.Editor(model, dirty).apply(ecbm.Edit(remove_samples=far.ids), "exact")
    clean = ecbm.train(DATA, linear(weights="balanced"))
    assert result.data == DATA
    assert relative_gap(result.model, clean) < 1e-6
    for name, value in standing_values(clean).items():
        torch.testing.assert_close(standing_values(result.model)[name], value, rtol=1e-7, atol=1e-7)


def test_edits_follow_edits(editor: ecbm.Editor) -> None:
    """Ten rounds of periodic editing end where one retraining does."""
    now = editor
    names = spare(DATA, 20)
    for turn in range(5):
        flips = known(now.data, 40, 4)[20 + turn : 22 + turn]
        edit = ecbm.Edit(
            remove_samples=names[2 * turn : 2 * turn + 2],
            correct_concepts=[(i, "round", 1 - v) for i, v in flips if i not in names],
        )
        now = now.follow(now.apply(edit, "exact"))
    assert relative_gap(now.model, ecbm.train(now.data, editor.model.recipe)) < 1e-8


def test_validation_samples_may_be_edited_too(editor: ecbm.Editor) -> None:
    """They are not trained on: the heads stay, the data changes."""
    name = DATA.split("val").ids[0]
    result = editor.apply(ecbm.Edit(correct_labels=[(name, "crow")], remove_samples=[DATA.split("test").ids[0]]))
    assert torch.allclose(flat(result.model), flat(editor.model), rtol=0, atol=1e-9)
    assert result.model.provenance.data_fingerprint == result.data.fingerprint
    assert ecbm.Editor(result.model, result.data)


def test_a_custom_backbone_with_dropout_edits_in_evaluation_mode() -> None:
    backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5))
    model = ecbm.train(DATA, ecbm.Recipe(backbone=backbone, epochs=2))
    one = ecbm.Editor(model, DATA)
    edit = edit_of("correct concepts", DATA)
    for method in METHODS:
        first, second = one.apply(edit, method).model, one.apply(edit, method).model
        if method != "auto":
            assert first.fingerprint == second.fingerprint
        assert not first.training


@pytest.mark.parametrize("method", ["ekfac", "hessian"])
@pytest.mark.parametrize("which", ["editor", "deep"])
def test_exact_is_exact_after_an_influence_step(which: str, method: str, request: pytest.FixtureRequest) -> None:
    """The step leaves every concept off its optimum; the next exact edit must not trust the untouched ones."""
    one: ecbm.Editor = request.getfixturevalue(which)
    rough = one.apply(ecbm.Edit(remove_samples=spare(DATA, 3)), method)
    result = one.follow(rough).apply(
        ecbm.Edit(correct_concepts=[(i, "round", 0.5) for i in DATA.ids[-20:-19]]), "exact"
    )
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0
    assert result.report["residual"]["concept_head"] < 1e-9
    if which == "editor":
        assert relative_gap(result.model, ecbm.train(result.data, one.model.recipe)) < 1e-6
