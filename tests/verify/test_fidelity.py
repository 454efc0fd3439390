"""Closure, recovery, and the control that fine-tunes for the same work."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm.edit.alignment import align
from ecbm.verify.fidelity import affordable_steps, closure, fine_tuned, recovery
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
