"""Bounds of the certificate against heads solved and gradients computed in extended precision.

Nothing is added for the reference: its own error is a thousandth of float64's rounding.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from long_kit import LongHeads, activated, long

import ecbm
from ecbm.edit import carry, certificate
from ecbm.edit.concept_error import concept_error, label_gradient_change
from ecbm.edit.rounding import gamma, label_rounding, sum_rounding
from ecbm.train import stages
from ecbm.train.heads.activations import tie
from ecbm.train.heads.objectives import (
    ConceptObjective,
    LabelObjective,
    add_up,
    label_residual,
    longest_sum,
    rows_of,
    with_ones,
)
from ecbm.train.terms import concept_scaling, terms_of
from kit import tabular
from number_kit import numbered
from types_kit import mixed

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long doubles are float64 here")

BINARY = {
    "binary": (lambda: tabular(160, 6, missing=0.1), {"pos_weight": "balanced"}),
    "probabilities": (lambda: tabular(160, 6, missing=0.1), {"bottleneck": "probabilities"}),
    "wide": (lambda: tabular(120, 200, seed=3), {"concept_l2": 1e-2}),
    "certain": (lambda: tabular(200, 4, seed=1), {"concept_l2": 1e-4, "label_l2": 1e-4}),
    "many samples": (lambda: tabular(2500, 5, seed=2), {}),
}
TYPED = {
    "mixed": (lambda: mixed(150), {}),
    "mixed probabilities": (lambda: mixed(150, seed=4), {"bottleneck": "probabilities"}),
    "a number": (lambda: numbered(150), {}),
    "a number probabilities": (lambda: numbered(150, seed=2), {"bottleneck": "probabilities"}),
}
CASES = BINARY | TYPED


@cache
def trained(case: str) -> tuple[ecbm.ConceptBottleneck, ecbm.Dataset]:
    make, fields = CASES[case]
    data = make()
    return ecbm.train(data, ecbm.Recipe(backbone="linear", **fields)), data


@cache
def solved(case: str) -> tuple[LongHeads, np.ndarray]:
    heads = LongHeads(*trained(case))
    return heads, heads.concept_optimum()


def _terms(model: ecbm.ConceptBottleneck, data: ecbm.Dataset):
    train = data.split("train")
    return terms_of(train, model.positive_weights, concept_scaling(train))


@pytest.mark.parametrize("case", CASES)
def test_an_edits_certificate_reaches_the_optimum_of_long_doubles(case: str) -> None:
    model, data = trained(case)
    train = data.split("train")
    edit = ecbm.Edit(remove_samples=list(train.ids[3:7]))
    result = ecbm.Editor(model, data).apply(edit, "exact")
    bound = result.report["certificate"]
    heads = LongHeads(result.model, result.data)
    concept, ours = heads.concept_optimum(), long(rows_of(result.model.concept_head))
    label = heads.label_optimum(heads.read(concept))
    assert np.linalg.norm(heads.concept_gradient(concept)) < 1e-17
    assert 0 < np.linalg.norm((concept - ours).astype(float)) <= bound["concept_distance"] < 1e-6
    mine = long(rows_of(result.model.label_head))
    assert 0 < np.linalg.norm((label - mine).astype(float)) <= bound["label_distance"] < 1e-3
    inputs = result.data.split("val").inputs
    validation = stages.feature_design(result.model.backbone, inputs)
    with torch.no_grad():
        logits = result.model.concept_head(validation[:, :-1])
        classes = result.model.label_head(result.model.bottleneck_from(logits))
    wanted = long(validation) @ concept.T
    assert np.abs(long(logits) - wanted).max() <= bound["largest_concept_logit_change"]
    scale = 1.0 if result.model.target_scaling is None else float(result.model.target_scaling[1])
    moved = scale * np.abs(long(classes) - heads.read(concept, long(validation)) @ label.T).max()
    assert 0 < moved <= bound.get("largest_class_logit_change", bound.get("largest_prediction_change"))


def _moved(case: str, rows: np.ndarray):
    """A model with this concept head, and what bounds are computed from."""
    model, data = trained(case)
    head = tie(torch.from_numpy(rows), data.layout)
    train, terms = data.split("train"), _terms(model, data)
    design = stages.feature_design(model.backbone, train.inputs)
    logits = design @ head.T
    low, high = stages.logit_range(logits, train.concepts, data.layout)
    moved = carry.with_heads(model, head, rows_of(model.label_head), low, high)
    alpha = model.recipe.concept_regularisation
    gradient = ConceptObjective(design, terms.targets, terms.weights, alpha, terms.layout).gradient(logits, head)
    return moved, design, logits, terms, concept_error(moved, design.norm(dim=1), logits, terms, gradient)


def _share_of_label_bound(case: str, rows: np.ndarray) -> float:
    """By how much the label head's gradient changes, as a share of the bound."""
    heads, optimum = solved(case)
    moved, design, logits, terms, error = _moved(case, rows)
    read = with_ones(moved.bottleneck_from(logits).detach())
    residual = label_residual(read @ rows_of(moved.label_head).T, heads.labels)
    norm = certificate.spectral_bound(design)
    sizes, weights = design.norm(dim=1), terms.weights
    bound = label_gradient_change(moved, error, sizes, logits, weights, read, residual, norm)
    label = long(rows_of(moved.label_head))
    there, here = (heads.label_gradient(b, label)[0] for b in (heads.read(optimum), long(read)))
    return float(np.linalg.norm((there - here).astype(float))) / bound


