"""Edits on frozen features start from what is kept about the solved heads, and still end where retraining does."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm.edit.methods import exact as exact_module
from ecbm.edit.warm import Coordinates, KeptDesign, LeadingInverses, OldConcepts, solve_moved_concepts
from ecbm.train.heads.concept import solve_concept_head
from ecbm.train.heads.objectives import with_ones
from ecbm.train.heads.precondition import FeatureBasis
from kit import concept_objective


def make(n: int = 260, width: int = 12, concepts: int = 6, classes: int = 4) -> ecbm.Dataset:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(n, width, generator=draw) * torch.rand(width, generator=draw) + 0.3
    scores = x @ torch.randn(width, concepts, generator=draw)
    labels = (scores @ torch.randn(concepts, classes, generator=draw)).argmax(1)
    truth = (scores + torch.randn(n, concepts, generator=draw) > 0).float()
    splits = ["train"] * (n - 60) + ["val"] * 30 + ["test"] * 30
    names = [f"c{j}" for j in range(concepts)]
    return ecbm.Dataset(
        [f"s{i}" for i in range(n)], x, truth, labels, names, [f"y{c}" for c in range(classes)], splits
    )


DATA = make()
TRAIN = DATA.split("train")


@pytest.fixture(scope="module", params=["logits", "probabilities"])
def editor(request):
    return ecbm.Editor(ecbm.train(DATA, ecbm.Recipe(backbone="linear", bottleneck=request.param)), DATA)


def flips(count: int = 5, concept: str = "c1") -> list[tuple[str, str, float]]:
    column = DATA.concept_index(concept)
    return [(TRAIN.ids[i], concept, 1 - float(TRAIN.concepts[i, column])) for i in range(count)]


def added() -> ecbm.Dataset:
    part = TRAIN.select(range(8))
    return ecbm.Dataset(
        [f"new{i}" for i in range(8)],
        part.x + 0.05,
        part.concepts,
        part.labels,
        part.concept_names,
        part.class_names,
        ["train"] * 8,
    )


EDITS = {
    "labels": ecbm.Edit(correct_concepts=flips()),
    "classes": ecbm.Edit(correct_labels=[(TRAIN.ids[3], "y0"), (TRAIN.ids[4], "y1")]),
    "removed samples": ecbm.Edit(remove_samples=TRAIN.ids[10:18]),
    "added samples": ecbm.Edit(add_samples=added()),
    "removed concept": ecbm.Edit(remove_concepts=["c2"]),
    "mix": ecbm.Edit(
        correct_concepts=flips(), remove_samples=TRAIN.ids[10:18], add_samples=added(), remove_concepts=["c0"]
    ),
}


def parameters(model: ecbm.ConceptBottleneck) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("name", EDITS)
def test_the_kept_solution_leads_to_the_retrained_model(editor, name, monkeypatch):
    used = []
    solve = exact_module.move_heads
    monkeypatch.setattr(exact_module, "move_heads", lambda *given: used.append(solve(*given)) or used[-1])
    result = editor.apply(EDITS[name], "exact")
    assert None not in used  # it did not have to start from the data
    scratch = ecbm.train(result.data, editor.model.recipe)
    assert (parameters(result.model) - parameters(scratch)).abs().max() < 1e-7
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0


def test_heads_that_an_influence_step_left_unsolved_are_solved_by_the_next_exact_edit():
    model = ecbm.train(DATA, ecbm.Recipe(backbone="linear"))
    stepped = ecbm.Editor(model, DATA).apply(EDITS["labels"], "ekfac")
    result = ecbm.Editor(stepped.model, stepped.data).apply(ecbm.Edit(correct_concepts=flips(3, "c4")), "exact")
    scratch = ecbm.train(result.data, model.recipe)
    assert (parameters(result.model) - parameters(scratch)).abs().max() < 1e-7


@pytest.mark.parametrize("method", ["ekfac", "hessian"])
def test_concepts_without_a_changed_term_do_not_move_by_a_bit(editor, method):
    fresh = ecbm.Edit(add_concepts={"extra": {i: float(n % 2) for n, i in enumerate(TRAIN.ids)}})
    for edit, moved in ((EDITS["removed concept"], set()), (fresh, {"extra"}), (EDITS["labels"], {"c1"})):
        model = editor.apply(edit, method).model
        for row, name in enumerate(model.concept_names):
            if name not in moved:
                before = editor.model.concept_index(name)
                assert torch.equal(model.concept_head.weight[row], editor.model.concept_head.weight[before])
                assert torch.equal(model.concept_head.bias[row], editor.model.concept_head.bias[before])


def test_the_ekfac_step_of_frozen_heads_is_the_one_of_its_expected_factors(editor):
    """On frozen features the true Fisher needs no draws; EK-FAC with its targets' expectation says the same."""
    quick, general = (editor.apply(EDITS["labels"], "ekfac", fisher=fisher).model for fisher in ("true", "exact"))
    start = editor.model.concept_head.weight
    gap = (quick.concept_head.weight - general.concept_head.weight).norm()
    assert gap < 0.05 * (general.concept_head.weight - start).norm()


