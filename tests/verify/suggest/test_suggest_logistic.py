"""Out-of-fold predictions are those of heads that were solved without the fold."""

from __future__ import annotations

import pytest
import torch

from ecbm.verify.suggest import logistic
from ecbm.verify.suggest.logistic import fit, log_likelihood, out_of_fold, with_ones
from ecbm.verify.suggest.neighbours import nearest, neighbour_means
from kit import newton_logistic


def problem(n: int = 160, d: int = 6, k: int = 3, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    design = with_ones(torch.randn(n, d, generator=draw, dtype=torch.float64))
    targets = torch.rand(n, k, generator=draw, dtype=torch.float64).round()
    weights = (torch.rand(n, k, generator=draw) > 0.2).double()
    return design, targets, weights, torch.arange(n) % 5


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(logistic, "_TOLERANCE", 1e-10)


def test_held_out_logits_are_those_of_a_head_that_never_saw_the_fold():
    design, targets, weights, folds = problem()
    found = out_of_fold(design, targets, weights, folds, [1e-2])
    for fold in range(5):
        kept, out = folds != fold, folds == fold
        for concept in range(targets.shape[1]):
            head = newton_logistic(design[kept], targets[kept, concept], weights[kept, concept], 1e-2)
            assert torch.allclose(found.logits[out, concept], design[out] @ head, atol=1e-7)


def test_a_regression_does_not_see_what_is_masked():
    design, targets, weights, _ = problem()
    mask = torch.ones(3, design.shape[1], dtype=torch.float64)
    mask[1, 2:4] = 0
    found = fit(design, targets, weights, 1e-2, mask=mask)
    assert torch.equal(found[1, 2:4], torch.zeros(2, dtype=torch.float64))
    seen = [0, 1, 4, 5, 6]
    alone = newton_logistic(design[:, seen], targets[:, 1], weights[:, 1], 1e-2)
    assert torch.allclose(found[1, seen], alone, atol=1e-7)


def test_each_column_takes_the_l2_under_which_held_out_labels_are_likeliest():
    design, targets, weights, folds = problem()
    targets[:, 0] = (design[:, 0] > 0).double()  # clear: wants little regularisation; the others are noise
    grid = [1.0, 1e-1, 1e-2, 1e-3, 1e-4]
    found = out_of_fold(design, targets, weights, folds, grid)
    likelihoods = torch.stack(
        [log_likelihood(out_of_fold(design, targets, weights, folds, [l2]).logits, targets, weights) for l2 in grid]
    )
    assert found.l2.tolist() == [grid[i] for i in likelihoods.argmax(0).tolist()]
    assert found.l2[0] < found.l2[1]


def test_starting_from_a_like_problem_gives_the_same_answer():
    design, targets, weights, folds = problem()
    first = out_of_fold(design, targets, weights, folds, [1e-1, 1e-2])
    changed = targets.clone()
    changed[::7] = 1 - changed[::7]
    again = out_of_fold(design, changed, weights, folds, [], like=first)
    for concept, l2 in enumerate(first.l2.tolist()):
        fresh = out_of_fold(design, changed[:, [concept]], weights[:, [concept]], folds, [l2])
        assert torch.allclose(again.logits[:, [concept]], fresh.logits, atol=1e-7)


def test_neighbours_are_the_nearest_others():
    points = torch.tensor([[0.0], [1.0], [1.1], [5.0], [5.2]])
    assert nearest(points, 2).tolist() == [[1, 2], [2, 0], [1, 0], [4, 2], [3, 2]]
    assert nearest(points, 1, pool=torch.tensor([0, 3]))[:, 0].tolist() == [3, 0, 0, 0, 3]


def test_a_missing_label_has_no_vote_among_neighbours():
    near = torch.tensor([[1, 2], [0, 2], [0, 1]])
    labels = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    means = neighbour_means(near, labels, weights, torch.tensor([0.5], dtype=torch.float64))
    assert means[:, 0].tolist() == [0.75, 2.5 / 3, 0.75]