@pytest.mark.parametrize("direction", ["anywhere", "where the objective is flattest", "where it is steepest"])
@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("case", CASES)
def test_a_head_that_is_off_stays_within_what_its_gradient_proves(case: str, size: float, direction: str) -> None:
    heads, optimum = solved(case)
    draw = np.random.default_rng(int(1e13 * size) % 1000)
    rows = optimum.astype(float)
    for concept in heads.concepts:
        columns = list(concept.columns)
        if direction == "anywhere":
            move = draw.normal(size=rows[columns].shape)
        else:
            values = activated(heads.design @ optimum[columns].T, concept.type)
            vectors = np.linalg.eigh(heads.concept_hessian(concept, values))[1]
            move = vectors[:, 0 if "flattest" in direction else -1].reshape(rows[columns].shape)
        rows[columns] += size * move / np.linalg.norm(move)
    moved, _, _, _, error = _moved(case, rows)
    apart = optimum - long(rows_of(moved.concept_head))
    for number, concept in enumerate(heads.concepts):
        own = apart[list(concept.columns)]
        assert np.linalg.norm(own.astype(float)) <= float(error.distance[number])
        off = np.square(heads.design @ own.T).sum(1)
        values = activated(heads.design @ optimum[list(concept.columns)].T, concept.type)
        least = (values * (1 - values)).min(1) if concept.type in ("binary", "ordinal") else 0 * off
        felt = heads.weights[:, concept.columns[0]] * least
        energy = float(np.sqrt((felt * off).mean()))
        assert energy <= float(error.energy[number] * error.turn[number])
    assert 0 <= _share_of_label_bound(case, rows) <= 1


@pytest.mark.parametrize("case", CASES)
def test_the_worst_that_one_concept_can_do_to_the_label_head_is_near_the_bound_and_below(case: str) -> None:
    """The direction of a gradient that moves the label head's gradient most, from the jacobian and the Hessian."""
    heads, optimum = solved(case)
    model, _ = trained(case)
    label, start = rows_of(model.label_head), torch.from_numpy(optimum.astype(float))
    design, shares = torch.from_numpy(heads.design.astype(float)), []

    def gradient_of(own: torch.Tensor, columns: list[int]) -> torch.Tensor:
        logits = design @ start.index_copy(0, torch.tensor(columns), own).T
        read = torch.cat([model.bottleneck_from(logits), torch.ones(len(design), 1).double()], 1)
        classes = read @ label.T
        wanted = heads.labels[:, None]
        if not model.predicts_number:
            wanted = torch.nn.functional.one_hot(heads.labels, len(label))
            classes = torch.softmax(classes, 1)
        return ((classes - wanted).T @ read / len(read)).flatten()

    for concept in heads.concepts:
        if concept.type == "ordinal":
            continue  # its slopes are tied: not every direction is one of its heads
        columns = list(concept.columns)
        values = activated(heads.design @ optimum[columns].T, concept.type)
        inverse = np.linalg.inv(heads.concept_hessian(concept, values))
        jacobian = torch.func.jacrev(gradient_of)(start[columns], columns).flatten(1).numpy()
        worst = inverse @ np.linalg.svd(jacobian @ inverse)[2][0]
        for sign in (1, -1):
            rows = optimum.astype(float)
            rows[columns] += sign * 1e-7 * worst.reshape(rows[columns].shape) / np.linalg.norm(worst)
            shares.append(_share_of_label_bound(case, rows))
    assert 0.02 < max(shares) <= 1


