"""The sparse label head: against a plain proximal gradient method, through edits, and in what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import ecbm
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.objectives import with_ones
from kit import same_bytes, tabular
from types_kit import edits, mixed

DATA = mixed()
RECIPE = ecbm.Recipe(backbone="linear", label_l1=0.01)


def proximal_gradient(design: Tensor, labels: Tensor, classes: int, l2: float, l1: float) -> Tensor:
    """The slow, obvious reference: accelerated proximal gradient steps."""
    n = len(design)
    step = 1 / (0.5 * float(torch.linalg.matrix_norm(design, 2)) ** 2 / n + l2)
    rows = torch.zeros(classes, design.shape[1], dtype=torch.float64)
    ahead, momentum = rows, (1 - (step * l2) ** 0.5) / (1 + (step * l2) ** 0.5)
    for _ in range(20_000):
        p = torch.softmax(design @ ahead.T, 1)
        p[torch.arange(n), labels] -= 1
        moved = ahead - step * (p.T @ design / n + l2 * ahead)
        shrunk = moved.sign() * (moved.abs() - step * l1).clamp_min(0)
        shrunk[:, -1] = moved[:, -1]
        ahead, rows = shrunk + momentum * (shrunk - rows), shrunk
    return rows


@pytest.mark.parametrize("l1", [1e-4, 1e-2, 0.1, 10.0])
def test_the_solution_is_that_of_proximal_gradient_steps(l1: float) -> None:
    data = tabular(90, 6)
    design = with_ones(torch.cat([data.x, data.concepts], 1))
    solved = solve_label_head(design, data.labels, None, 3, 0.01, tolerance=1e-12, l1=l1)
    wanted = proximal_gradient(design, data.labels, 3, 0.01, l1)
    torch.testing.assert_close(solved.parameters, wanted, rtol=0, atol=1e-8)
    assert torch.equal(solved.parameters == 0, wanted == 0)
    assert solved.gradient_norm < 1e-12


def test_a_stronger_term_leaves_fewer_weights() -> None:
    counts = []
    for l1 in (1e-3, 1e-2, 1e-1):
        model = ecbm.train(DATA, RECIPE.replace(label_l1=l1))
        counts.append(int((model.label_head.weight != 0).sum()))
        assert model.provenance.training["label_gradient_norm"] < 1e-10
    assert counts[0] > counts[1] > counts[2]


def test_evaluate_says_how_many_concepts_each_class_reads() -> None:
    model = ecbm.train(DATA, RECIPE.replace(label_l1=0.1))
    found = ecbm.evaluate(model, DATA.split("test"))["concepts_per_class"]
    used = model.label_head.weight[0] != 0
    groups = {model.layout.owner[column] for column in used.nonzero().flatten().tolist()}
    assert found["low"] == len(groups)
    assert max(found.values()) < 5
    assert "concepts_per_class" not in ecbm.evaluate(ecbm.train(DATA, RECIPE.replace(label_l1=None)), DATA)


@pytest.mark.parametrize("level", edits(DATA))
@pytest.mark.parametrize("method", ["exact", "auto"])
def test_an_exact_edit_of_a_sparse_head_is_retraining(level: str, method: str) -> None:
    editor = ecbm.Editor(ecbm.train(DATA, RECIPE), DATA)
    edit = edits(DATA)[level]
    result, again = editor.apply(edit, method), editor.apply(edit, "retrain")
    torch.testing.assert_close(result.model.label_head.weight, again.model.label_head.weight, rtol=0, atol=1e-6)
    certificate = result.report["certificate"]
    assert certificate["class_predictions_that_could_differ"] == 0
    distance = (result.model.label_head.weight - again.model.label_head.weight).norm().detach()
    assert float(distance) <= 2 * certificate["label_distance"] + 1e-12


@pytest.mark.parametrize(("method", "rounding"), [("ekfac", 1e-6), ("hessian", 1e-9)])
def test_influence_steps_solve_a_sparse_head(method: str, rounding: float) -> None:
    # EK-FAC's step moves logits in float32, and the label head is fitted on those.
    editor = ecbm.Editor(ecbm.train(DATA, RECIPE), DATA)
    result = editor.apply(edits(DATA)["correct categorical"], method)
    assert result.report["settings"]["label_curvature"] == "solved"
    assert result.report["residual"]["label_head"] < rounding


def test_a_deep_model_may_have_a_sparse_head(tmp_path: Path) -> None:
    recipe = ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=2, patience=None, label_l1=0.02)
    model = ecbm.train(DATA, recipe)
    result = ecbm.Editor(model, DATA).apply(edits(DATA)["correct all types"], budget=1.0)
    assert result.report["residual"]["label_head"] < 1e-9
    assert same_bytes(ecbm.load(ecbm.save(model, tmp_path / "model")), model)


def test_recipes_without_an_l1_term_are_written_as_before() -> None:
    assert "label_l1" not in ecbm.Recipe().to_dict()
    assert ecbm.Recipe.from_dict(RECIPE.to_dict()) == RECIPE


@pytest.mark.parametrize(("fields", "words"), [({"label_l1": -1.0}, "positive"), ({"regime": "joint"}, "joint")])
def test_what_a_sparse_head_cannot_be_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ecbm.InputError, match=words):
        RECIPE.replace(**fields)
