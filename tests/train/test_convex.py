"""Both heads are solved to the stated gradient norm and agree with slow references."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from ecbm.errors import EcbmError
from ecbm.train.heads import concept
from ecbm.train.heads.concept import solve_concept_head
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.objectives import with_ones
from ecbm.train.heads.precondition import FeatureBasis
from kit import concept_objective, label_objective, newton_logistic, newton_multinomial

TOLERANCE = 1e-10


def problem(case: str, seed: int = 0):
    """Features, targets, weights, labels and sample weights of a named case."""
    draw = torch.Generator().manual_seed(seed)
    n, width, k, classes = {"fewer samples than features": (12, 30, 4, 3), "one concept": (60, 5, 1, 1)}.get(
        case, (80, 7, 4, 3)
    )
    x = torch.randn(n, width, generator=draw)
    if case == "collinear features":
        x[:, 3:] = x[:, :1] * torch.arange(1, width - 2) + 1e-7 * x[:, 3:]
    if case == "large scale":
        x *= 100
    if case == "shifted":
        x += 30
    targets = (x[:, :k] + torch.randn(n, k, generator=draw) > 0).double()
    weights = torch.ones(n, k, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=draw)
    labels[:classes] = torch.arange(classes)
    samples = torch.ones(n, dtype=torch.float64)
    if case == "weights":
        weights, samples = (5 * torch.rand(s, generator=draw).double() for s in ((n, k), (n,)))
    if case == "missing":
        hidden = torch.rand(n, k, generator=draw) < 0.4
        weights[hidden], targets[hidden], samples[::3] = 0.0, torch.nan, 0.0
    if case == "soft labels":
        targets = torch.rand(n, k, generator=draw).double()
    if case == "rare":
        targets[:], labels[:] = 0.0, 0
        targets[5], labels[5], labels[6] = 1.0, 1, 2
    if case == "separable":
        targets, labels = (x[:, :k] > 0).double(), (x[:, 0] > 0).long() + (x[:, 0] > 1).long()
    return with_ones(x), targets, weights, labels, samples, classes


CASES = [
    "plain", "weights", "missing", "soft labels", "rare", "collinear features", "fewer samples than features",
    "one concept", "large scale", "shifted", "separable",
]  # fmt: skip


@pytest.mark.parametrize("l2", [1e-1, 1e-4])
@pytest.mark.parametrize("case", CASES)
def test_concept_head_equals_dense_newton(case, l2):
    design, targets, weights, *_ = problem(case)
    solved = solve_concept_head(design, targets, weights, l2, tolerance=TOLERANCE)
    assert solved.gradient_norm <= TOLERANCE
    clean = targets.nan_to_num(0.0)
    values, gradient = concept_objective(design, clean, weights, solved.parameters, l2)
    assert gradient.norm() <= 2 * TOLERANCE
    assert float(values.sum()) == pytest.approx(solved.objective, abs=1e-12)
    for column in range(targets.shape[1]):
        reference = newton_logistic(design, clean[:, column], weights[:, column], l2)
        # Strong convexity: |W − W*| ≤ |∇J| / l2, for both sides.
        assert (solved.parameters[column] - reference).norm() <= 2 * TOLERANCE / l2


@pytest.mark.parametrize("l2", [1e-1, 1e-4])
@pytest.mark.parametrize("case", CASES)
def test_label_head_equals_dense_newton(case, l2):
    design, _, _, labels, samples, classes = problem(case)
    solved = solve_label_head(design, labels, samples, classes, l2, tolerance=TOLERANCE)
    assert solved.gradient_norm <= TOLERANCE
    value, gradient = label_objective(design, labels, samples, solved.parameters, l2)
    assert gradient.norm() <= 2 * TOLERANCE
    assert float(value) == pytest.approx(solved.objective, abs=1e-12)
    reference = newton_multinomial(design, labels, samples, classes, l2)
    assert (solved.parameters - reference).norm() <= 2 * TOLERANCE / l2


def test_heads_agree_with_scikit_learn_and_scipy():
    design, targets, _, labels, samples, classes = problem("plain")
    n, l2 = len(design), 1e-2
    sklearn = LogisticRegression(C=1 / (n * l2), fit_intercept=False, tol=1e-12, solver="newton-cholesky")
    concept = solve_concept_head(design, targets[:, :1], torch.ones(n, 1), l2).parameters[0]
    np.testing.assert_allclose(concept, sklearn.fit(design, targets[:, 0]).coef_[0], atol=1e-7)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(flat).view(classes, -1)
        value, gradient = label_objective(design, labels, samples, at, l2)
        return float(value), gradient.flatten().numpy()

    start = np.zeros(classes * design.shape[1])
    options = {"gtol": 1e-10, "ftol": 1e-15, "maxiter": 5000}
    scipy = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    label = solve_label_head(design, labels, samples, classes, l2).parameters
    np.testing.assert_allclose(label.flatten(), scipy.x, atol=1e-5)


def test_objectives_are_their_formulas_and_gradients_their_derivatives():
    design, targets, weights, labels, samples, classes = problem("weights")
    at = torch.randn(targets.shape[1], design.shape[1], dtype=torch.float64)
    by_hand = torch.zeros(targets.shape[1], dtype=torch.float64)
    for j in range(targets.shape[1]):
        for i in range(len(design)):
            p = 1 / (1 + torch.exp(-(design[i] @ at[j])))
            t = targets[i, j]
            by_hand[j] += -weights[i, j] * (t * torch.log(p) + (1 - t) * torch.log(1 - p)) / len(design)
        by_hand[j] += 0.1 / 2 * (at[j] ** 2).sum()
    values, gradient = concept_objective(design, targets, weights, at, 0.1)
    torch.testing.assert_close(values, by_hand)
    derivative = torch.func.grad(lambda w: concept_objective(design, targets, weights, w, 0.1)[0].sum())(at)
    torch.testing.assert_close(gradient, derivative)

    at = torch.randn(classes, design.shape[1], dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(design)):
        logits = at @ design[i]
        total += samples[i] * (torch.log(torch.exp(logits).sum()) - logits[labels[i]]) / len(design)
    value, gradient = label_objective(design, labels, samples, at, 0.1)
    torch.testing.assert_close(value, total + 0.1 / 2 * (at**2).sum())
    torch.testing.assert_close(
        gradient, torch.func.grad(lambda w: label_objective(design, labels, samples, w, 0.1)[0])(at)
    )


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_any_start_leads_to_the_same_heads(scale):
    design, targets, weights, labels, samples, classes = problem("plain")
    first = scale * torch.randn(targets.shape[1], design.shape[1])
    cold = solve_concept_head(design, targets, weights, 1e-3).parameters
    torch.testing.assert_close(
        solve_concept_head(design, targets, weights, 1e-3, start=first).parameters, cold, atol=1e-6, rtol=0
    )
    first = scale * torch.randn(classes, design.shape[1])
    cold = solve_label_head(design, labels, samples, classes, 1e-3).parameters
    torch.testing.assert_close(
        solve_label_head(design, labels, samples, classes, 1e-3, start=first).parameters, cold, atol=1e-6, rtol=0
    )


def test_a_warm_start_at_the_optimum_takes_no_step():
    design, targets, weights, *_ = problem("plain")
    solved = solve_concept_head(design, targets, weights, 1e-2)
    again = solve_concept_head(design, targets, weights, 1e-2, start=solved.parameters)
    assert again.newton_steps == 0
    assert torch.equal(again.parameters, solved.parameters)


def test_any_orthonormal_basis_is_right():
    design, targets, weights, *_ = problem("plain")
    other = FeatureBasis.of(design.flip(0).cumsum(0))
    wrong = FeatureBasis(other.vectors, (design.float() @ other.vectors) ** 2)
    solved = solve_concept_head(design, targets, weights, 1e-3, basis=wrong)
    plain = solve_concept_head(design, targets, weights, 1e-3)
    torch.testing.assert_close(solved.parameters, plain.parameters, atol=1e-6, rtol=0)


def test_inverses_within_leading_directions_save_products_and_change_nothing(monkeypatch):
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(400, 60, generator=draw) * torch.logspace(1, -2, 60)
    design = with_ones(x @ torch.linalg.qr(torch.randn(60, 60, generator=draw))[0])
    targets = (design[:, :6] + 0.3 * torch.randn(400, 6, generator=draw) > 0).double()
    weights = (torch.rand(400, 6, generator=draw) > 0.2).double()
    built = []
    build = concept._ConceptProblem._build

    def counted(self, *given):
        built.append(len(given[1]))
        build(self, *given)

    monkeypatch.setattr(concept._ConceptProblem, "_build", counted)
    with_leading = solve_concept_head(design, targets, weights, 1e-4)
    assert built
    monkeypatch.setattr(concept._ConceptProblem, "solved", lambda *_: None)
    without = solve_concept_head(design, targets, weights, 1e-4)
    assert with_leading.hessian_products < 0.7 * without.hessian_products
    torch.testing.assert_close(with_leading.parameters, without.parameters, atol=1e-5, rtol=0)


@pytest.mark.parametrize("classes", [3, 40])
def test_wide_and_narrow_label_heads_use_preconditioners_that_agree(classes):
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(300, 450, generator=draw)
    labels = (x[:, :classes] * 3).argmax(1)
    for width in (60, 450):  # on both sides of the widest exact class block
        design = with_ones(x[:, :width])
        solved = solve_label_head(design, labels, torch.ones(300), classes, 1e-2)
        _, gradient = label_objective(design, labels, torch.ones(300).double(), solved.parameters, 1e-2)
        assert gradient.norm() <= 2e-10


def test_an_unreachable_tolerance_is_an_error_and_not_a_silent_result():
    design, targets, weights, *_ = problem("plain")
    with pytest.raises(EcbmError, match="above the tolerance"):
        solve_concept_head(design, targets, weights, 1e-3, tolerance=1e-30)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 60),
    width=st.integers(1, 25),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    l2=st.sampled_from([1e-5, 1e-3, 1.0]),
)
def test_every_small_problem_reaches_the_tolerance(seed, n, width, scale, l2):
    draw = torch.Generator().manual_seed(seed)
    design = with_ones(scale * torch.randn(n, width, generator=draw))
    targets = torch.rand(n, 3, generator=draw).round()
    weights = 3 * torch.rand(n, 3, generator=draw)
    assert solve_concept_head(design, targets, weights, l2).gradient_norm <= TOLERANCE
    labels = torch.randint(4, (n,), generator=draw)
    assert solve_label_head(design, labels, weights[:, 0], 4, l2).gradient_norm <= TOLERANCE