@pytest.mark.parametrize("case", CASES)
def test_rounding_of_gradients_stays_within_its_bound(case: str) -> None:
    heads, _ = solved(case)
    model, data = trained(case)
    train, terms = data.split("train"), _terms(model, data)
    design = stages.feature_design(model.backbone, train.inputs)
    head, label = rows_of(model.concept_head), rows_of(model.label_head)
    logits, alpha = design @ head.T, model.recipe.concept_regularisation
    computed = ConceptObjective(design, terms.targets, terms.weights, alpha, terms.layout).gradient(logits, head)
    error = concept_error(model, design.norm(dim=1), logits, terms, torch.zeros_like(computed))
    lost = long(computed) - heads.concept_gradient(long(head))
    for number, concept in enumerate(heads.concepts):
        assert np.linalg.norm(lost[list(concept.columns)].astype(float)) <= alpha * float(error.distance[number])
    read = with_ones(model.bottleneck_from(logits).detach())
    beta = model.recipe.label_regularisation
    class_logits = read @ label.T
    gradient = LabelObjective(read, heads.labels, None, beta).gradient(class_logits, label)
    gone = np.linalg.norm((long(gradient) - heads.label_gradient(long(read), long(label))[0]).astype(float))
    residual, turning = label_residual(class_logits, heads.labels), 1.0 if model.predicts_number else 0.5
    assert gone <= label_rounding(residual, read.norm(dim=1), float(label.norm()), read.shape[1], turning)


def test_sums_over_many_samples_round_as_little_as_pieces_promise() -> None:
    """Numbers of one sign, where nothing cancels, and a bound a hundred times below the plain one."""
    draw = torch.Generator().manual_seed(0)
    design = torch.rand(40_000, 7, generator=draw, dtype=torch.float64) + 1
    residual = torch.rand(3, 40_000, generator=draw, dtype=torch.float64)
    true = long(residual) @ long(design)
    lost = np.abs(long(add_up(residual, design)) - true).max()
    assert 0 < lost <= gamma(longest_sum(40_000)) * float(true.max())
    assert longest_sum(40_000) < 40_000 / 90
    assert longest_sum(5) <= 6
    sizes = design.norm(dim=1)
    bound = sum_rounding(sizes @ residual.T, sizes @ torch.ones(40_000, 3).double(), 40_000)
    assert bool(
        (
            torch.from_numpy((np.abs(long(add_up(residual, design)) - true).max(1)).astype(float)) <= bound * 40_000
        ).all()
    )


def test_sharper_than_norm_times_norm_where_heads_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that have much in common, a weak L2, certain classes: a margin of 1e-5 could not be proven."""
    made = tabular(900, 60, seed=8, concepts=tuple(f"c{number}" for number in range(8)))
    x, splits = made.x + 4 * made.x[:, :1], made.splits
    data = ecbm.Dataset(made.ids, x, made.concepts, made.labels, made.concept_names, made.class_names, splits)
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone="linear", concept_l2=1e-2)), data)
    edit = ecbm.Edit(remove_samples=[data.split("train").ids[5]])

    def carried() -> float:
        report = editor.apply(edit, "exact").report
        return report["certificate"]["label_distance"] * 1e-2 - report["residual"]["label_head"]

    sharp = carried()
    monkeypatch.setattr(certificate, "label_gradient_change", lambda *_: float("inf"))
    assert 0 < sharp < carried() / 10


def test_a_head_that_is_far_off_proves_no_more_than_before() -> None:
    model, data = trained("binary")
    design, terms = stages.feature_design(model.backbone, data.split("train").inputs), _terms(model, data)
    far = carry.with_heads(model, rows_of(model.concept_head) * 100, None, model.low, model.high)
    logits = design @ rows_of(far.concept_head).T
    gradient = ConceptObjective(design, terms.targets, terms.weights, 0.1, terms.layout).gradient(
        logits, rows_of(far.concept_head)
    )
    error = concept_error(far, design.norm(dim=1), logits, terms, gradient)
    assert bool(error.turn.isinf().any())
    read = with_ones(logits)
    residual = label_residual(read @ rows_of(model.label_head).T, data.split("train").labels)
    change = label_gradient_change(far, error, design.norm(dim=1), logits, terms.weights, read, residual, 1e3)
    assert change == float("inf")
    given = concept_error(far, design.norm(dim=1), logits, terms, gradient, fixed=True)
    assert float(given.distance.sum()) == float(given.energy.sum()) == 0.0
    assert bool(given.turn.isfinite().all())
