"""Influence steps: the sign and normalisation of every term, against retraining and dense references."""

from __future__ import annotations

import pytest
import torch
from edit_kit import LEVELS, cosine, design_of, edit_of, flat, pos_weight, terms_of
from torch import Tensor
from torch.func import grad, hessian

import ecbm
from ecbm.edit.alignment import align
from ecbm.edit.carry import carry
from ecbm.train import stages
from ecbm.train.heads.objectives import with_ones
from ecbm.train.model import ConceptBottleneck
from kit import concept_objective, label_objective, tabular

# Enough samples that one of them is a small edit.
DATA = tabular(300, 4, missing=0.05)
_EDITORS: dict[tuple[str, ...], ecbm.Editor] = {}


def editor_for(bottleneck: str = "logits", regime: str = "sequential", weights: str = "none") -> ecbm.Editor:
    key = (bottleneck, regime, weights)
    if key not in _EDITORS:
        recipe = ecbm.Recipe(
            backbone="linear", regime=regime, bottleneck=bottleneck, pos_weight=pos_weight(weights)
        )
        _EDITORS[key] = ecbm.Editor(ecbm.train(DATA, recipe), DATA)
    return _EDITORS[key]


def unedited(editor: ecbm.Editor, edit: ecbm.Edit) -> ConceptBottleneck:
    """The model before the edit, under the new names and the new standardisation."""
    return carry(align(editor.model, DATA, edit, edit.apply_to(DATA)))


@pytest.mark.parametrize("weights", ["none", "balanced"])
@pytest.mark.parametrize("regime", ["sequential", "independent"])
@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_hessian_step_points_where_retraining_goes(
    level: str, bottleneck: str, regime: str, weights: str
) -> None:
    editor = editor_for(bottleneck, regime, weights)
    edit = edit_of(level, DATA, 1)
    step, true = editor.apply(edit, "hessian").model, editor.apply(edit, "retrain").model
    start = unedited(editor, edit)
    for head in ("concept", "class"):
        if head == "class" and edit.remove_concepts:
            continue  # a whole input column is no small edit of the label head
        moved, wanted = flat(step, head) - flat(start, head), flat(true, head) - flat(start, head)
        if float(wanted.norm()) < 1e-8:
            assert float(moved.norm()) < 1e-8
            continue
        assert cosine(moved, wanted) > 0.99
        assert 0.8 < float(moved.norm() / wanted.norm()) < 1.25


@pytest.mark.parametrize("level", LEVELS)
def test_an_ekfac_step_points_where_retraining_goes(level: str) -> None:
    """Concepts share one basis of features, so EK-FAC is close there; classes are coupled, so it is less so."""
    editor = editor_for()
    edit = edit_of(level, DATA, 1)
    step = editor.apply(edit, "ekfac", fisher="exact").model
    true, start = editor.apply(edit, "exact").model, unedited(editor, edit)
    moved, wanted = flat(step, "concept") - flat(start, "concept"), flat(true, "concept") - flat(start, "concept")
    if float(wanted.norm()) < 1e-8:
        assert float(moved.norm()) < 1e-8
    else:
        assert cosine(moved, wanted) > 0.98
    classes, toward = flat(step, "class") - flat(start, "class"), flat(true, "class") - flat(start, "class")
    assert cosine(classes, toward) > 0.5


def test_both_directions_are_opposite() -> None:
    """A correction and its inverse, a removal and an addition: steps of opposite sign and the same size."""
    editor = editor_for()
    for level in ("correct concepts", "remove samples", "add samples"):
        edit = edit_of(level, DATA, 1)
        there = editor.apply(edit, "exact")
        back = ecbm.Editor(there.model, there.data).apply(edit.inverse(DATA), "hessian").model
        lost = flat(back, "concept") - flat(editor.model, "concept")
        travelled = flat(there.model, "concept") - flat(editor.model, "concept")
        assert float(lost.norm()) < 0.1 * float(travelled.norm())


