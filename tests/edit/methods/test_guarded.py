"""The guarded influence step: its length and damping, and that nothing worse than no step is returned."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from edit_kit import LEVELS, edit_of, flat
from torch import nn

import ecbm
from ecbm.curvature import ConceptLoss, ExactOperator
from ecbm.edit.alignment import align
from ecbm.edit.carry import carry
from ecbm.edit.gradients import dot
from ecbm.edit.methods import guarded
from ecbm.edit.methods.stage import DeepStage
from ecbm.train.heads.label import newton_step
from ecbm.train.heads.objectives import LabelObjective
from kit import tabular

DATA = tabular(160, 4, missing=0.05)
_EDITORS: dict[str, ecbm.Editor] = {}


def editor_for(backbone: str = "mlp") -> ecbm.Editor:
    if backbone not in _EDITORS:
        recipe = ecbm.Recipe(backbone=backbone, hidden=(32, 32), epochs=15, concept_l2=1e-5, learning_rate=0.03)
        if backbone == "linear":
            recipe = ecbm.Recipe(backbone="linear")
        _EDITORS[backbone] = ecbm.Editor(ecbm.train(DATA, recipe), DATA)
    return _EDITORS[backbone]


def stage_of(edit: ecbm.Edit) -> DeepStage:
    editor = editor_for()
    return DeepStage(align(editor.model, DATA, edit, edit.apply_to(DATA)), editor.state)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_a_guarded_step_never_makes_the_edited_objective_worse(backbone: str, level: str) -> None:
    objective = editor_for(backbone).apply(edit_of(level, DATA, 9), "ekfac").report["objective"]
    assert objective["after"]["concepts"] <= objective["before"]["concepts"] * (1 + 1e-12)


def test_where_the_papers_step_is_far_too_long_the_guarded_one_helps() -> None:
    editor, edit = editor_for(), edit_of("correct concepts", DATA, 9)
    literal = editor.apply(edit, "ekfac", damping=0.1, guarded=False).report
    mended = editor.apply(edit, "ekfac").report
    before = mended["objective"]["before"]["concepts"]
    assert literal["objective"]["after"]["concepts"] > 2 * before
    assert "got worse" in literal["warning"]
    assert mended["objective"]["after"]["concepts"] < 0.99 * before
    assert "warning" not in mended
    assert 0 < mended["settings"]["length"] < 1


def test_the_damping_is_that_of_the_least_objective_looked_at() -> None:
    settings = editor_for().apply(edit_of("correct concepts", DATA, 9), "ekfac").report["settings"]
    looked_at = settings["looked_at"]
    assert [one["damping"] for one in looked_at] == list(guarded.DEEP_DAMPINGS)
    assert settings["damping"] == min(looked_at, key=lambda one: one["objective"])["damping"]


def test_a_given_damping_is_kept_and_only_the_length_is_chosen() -> None:
    settings = editor_for().apply(edit_of("correct concepts", DATA, 9), "ekfac", damping=3.0).report["settings"]
    assert settings["damping"] == 3.0
    assert [one["damping"] for one in settings["looked_at"]] == [3.0]


def test_the_length_is_the_least_point_of_the_quadratic_along_the_step() -> None:
    """Against the dense Gauss–Newton matrix of all edited samples: they are fewer than a sample here."""
    stage = stage_of(edit_of("correct concepts", DATA, 9))
    change = stage.change("difference")
    step = {name: torch.randn_like(value) for name, value in change.items()}
    terms, l2 = stage.alignment.terms_after, stage.state.concept_l2
    loss = ConceptLoss(terms.targets, terms.weights)
    matrix = ExactOperator(stage.part, stage.alignment.after.inputs, loss, l2=l2, parameters=stage.part.trained)
    flat_step = torch.cat([step[name].flatten() for name in matrix.names]).double()
    bend = flat_step @ matrix.dense().double() @ flat_step
    assert stage.length(step, change) == pytest.approx(dot(change, step) / float(bend), rel=1e-2)


def test_the_objective_of_the_sample_is_that_of_the_moved_network() -> None:
    stage = stage_of(edit_of("remove samples", DATA, 3))
    change = stage.change("difference")
    moved = copy.deepcopy(stage.part)
    with torch.no_grad():
        for name, value in change.items():
            moved.get_parameter(name).sub_(0.7 * value)
    after = stage.alignment.after
    terms = stage.alignment.terms_after
    with torch.no_grad():
        loss = terms.loss(moved.eval()(after.x).float()) / len(after)
    squares = sum(float(p.detach().square().sum()) for p in moved.parameters() if p.requires_grad)
    wanted = float(loss) + 0.5 * stage.state.concept_l2 * squares
    assert stage.sample_objective(change, 0.7) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("level", ["correct concepts", "remove concepts", "add samples"])
def test_where_every_step_goes_uphill_the_predictor_is_left_as_it_is(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor, edit = editor_for(), edit_of(level, DATA, 9)

    def uphill(self: DeepStage, step: Any, change: Any) -> float:
        return 1e3

    monkeypatch.setattr(DeepStage, "length", uphill)
    monkeypatch.setattr(guarded, "_HALVINGS", 1)
    result = editor.apply(edit, "ekfac")
    kept = carry(align(editor.model, DATA, edit, edit.apply_to(DATA)))
    assert "left as it is" in result.report["settings"]["guard"]
    assert torch.equal(flat(result.model, "concept"), flat(kept, "concept"))
    for name, value in kept.backbone.state_dict().items():
        assert torch.equal(result.model.backbone.state_dict()[name], value)


def test_a_frozen_step_that_helps_is_the_papers_own() -> None:
    editor, edit = editor_for("linear"), edit_of("correct concepts", DATA, 2)
    one, other = (editor.apply(edit, "ekfac", guarded=given) for given in (True, False))
    assert torch.equal(flat(one.model, "concept"), flat(other.model, "concept"))
    assert one.report["settings"]["length"] == 1.0


@pytest.mark.parametrize("classes", [2, 5])
def test_the_label_heads_newton_step_is_the_dense_one(classes: int) -> None:
    torch.manual_seed(classes)
    design = torch.cat([torch.randn(80, 4), torch.ones(80, 1)], 1).double()
    labels, l2 = torch.arange(80) % classes, 0.01
    head = torch.randn(classes, 5).double()
    objective = LabelObjective(design, labels, None, l2)

    def value(flat_head: torch.Tensor) -> torch.Tensor:
        parameters = flat_head.view(classes, 5)
        loss = nn.functional.cross_entropy(design @ parameters.T, labels)
        return loss + 0.5 * l2 * parameters.square().sum()

    matrix = torch.func.hessian(value)(head.flatten())
    wanted = torch.linalg.solve(matrix, objective.gradient(design @ head.T, head).flatten()).view(classes, 5)
    step, products = newton_step(design, labels, head, l2, residual=1e-6)
    torch.testing.assert_close(step, wanted, rtol=1e-4, atol=1e-5)
    assert products > 0


def test_a_deep_label_step_divides_by_the_exact_hessian_and_can_be_told_otherwise() -> None:
    editor, edit = editor_for(), edit_of("correct concepts", DATA, 9)
    for asked, used in ((None, "hessian"), ("ekfac", "ekfac"), ("blocks", "blocks"), ("hessian", "hessian")):
        assert editor.apply(edit, "ekfac", label_curvature=asked).report["settings"]["label_curvature"] == used
