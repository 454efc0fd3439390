"""The concept loss of mixed types: its gradients, its Fisher matrices and the operators, against autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ecbm
from ecbm.curvature import EKFAC, ConceptLoss, ExactOperator
from ecbm.edit.gradients import concept_part
from ecbm.train.terms import concept_scaling, positive_weights, terms_of
from types_kit import head_rows, mixed, reference_of

DATA = mixed(40, missing=0.2)


def loss_of(recipe: ecbm.Recipe) -> ConceptLoss:
    terms = terms_of(DATA, positive_weights(DATA, recipe), concept_scaling(DATA))
    return ConceptLoss(terms.targets, terms.weights, terms.layout)


@pytest.fixture(params=[None, "balanced"])
def loss(request: pytest.FixtureRequest) -> ConceptLoss:
    return loss_of(ecbm.Recipe(backbone="linear", pos_weight=request.param))


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(40, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


ROWS = torch.arange(40)


def hessians(loss: ConceptLoss, logits: Tensor) -> Tensor:
    """(n, k, k) of every sample's loss by its logits."""
    one = [
        torch.autograd.functional.hessian(
            lambda z, row=row: loss.values(z[None], torch.tensor([row])).sum(), logits[row]
        )
        for row in range(len(logits))
    ]
    return torch.stack(one)


def test_the_empirical_gradient_is_the_gradient(loss: ConceptLoss, logits: Tensor) -> None:
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss.values(leaf, ROWS).sum(), leaf)
    # Targets are float32, so that distributions sum to one within its rounding.
    torch.testing.assert_close(
        loss.output_gradients(logits, ROWS, "empirical", None)[0], gradient, atol=1e-6, rtol=0
    )


def test_exact_columns_are_a_root_of_the_hessian(loss: ConceptLoss, logits: Tensor) -> None:
    columns = torch.stack(loss.output_gradients(logits, ROWS, "exact", None), 2)
    torch.testing.assert_close(columns @ columns.mT, hessians(loss, logits), atol=1e-6, rtol=0)


def test_drawn_targets_have_the_hessian_as_their_mean(loss: ConceptLoss, logits: Tensor) -> None:
    draw = torch.Generator().manual_seed(4)
    total, count = torch.zeros(40, 9, 9, dtype=torch.float64), 4000
    for _ in range(count):
        uniforms = torch.rand(40, loss.draws, generator=draw, dtype=torch.float64)
        (gradient,) = loss.output_gradients(logits, ROWS, "true", uniforms)
        total += gradient[:, :, None] * gradient[:, None, :]
    wanted = hessians(loss, logits)
    error = (total / count - wanted).mean(0).abs().max() / wanted.mean(0).abs().max()
    assert float(error) < 0.02


def test_types_are_part_of_a_loss_s_digest(loss: ConceptLoss) -> None:
    plain = ConceptLoss(loss.targets.clamp(0, 1), loss.weights)
    typed = ConceptLoss(loss.targets.clamp(0, 1), loss.weights, loss.layout)
    assert plain.digest() != typed.digest()
    assert typed.subset(torch.arange(5)).layout == loss.layout


def test_the_exact_operator_is_the_hessian_of_tied_heads() -> None:
    recipe = ecbm.Recipe(backbone="linear")
    model = ecbm.train(DATA, recipe)
    train = DATA.split("train")
    terms = terms_of(train, positive_weights(train, recipe), concept_scaling(train))
    loss = ConceptLoss(terms.targets, terms.weights, terms.layout)
    features = model.features(train.inputs)
    reference = reference_of(model, DATA)
    free = reference.free(head_rows(model))
    wanted = reference.hessian(free)
    for kind in ("hessian", "gauss-newton"):
        operator = ExactOperator(concept_part(model), features, loss, kind=kind, l2=recipe.concept_regularisation)
        for seed in range(3):
            direction = torch.randn(len(free), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            rows = reference.rows(direction)
            vector = {
                "concept_head.weight": rows[:, :-1].contiguous(),
                "concept_head.bias": rows[:, -1].contiguous(),
            }
            image = operator.multiply(vector)
            found = torch.cat([image["concept_head.weight"], image["concept_head.bias"][:, None]], 1)
            assert float((found * rows).sum()) == pytest.approx(float(direction @ wanted @ direction), rel=1e-6)


@pytest.mark.parametrize("fisher", ["true", "empirical", "exact"])
def test_ekfac_covers_heads_of_every_type(fisher: str) -> None:
    recipe = ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=1, patience=None)
    model = ecbm.train(DATA, recipe)
    part = concept_part(model).untied
    terms = terms_of(DATA, positive_weights(DATA, recipe), concept_scaling(DATA))
    loss = ConceptLoss(terms.targets, terms.weights, terms.layout)
    curvature = EKFAC.fit(part, DATA.inputs, loss, l2=1e-2, fisher=fisher, parameters=part.trained)  # type: ignore[arg-type]
    assert not curvature.report()["uncovered"]