def reference_concept_head(
    editor: ecbm.Editor, edit: ecbm.Edit, damping: float, full: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """θ̃ − (H + δ)⁻¹(∇J'(θ̃) − ∇J(θ)), concept by concept, every piece by autograd in float64."""
    model, edited = editor.model, edit.apply_to(DATA)
    alpha, start = model.recipe.concept_regularisation, unedited(editor, edit)
    old_design, new_design = design_of(model, DATA), design_of(start, edited)
    # The Hessian is that of old terms in old coordinates; a new concept has only new terms.
    fresh_design = design_of(model, edited)
    old_targets, old_weights = terms_of(model, DATA)
    new_targets, new_weights = terms_of(start, edited)
    rows = []
    for column, name in enumerate(start.concept_names):

        def after(w: Tensor, j: int = column) -> Tensor:
            return concept_objective(new_design, new_targets[:, [j]], new_weights[:, [j]], w[None], alpha)[0][0]

        begin = torch.cat([start.concept_head.weight[column], start.concept_head.bias[column, None]]).detach()
        change = grad(after)(begin)
        if edit.add_concepts:

            def curved(w: Tensor, j: int = column) -> Tensor:
                return concept_objective(fresh_design, new_targets[:, [j]], new_weights[:, [j]], w[None], alpha)[0][
                    0
                ]
        else:

            def curved(w: Tensor, j: int = model.concept_index(name)) -> Tensor:
                return concept_objective(old_design, old_targets[:, [j]], old_weights[:, [j]], w[None], alpha)[0][0]

        here = torch.zeros_like(begin)
        if name in model.concept_names:
            j = model.concept_index(name)
            here = torch.cat([model.concept_head.weight[j], model.concept_head.bias[j, None]]).detach()
            if not full:

                def before(w: Tensor, j: int = j) -> Tensor:
                    return concept_objective(old_design, old_targets[:, [j]], old_weights[:, [j]], w[None], alpha)[
                        0
                    ][0]

                change = change - grad(before)(here)
        matrix = hessian(curved)(here) + damping * torch.eye(len(here)).double()
        rows.append(begin - torch.linalg.solve(matrix, change))
    return torch.stack(rows), start.concept_names


@pytest.mark.parametrize("weights", ["none", "balanced", "mapping"])
@pytest.mark.parametrize(("damping", "form"), [(0.0, "difference"), (0.05, "difference"), (0.02, "full")])
@pytest.mark.parametrize("level", LEVELS)
def test_the_hessian_step_is_the_dense_formula(level: str, damping: float, form: str, weights: str) -> None:
    editor = editor_for("probabilities", "sequential", weights)
    edit = edit_of(level, DATA)
    result = editor.apply(edit, "hessian", damping=damping, relative=False, gradient=form, guarded=False)
    model = result.model
    wanted, names = reference_concept_head(editor, edit, damping, form == "full")
    assert names == model.concept_names
    mine = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach()
    torch.testing.assert_close(mine, wanted, rtol=1e-7, atol=1e-9)

    # The label head: one Newton step on the inputs that the edited concept head gives.
    train, recipe = result.data.split("train"), model.recipe
    logits = design_of(model, result.data) @ wanted.T
    read = with_ones(stages.label_inputs(recipe, logits, train.concepts, model.low, model.high))
    start = unedited(editor, edit).label_head
    begin = torch.cat([start.weight, start.bias[:, None]], 1).detach()
    ones = torch.ones(len(read)).double()

    def objective(flat_parameters: Tensor) -> Tensor:
        head = flat_parameters.view_as(begin)
        return label_objective(read, train.labels, ones, head, recipe.label_regularisation)[0]

    matrix = hessian(objective)(begin.flatten()) + damping * torch.eye(begin.numel()).double()
    step = torch.linalg.solve(matrix, grad(objective)(begin.flatten()))
    label = torch.cat([model.label_head.weight, model.label_head.bias[:, None]], 1).detach()
    torch.testing.assert_close(label, begin - step.view_as(begin), rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_give_what_the_dense_solve_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    editor = editor_for()
    edit = edit_of("mix", DATA)
    dense = editor.apply(edit, "hessian")
    for place in ("influence", "label_step", "solve"):
        monkeypatch.setattr(f"ecbm.edit.methods.{place}.DENSE", 0)
    iterative = editor.apply(edit, "hessian")
    assert dense.report["settings"]["solver"] == "dense"
    assert iterative.report["settings"]["solver"] == "conjugate gradients"
    gap = (flat(dense.model) - flat(iterative.model)).norm() / (flat(dense.model) - 0).norm()
    assert float(gap) < 1e-3


def test_rows_without_any_concept_label_count_in_the_mean() -> None:
    blank = DATA.concepts.clone()
    blank[::3] = torch.nan
    data = DATA.replace(concepts=blank)
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone="linear")), data)
    edit = edit_of("correct concepts", data, 1)
    for method, options in (("hessian", {}), ("ekfac", {"fisher": "exact"})):
        step = editor.apply(edit, method, **options).model
        moved = flat(step, "concept") - flat(editor.model, "concept")
        wanted = flat(editor.apply(edit, "exact").model, "concept") - flat(editor.model, "concept")
        assert 0.8 < float(moved.norm() / wanted.norm()) < 1.25


@pytest.mark.parametrize("method", ["ekfac", "hessian"])
@pytest.mark.parametrize("level", LEVELS)
def test_at_an_optimum_both_forms_of_the_gradient_agree(level: str, method: str) -> None:
    editor = editor_for("logits", "sequential", "balanced")
    edit = edit_of(level, DATA)
    # "exact": drawn targets would differ, since draws follow the bits of what the label head reads.
    one, other = (
        editor.apply(edit, method, gradient=form, fisher="exact").model for form in ("difference", "full")
    )
    torch.testing.assert_close(flat(one), flat(other), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("fisher", ["true", "empirical", "exact"])
@pytest.mark.parametrize("level", LEVELS)
def test_every_fisher_serves_every_level(level: str, fisher: str) -> None:
    editor = editor_for()
    report = editor.apply(edit_of(level, DATA, 1), "ekfac", fisher=fisher).report  # type: ignore[arg-type]
    assert report["settings"]["fisher"] == fisher
    assert report["objective"]["after"]["concepts"] < 2 * report["objective"]["before"]["concepts"]


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
@pytest.mark.parametrize("method", ["ekfac", "hessian"])
@pytest.mark.parametrize("level", LEVELS)
def test_joint_models_take_influence_steps(level: str, method: str, bottleneck: str) -> None:
    editor = editor_for(bottleneck, "joint")
    result = editor.apply(edit_of(level, DATA, 1), method)
    assert bool(torch.isfinite(flat(result.model)).all())
    assert "joint" in result.report["certificate"]["covers"]


def test_more_damping_is_a_shorter_step() -> None:
    editor = editor_for()
    edit = edit_of("correct concepts", DATA)
    for method in ("ekfac", "hessian"):
        lengths = []
        for damping in (0.0, 0.1, 1.0, 10.0):
            model = editor.apply(edit, method, damping=damping).model
            lengths.append(float((flat(model, "concept") - flat(editor.model, "concept")).norm()))
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] > 2 * lengths[-1]


def test_a_step_that_makes_matters_worse_is_kept_and_said() -> None:
    editor = editor_for("probabilities")
    report = editor.apply(ecbm.Edit(remove_concepts=["round"]), "hessian").report
    before, after = report["objective"]["before"]["labels"], report["objective"]["after"]["labels"]
    assert ("warning" in report) == (after > before * (1 + 1e-9))
