"""Edits where the label is a number: levels × directions × methods, against retraining and a dense reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import ecbm
from ecbm.edit.bounds import label_bound
from ecbm.edit.files import read_edit, write_edit
from ecbm.verify import fidelity
from number_kit import edits, label_row, numbered, predicted, ridge
from types_kit import mixed

DATA = numbered()
EDITS = edits(DATA)
IDS = DATA.split("train").ids
LINEAR = ecbm.Recipe(backbone="linear")
RECIPES = {
    "logits": LINEAR,
    "probabilities": LINEAR.replace(bottleneck="probabilities"),
    "independent": LINEAR.replace(regime="independent"),
    "independent probabilities": LINEAR.replace(regime="independent", bottleneck="probabilities"),
    "sparse": LINEAR.replace(label_l1=0.02),
}


@pytest.fixture(scope="module")
def editors() -> dict[str, ecbm.Editor]:
    return {name: ecbm.Editor(ecbm.train(DATA, recipe), DATA) for name, recipe in RECIPES.items()}


def closure(
    result: ecbm.ConceptBottleneck, before: ecbm.ConceptBottleneck, wanted: ecbm.ConceptBottleneck
) -> float:
    return fidelity.closure(*(predicted(model, DATA) for model in (result, before, wanted))) or 0.0


@pytest.mark.parametrize("level", EDITS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", ["exact", "auto"])
def test_an_exact_edit_is_retraining(editors: dict[str, ecbm.Editor], level: str, recipe: str, method: str) -> None:
    editor = editors[recipe]
    result, again = editor.apply(EDITS[level], method), editor.apply(EDITS[level], "retrain")
    assert result.data == again.data
    assert closure(result.model, editor.model, again.model) > 0.9999
    # Mean and scale of the target are those of the edited data.
    assert torch.equal(result.model.target_scaling, again.model.target_scaling)
    certificate = result.report["certificate"]
    val = DATA.split("val")
    apart = torch.tensor(result.model.predict(val)) - torch.tensor(again.model.predict(val))
    bound = certificate["largest_prediction_change"]
    assert bound < 1e-6 * float(result.model.target_scaling[1])
    # The retrained model is itself only solved to a tolerance.
    assert float(apart.abs().max()) <= 2 * bound + 1e-6
    assert "class_predictions_that_could_differ" not in certificate


@pytest.mark.parametrize("level", EDITS)
def test_an_edited_label_head_is_the_dense_ridge_solution(editors: dict[str, ecbm.Editor], level: str) -> None:
    result = editors["logits"].apply(EDITS[level], "exact")
    train = result.data.split("train")
    wanted = ridge(result.model.concept_logits(train), train.labels, result.model.recipe.label_regularisation)
    torch.testing.assert_close(label_row(result.model), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("level", EDITS)
@pytest.mark.parametrize("method", ["ekfac", "hessian"])
@pytest.mark.parametrize("guarded", [True, False])
def test_the_label_step_divides_by_the_ridge_matrix(
    editors: dict[str, ecbm.Editor], level: str, method: str, guarded: bool
) -> None:
    editor = editors["logits"]
    result = editor.apply(EDITS[level], method, guarded=guarded)
    train = result.data.split("train")
    wanted = ridge(result.model.concept_logits(train), train.labels, result.model.recipe.label_regularisation)
    # EK-FAC's logits are off by float32's rounding.
    torch.testing.assert_close(label_row(result.model), wanted, rtol=0, atol=1e-3 if method == "ekfac" else 1e-9)
    assert result.report["settings"]["label_curvature"] == "ridge"
    # What is left is the error of the concepts' step alone.
    again = editor.apply(EDITS[level], "retrain").model
    assert closure(result.model, editor.model, again) > 0


def test_a_correction_of_numbers_alone_is_exact_with_every_method(editors: dict[str, ecbm.Editor]) -> None:
    editor, edit = editors["logits"], EDITS["correct labels"]
    again = editor.apply(edit, "retrain").model
    for method in ("ekfac", "hessian"):
        assert closure(editor.apply(edit, method).model, editor.model, again) > 0.9999, method


@pytest.mark.parametrize("method", ["ekfac", "hessian"])
def test_the_certificate_of_an_influence_step_holds(editors: dict[str, ecbm.Editor], method: str) -> None:
    val = DATA.split("val")
    for recipe in ("logits", "probabilities", "independent", "independent probabilities"):
        for level in ("correct concepts", "remove samples", "mix"):
            result, again = (editors[recipe].apply(EDITS[level], one) for one in (method, "retrain"))
            apart = torch.tensor(result.model.predict(val)) - torch.tensor(again.model.predict(val))
            bound = result.report["certificate"]["largest_prediction_change"]
            assert float(apart.abs().max()) <= bound, (recipe, level)


def test_the_certificate_holds_for_heads_that_somebody_moved(editors: dict[str, ecbm.Editor]) -> None:
    # Removing a validation sample changes no training term: what is reported is the distance of the given heads.
    draw, val = torch.Generator().manual_seed(0), DATA.split("val")
    for size in (1e-6, 1e-3, 1e-1):
        exact, moved = (ecbm.train(DATA, LINEAR) for _ in range(2))
        with torch.no_grad():
            moved.concept_head.weight += size * torch.randn(moved.concept_head.weight.shape, generator=draw)
            moved.label_head.weight += size * torch.randn(moved.label_head.weight.shape, generator=draw)
        unmoved = ecbm.Edit(correct_labels=[(IDS[0], float(DATA.labels[DATA.row(IDS[0])]) + 1e-9)])
        report = ecbm.Editor(moved, DATA).apply(unmoved, "ekfac", guarded=False, damping=1e12).report
        bound = report["certificate"]["largest_prediction_change"]
        kept = ecbm.Editor(moved, DATA).apply(unmoved, "ekfac", guarded=False, damping=1e12).model
        apart = torch.tensor(kept.predict(val)) - torch.tensor(exact.predict(val))
        assert 0 < float(apart.abs().max()) <= bound, size


def test_newton_is_exact_for_a_number_and_the_influence_bound_holds() -> None:
    draw, l2 = torch.Generator().manual_seed(4), 0.01
    read, numbers = torch.randn(60, 4, generator=draw).double(), torch.randn(60, generator=draw).double()
    design, kept = torch.cat([read, torch.ones(60, 1)], 1), slice(6, None)

    def matrix(rows: torch.Tensor) -> torch.Tensor:
        return rows.T @ rows / len(rows) + l2 * torch.eye(5, dtype=torch.float64)

    def optimum(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(matrix(rows), rows.T @ labels / len(rows))

    before, after = optimum(design, numbers), optimum(design[kept], numbers[kept])
    found = label_bound(before[None], (design, numbers), (design[kept], numbers[kept]), l2)
    assert found.newton_to_retrained == 0
    slope = design[kept].T @ (design[kept] @ before - numbers[kept]) / 54 + l2 * before
    influence = before - torch.linalg.solve(matrix(design), slope)
    assert 0 < float((influence - after).norm()) <= found.influence_to_retrained


def test_a_joint_model_of_a_number_is_edited_to_the_nearest_minimum() -> None:
    editor = ecbm.Editor(ecbm.train(DATA, LINEAR.replace(regime="joint")), DATA)
    result, again = (editor.apply(EDITS["correct labels"], method) for method in ("exact", "retrain"))
    assert closure(result.model, editor.model, again.model) > 0.999
    assert "certificate (for the label head): at most" in repr(result)


def test_a_deep_model_of_a_number_is_edited_and_certified_given_its_features() -> None:
    model = ecbm.train(DATA, ecbm.Recipe(backbone="mlp", epochs=3, seed=0))
    for method in ("exact", "auto", "ekfac", "hessian"):
        result = ecbm.Editor(model, DATA).apply(EDITS["mix"], method)
        assert result.report["objective"]["after"]["labels"] <= result.report["objective"]["before"]["labels"]
        assert result.report["drift"]["prediction_largest_change"] > 0
    assert "given the backbone's features" in result.report["certificate"]["covers"]


def test_the_report_speaks_of_the_number_and_its_unit(editors: dict[str, ecbm.Editor]) -> None:
    editor = editors["logits"]
    result = editor.apply(EDITS["correct labels"])
    val = DATA.split("val")
    moved = torch.tensor(result.model.predict(val)) - torch.tensor(editor.model.predict(val))
    drift = result.report["drift"]
    assert drift["prediction_largest_change"] == pytest.approx(float(moved.abs().max()))
    assert drift["prediction_mean_change"] == pytest.approx(float(moved.abs().mean()))
    assert drift["unit"] == "EUR"
    assert result.report["edit"] == "correct 7 labels"
    assert "mean and scale of the target" in result.report["statistics_refitted"]
    assert "predictions moved by at most" in repr(result)
    json.dumps(result.report, allow_nan=False)


def test_the_unedited_objective_is_of_the_same_predictions_in_new_units(
    editors: dict[str, ecbm.Editor],
) -> None:
    editor = editors["logits"]
    result = editor.apply(EDITS["correct labels"])
    labels = result.data.split("train").labels
    old = torch.tensor(editor.model.predict(DATA.split("train")), dtype=torch.float64)
    loss = float((0.5 * (old - labels).square()).mean() / labels.var(correction=0))
    before = result.report["objective"]["before"]["labels"]
    assert loss < before < loss + 0.5 * LINEAR.label_regularisation * 100


def test_edits_follow_one_another_and_are_taken_back(editors: dict[str, ecbm.Editor]) -> None:
    editor = editors["logits"]
    for edit in EDITS.values():
        first = editor.apply(edit)
        back = editor.follow(first).apply(edit.inverse(DATA))
        torch.testing.assert_close(predicted(back.model, DATA), predicted(editor.model, DATA), rtol=1e-7, atol=0)
        assert ecbm.Edit.between(back.data, DATA) == ecbm.Edit()


def test_a_number_that_is_there_already_is_no_change(editors: dict[str, ecbm.Editor]) -> None:
    same = float(DATA.labels[DATA.row(IDS[0])])
    result = editors["logits"].apply(ecbm.Edit(correct_labels=[(IDS[0], same)]))
    assert result.model is editors["logits"].model
    found = ecbm.Edit(correct_labels=[(IDS[0], "12.50"), (IDS[1], np.float64(3.25))]).changes(DATA)
    assert dict(found.edit.correct_labels) == {IDS[0]: "12.5", IDS[1]: "3.25"}
    assert dict(found.before.correct_labels)[IDS[0]] == str(same)


def test_numbers_in_edit_files_and_tables_are_read(tmp_path: Path) -> None:
    wanted = ecbm.Edit(correct_labels=[(IDS[0], 12.5), (IDS[1], -3)]).apply_to(DATA)
    path = tmp_path / "edit.json"
    items = [{"id": IDS[0], "label": 12.5}, {"id": IDS[1], "label": "-3"}]
    path.write_text(json.dumps({"correct_labels": items}))
    assert read_edit(path, DATA).apply_to(DATA) == wanted
    (tmp_path / "edit.csv").write_text(f"id,label\n{IDS[0]},12.5\n{IDS[1]},-3\n")
    assert read_edit(tmp_path / "edit.csv", DATA).apply_to(DATA) == wanted
    frame = pd.DataFrame({"id": IDS[:2], "label": [12.5, -3.0]})
    assert ecbm.Edit.from_frame(frame, DATA).apply_to(DATA) == wanted
    for edit in EDITS.values():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        assert read_edit(write_edit(edit, folder / "edit.json"), DATA).apply_to(DATA) == edit.apply_to(DATA)


def test_labels_that_are_no_numbers_are_refused_in_one_line(tmp_path: Path) -> None:
    for label in ("high", "nan", "inf", ""):
        with pytest.raises(
            ecbm.InputError, match=f"sample '{IDS[0]}': '{label}' is no label; the target is a number"
        ):
            ecbm.Edit(correct_labels=[(IDS[0], label)]).apply_to(DATA)
    classes = mixed(24, seed=9, prefix="n")
    with pytest.raises(ecbm.InputError, match="labels are classes there and numbers EUR in the data"):
        ecbm.Edit(add_samples=classes).apply_to(DATA)
    with pytest.raises(ecbm.InputError, match="cannot turn classes into numbers"):
        ecbm.Edit.between(mixed(), DATA)
    (tmp_path / "edit.csv").write_text(f"id,label\n{IDS[0]},high\n")
    with pytest.raises(ecbm.InputError, match="line 2, column 'label': 'high' is not a number"):
        read_edit(tmp_path / "edit.csv", DATA)