def leading_inverses(design, curvature, l2, count):
    basis = FeatureBasis.of(design)
    vectors = basis.vectors[:, -count:].contiguous()
    blocks = torch.stack([(design.T * c) @ design for c in curvature.T]).float()
    eye = l2 * torch.eye(count)
    rest = basis.diagonal(curvature, l2)[:, :-count].mean(1)
    return LeadingInverses(vectors, torch.linalg.inv(vectors.T @ blocks @ vectors + eye), rest)


@pytest.mark.parametrize("sign", [-1, 1])
def test_leading_inverses_follow_samples_that_come_and_go(sign):
    design = with_ones(TRAIN.x.double())
    curvature = torch.rand(len(design), 3, generator=torch.Generator().manual_seed(0)).double() / len(design)
    some = torch.arange(len(design)) < 30
    before = curvature.clone()
    if sign > 0:
        before[some] = 0
    after = curvature.clone()
    if sign < 0:
        after[some] = 0
    start, goal = (leading_inverses(design, c, 0.05, 5) for c in (before, after))
    moved = start.after(design[some].float(), curvature[some].T.float(), sign)
    torch.testing.assert_close(moved.inverses, goal.inverses, rtol=1e-3, atol=1e-4)
    gap = (start.inverses - goal.inverses).norm()
    assert (moved.inverses - goal.inverses).norm() < 1e-3 * gap
    vectors = torch.randn(3, design.shape[1], generator=torch.Generator().manual_seed(1))
    leading = vectors @ goal.vectors
    expected = (vectors - leading @ goal.vectors.T) / goal.rest[:, None]
    expected += torch.einsum("kab,kb->ka", goal.inverses, leading) @ goal.vectors.T
    torch.testing.assert_close(goal.apply(vectors), expected)


def test_moved_concepts_are_solved_in_new_coordinates_with_rows_of_gone_samples_in_place():
    design = with_ones(TRAIN.x.double())
    n, l2 = len(design), 0.05
    targets, weights = TRAIN.concepts, torch.ones_like(TRAIN.concepts)
    solved = solve_concept_head(design, targets, weights, l2, tolerance=1e-12, accept=1e-10).parameters
    p = torch.sigmoid(solved @ design.T)
    residuals = p - targets.T
    kept = leading_inverses(design, (p * (1 - p) / n).T, l2, 4)
    coordinates = Coordinates(torch.linspace(0.9, 1.1, 12).double(), torch.linspace(-0.1, 0.1, 12).double())
    stays = torch.arange(n) % 20 != 0
    moved = solve_moved_concepts(
        KeptDesign(design, design.float(), coordinates),
        targets.T,
        weights.T * stays,
        int(stays.sum()),
        l2,
        OldConcepts(solved, solved @ design.T, residuals, residuals @ design),
        kept,
        1e-11,
    )
    assert moved is not None
    there = with_ones(TRAIN.x.double() * coordinates.scale + coordinates.shift)[stays]
    _, gradient = concept_objective(there, targets[stays], weights[stays].double(), moved.parameters, l2)
    assert gradient.norm() < 2e-11
