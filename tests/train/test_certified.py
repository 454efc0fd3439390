"""A certified release keeps its promise by the definition, both ways, with no more noise than that takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import ecbm
import types_kit
from ecbm.errors import InputError
from ecbm.train.certified import BudgetExceeded, Certified, gaussian_delta, largest_shift
from ecbm.train.heads.objectives import rows_of
from ecbm.train.release import Release
from ecbm.train.terms import ConceptTerms
from kit import newton_logistic, same_bytes, tabular

PROMISE = {"epsilon": 1.0, "delta": 1e-5}
RECIPE = ecbm.Recipe(backbone="linear", certified=PROMISE)


def overlap(p, q, cell, epsilon):
    """max over all sets A of P(A) − e^ε Q(A), from densities on a grid: it is reached where p > e^ε q."""
    return float(np.clip(p - math.exp(epsilon) * q, 0, None).sum() * cell)


def normal(x, mean, deviation):
    return np.exp(-0.5 * ((x - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("shift", [0.05, 0.5, 2.0])
def test_the_delta_of_two_normal_distributions_is_that_of_the_definition(epsilon, shift):
    x, step = np.linspace(-14, 14, 200_001, retstep=True)
    found = overlap(normal(x, shift, 1.0), normal(x, 0.0, 1.0), step, epsilon)
    assert gaussian_delta(shift, epsilon) == pytest.approx(found, abs=1e-9)
    assert gaussian_delta(largest_shift(epsilon, 1e-4), epsilon) == pytest.approx(1e-4, rel=1e-6)


def one_dimension(count=60, seed=0):
    """A logistic head of one weight; small enough to be integrated."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, generator=draw, dtype=torch.float64)
    return x, (x[:, 0] + torch.randn(count, generator=draw) > 0).double()


def terms_for(targets):
    weights = torch.ones(len(targets), 1, dtype=torch.float64)
    return ConceptTerms(targets[:, None], weights)


def test_removing_by_one_newton_step_is_indistinguishable_from_retraining_by_the_definition():
    promise, l2 = Certified(1.0, 1e-3, tolerance=2e-3), 0.05
    x, t = one_dimension()
    ones = torch.ones(len(t), dtype=torch.float64)
    old = newton_logistic(x, t, ones, l2)
    # what was learnt from all samples, moved by one Newton step on those that stay: near, but not at their optimum
    left, labels, n = x[1:], t[1:], len(t) - 1
    p = torch.sigmoid(left @ old)
    gradient = left.T @ (p - labels) / n + l2 * old
    hessian = left.T @ (left * (p * (1 - p))[:, None]) / n + l2
    stepped = old - torch.linalg.solve(hessian, gradient)
    retrained = newton_logistic(left, labels, ones[1:], l2)
    assert float((stepped - retrained).abs()) > 1e-7
    outputs = []
    for head in (stepped, retrained):
        releases = [
            float(Release(promise, seed).concept_head(left, terms_for(labels), head[None], l2))
            for seed in range(1500)
        ]
        deviation = promise.noise(l2)
        assert np.mean(releases) == pytest.approx(float(head), abs=5 * deviation / math.sqrt(1500))
        assert np.std(releases) == pytest.approx(deviation, rel=0.06)
        outputs.append(float(head))
    x, step = np.linspace(min(outputs) - 9 * deviation, max(outputs) + 9 * deviation, 100_001, retstep=True)
    removed, anew = (normal(x, mean, deviation) for mean in outputs)
    assert overlap(removed, anew, step, promise.epsilon) <= promise.delta
    assert overlap(anew, removed, step, promise.epsilon) <= promise.delta


def both_heads(share):
    """The worst case of both heads on a grid: concept weight w, then a label weight fitted to what w gives.

    Removal errs by the whole tolerance to one side and retraining to the other, in both heads; the label head's
    error may depend on w and on the past as it likes. ``share`` is how much of the noise is drawn.
    """
    promise, alpha, beta = Certified(0.8, 1e-2, tolerance=1e-3), 0.05, 0.02
    x, t = one_dimension(40, 1)
    y = (t - t.mean()) / t.std(correction=0)
    best = float(newton_logistic(x, t, torch.ones(len(t), dtype=torch.float64), alpha))
    spread, wide = share * promise.noise(alpha), share * promise.noise(beta)
    w, across = np.linspace(best - 7 * spread, best + 7 * spread, 401, retstep=True)
    bottleneck = 1 / (1 + np.exp(-x.numpy() * w[None, :]))
    fitted = (bottleneck * y.numpy()[:, None]).mean(0) / ((bottleneck**2).mean(0) + beta)
    f, down = np.linspace(fitted.min() - 7 * wide, fitted.max() + 7 * wide, 3001, retstep=True)
    laws = []
    for sign in (1, -1):
        concept = normal(w, best + sign * promise.tolerance / alpha, spread)
        label = normal(f[None, :], fitted[:, None] + sign * promise.tolerance / beta, wide)
        laws.append(concept[:, None] * label)
    assert laws[0].sum() * across * down == pytest.approx(1, abs=1e-3)
    return promise, [overlap(a, b, across * down, promise.epsilon) for a, b in (laws, laws[::-1])]


def test_both_heads_together_keep_the_promise_and_waste_nothing():
    promise, found = both_heads(share=1.0)
    for one in found:
        assert one <= promise.delta * 1.001
        assert one >= promise.delta * 0.97
    # with less noise the promise would be broken
    assert min(both_heads(share=0.8)[1]) > promise.delta


