"""Closure, recovery, and the control that fine-tunes for the same work."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm.edit.alignment import align
from ecbm.edit.carry import carry
from ecbm.edit.heads import solve_concepts, solve_label
from ecbm.train import stages
from ecbm.verify.fidelity import (
    affordable_steps,
    closure,
    fine_tuned,
    mean_interval,
    more_training,
    recovery,
    recovery_interval,
)
from kit import tabular


def test_closure_is_0_for_nothing_and_1_for_retraining():
    original, retrained = torch.tensor([[0.2, 0.9]]), torch.tensor([[0.6, 0.6]])
    assert closure(original, original, retrained) == 0
    assert closure(retrained, original, retrained) == 1
    assert closure((original + retrained) / 2, original, retrained) == pytest.approx(0.5)
    assert closure(2 * original - retrained, original, retrained) == pytest.approx(-1)
    assert closure(original, retrained, retrained) is None


@pytest.mark.parametrize(
    ("edited", "original", "retrained", "spread", "expected"),
    [
        (0.95, 0.9, 1.0, 0.0, 0.5),
        (0.85, 0.9, 1.0, 0.01, -0.5),
        (0.95, 0.9, 0.91, 0.01, None),  # within the noise of seeds
        (0.95, 0.9, 0.8, 0.0, None),  # retraining gains nothing, so there is nothing to recover
        (0.95, 0.9, 0.9, 0.0, None),
    ],
)
def test_recovery(edited, original, retrained, spread, expected):
    found = recovery(edited, original, retrained, spread)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.fixture(scope="module", params=["linear", "mlp"])
def case(request):
    data = tabular(120, 6)
    options = {"epochs": 3, "hidden": (8,)} if request.param == "mlp" else {}
    model = ecbm.train(data, ecbm.Recipe(backbone=request.param, **options))
    edit = ecbm.Edit(correct_concepts=[(i, data.concept_names[0], 1.0) for i in data.split("train").ids[:30]])
    return ecbm.Editor(model, data), align(model, data, edit, edit.apply_to(data))


def test_the_control_moves_the_model_towards_the_edited_data(case):
    editor, alignment = case
    linear = editor.model.recipe.is_linear
    untouched = {name: value.clone() for name, value in editor.model.state_dict().items()}
    kinds = (False,) if linear else (False, True)
    controls = [fine_tuned(editor, alignment, 200, 1e-2, exact_heads=exact_heads) for exact_heads in kinds]
    x = editor.data.split("train").x[:30]
    before = editor.model.concept_probabilities(x)[:, 0].mean()
    for model in controls:
        assert model is not None
        assert model.concept_probabilities(x)[:, 0].mean() > before
    for name, value in editor.model.state_dict().items():
        assert torch.equal(value, untouched[name])


def test_the_control_is_repeatable(case):
    editor, alignment = case
    one, other = (fine_tuned(editor, alignment, 20, 1e-2) for _ in range(2))
    assert one.fingerprint == other.fingerprint


def test_closing_solves_are_part_of_its_work(case):
    editor, alignment = case
    assert fine_tuned(editor, alignment, 0, 1e-2) is None
    if editor.model.recipe.is_linear:
        return
    steps = [affordable_steps(alignment, budget, exact_heads=True) for budget in (1e-9, 0.5, 1.0)]
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[-1] > 0
    assert affordable_steps(alignment, 1.0, exact_heads=False) >= steps[-1]


def test_intervals_are_students() -> None:
    """Five standard normal values: the mean's interval covers 0 in 95 of 100 cases."""
    torch.manual_seed(0)
    covered = 0
    for _ in range(400):
        found = mean_interval(torch.randn(5).tolist())
        covered += abs(found.mean) <= found.half
    assert 0.92 < covered / 400 < 0.98
    assert mean_interval([3.0]).half is None


def test_a_recovery_is_a_ratio_of_sums_with_its_interval() -> None:
    found = recovery_interval([0.05, 0.1], [0.1, 0.2])
    assert (found.mean, found.half) == (pytest.approx(0.5), pytest.approx(0.0, abs=1e-12))
    assert recovery_interval([0.1, 0.1], [0.1, 0.3]).mean == pytest.approx(0.5)
    assert recovery_interval([0.05, 0.12], [0.1, 0.2]).half > 0.1
    assert recovery_interval([0.05], [0.1]).half is None


@pytest.fixture(scope="module")
def deep():
    data = tabular(160, 6)
    recipe = ecbm.Recipe(backbone="mlp", epochs=10, hidden=(16, 16), batch_size=16, patience=None)
    return ecbm.Editor(ecbm.train(data, recipe), data)


def test_more_training_moves_the_backbone_by_the_old_labels_and_the_heads_by_the_new(deep) -> None:
    data = deep.data
    train = data.split("train")
    edits = [
        ecbm.Edit(correct_concepts=[(i, data.concept_names[0], value) for i in train.ids[:40]])
        for value in (0.0, 1.0)
    ]
    models = []
    for edit in edits:
        alignment = align(deep.model, data, edit, edit.apply_to(data))
        model = more_training(deep, alignment, 0.9)
        assert model is not None
        design = stages.feature_design(model.backbone, alignment.after.inputs)
        start = carry(alignment)
        start.backbone = model.backbone
        solved = solve_concepts(start, alignment, design, features_moved=True)
        wanted = solve_label(solved.model, alignment, solved.logits, None).model
        assert torch.allclose(model.concept_head.weight, wanted.concept_head.weight, atol=1e-6)
        models.append(model)
    one, other = (model.backbone.state_dict() for model in models)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(one[name], value) for name, value in deep.model.backbone.state_dict().items())
    assert not torch.equal(models[0].concept_head.weight, models[1].concept_head.weight)
    assert more_training(deep, alignment, 1e-6) is None


def test_climbing_the_loss_of_removed_samples_raises_it(deep) -> None:
    data = deep.data
    gone = data.split("train").ids[:12]
    edit = ecbm.Edit(remove_samples=gone)
    alignment = align(deep.model, data, edit, edit.apply_to(data))
    removed = data.select([data.row(name) for name in gone])

    def error(model: ecbm.ConceptBottleneck) -> float:
        return float((model.concept_probabilities(removed.x) - removed.concepts).abs().nanmean())

    plain, climbed = (fine_tuned(deep, alignment, 60, 3e-3, ascent=share) for share in (0.0, 0.3))
    assert plain is not None
    assert climbed is not None
    assert error(climbed) > error(plain) + 0.02