def test_noise_in_the_objective_would_not_hide_a_residual_that_follows_the_noise():
    # θ solves ∇J(θ) + b = u, so that θ shows b − u. If u is independent of b, that is a shift by |u|; a residual
    # of the same norm that is a share of b itself shrinks the noise, which in many dimensions is easier to see.
    dimensions, epsilon, delta = 100_000, 1.0, 1e-5
    published = epsilon / math.sqrt(
        2 * math.log(1.5 / delta)
    )  # largest |u| in units of the noise (Guo et al. 2020)
    # |b| is beyond √d + 6 in one draw of 10¹⁵: the residual never exceeds what is allowed
    kept = 1 - published / (math.sqrt(dimensions) + 6)
    spread = math.sqrt(2 * dimensions)
    squares, step = np.linspace(dimensions - 12 * spread, dimensions + 12 * spread, 400_001, retstep=True)
    shrunk, whole = (chi2.pdf(squares / scale, dimensions) / scale for scale in (kept**2, 1.0))
    assert gaussian_delta(published, epsilon) < delta
    assert overlap(shrunk, whole, step, epsilon) > delta


def test_the_epsilon_that_is_spent_is_less_where_heads_are_solved_further():
    promise = Certified(1.0, 1e-5)
    t = promise.tolerance
    assert promise.spent((t, t)) == pytest.approx(1.0, rel=1e-6)
    assert promise.spent((0.0, 0.0)) < 0.5
    assert promise.spent((0.0, 0.0)) < promise.spent((0.0, t)) < 1.0


def test_a_head_that_is_not_solved_is_not_released():
    x, t = one_dimension()
    for rows in (torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), math.nan, dtype=torch.float64)):
        with pytest.raises(BudgetExceeded, match=r"concept head has a gradient of .* left"):
            Release(Certified(1.0, 1e-5), 0).concept_head(x, terms_for(t), rows, 0.1)


def test_the_noise_is_all_that_training_adds_and_nobody_can_repeat_it_from_the_recipe():
    data = tabular(90)
    plain, again = ecbm.train(data, ecbm.Recipe(backbone="linear")), ecbm.train(data, RECIPE, noise=7)
    promise = Certified(**RECIPE.certified)
    drawn = np.random.Generator(np.random.Philox(np.random.SeedSequence(7)))
    rows = rows_of(plain.concept_head)
    noise = promise.noise(RECIPE.concept_regularisation) * drawn.standard_normal(tuple(rows.shape))
    assert torch.equal(rows + torch.from_numpy(noise), rows_of(again.concept_head))
    assert same_bytes(again, ecbm.train(data, RECIPE, noise=7))
    assert not same_bytes(again, ecbm.train(data, RECIPE))
    assert not same_bytes(ecbm.train(data, RECIPE), ecbm.train(data, RECIPE))
    # figures of the heads before the noise are not in the model
    assert not [name for name in again.provenance.training if name.endswith(("gradient_norm", "objective"))]
    assert ecbm.evaluate(again, data.split("test"))["class_accuracy"] == pytest.approx(
        ecbm.evaluate(plain, data.split("test"))["class_accuracy"]
    )


def test_the_label_head_is_fitted_to_what_the_released_concept_head_gives():
    data = tabular(90)
    model = ecbm.train(data, RECIPE, noise=3)
    train = data.split("train")
    read = torch.cat([model.concept_logits(train), torch.ones(len(train), 1)], 1).double()
    scale = Certified(**RECIPE.certified).noise(RECIPE.label_regularisation)
    head = rows_of(model.label_head)
    residual = torch.softmax(read @ head.T, 1) - torch.nn.functional.one_hot(train.labels, 3)
    gradient = residual.T @ read / len(train) + RECIPE.label_regularisation * head
    # what is left of the gradient is the noise's own, and not what other inputs would leave
    steepest = 0.5 * float(torch.linalg.eigvalsh(read.T @ read / len(train))[-1]) + RECIPE.label_regularisation
    assert float(gradient.norm()) < 6 * scale * steepest


def test_slopes_that_thresholds_share_stay_shared():
    data = types_kit.mixed()
    model = ecbm.train(data, RECIPE)
    slopes = model.concept_head.weight[list(types_kit.ORDINAL)]
    assert torch.equal(slopes, slopes[:1].expand_as(slopes))


def test_a_recipe_without_a_promise_is_what_it_was():
    assert "certified" not in ecbm.Recipe(backbone="linear").to_dict()
    assert ecbm.Recipe.from_dict(RECIPE.to_dict()) == RECIPE
    assert RECIPE.certified == {**PROMISE, "tolerance": 1e-9}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"certified": {"epsilon": 1.0}}, "delta"),
        ({"certified": {"epsilon": 0, "delta": 1e-5}}, "epsilon"),
        ({"certified": {"epsilon": 1.0, "delta": 2}}, "delta"),
        ({"certified": {"epsilon": 1.0, "delta": 1e-5, "sigma": 1}}, "sigma"),
        ({"certified": 1.0}, "certified must be"),
        ({"certified": PROMISE, "regime": "joint"}, "joint"),
        ({"certified": PROMISE, "label_l1": 0.1}, "sparse"),
        ({"certified": {**PROMISE, "tolerance": 1e-12}}, "head_tolerance"),
    ],
)
def test_promises_that_cannot_be_kept_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        ecbm.Recipe(backbone="linear", **fields)


def test_a_backbone_that_learns_has_no_promise():
    with pytest.raises(InputError, match="does not change"):
        ecbm.train(tabular(40), ecbm.Recipe(backbone="mlp", certified=PROMISE))
