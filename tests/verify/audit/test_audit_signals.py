"""What an attacker reads is what the model says: written out again from its probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ecbm
from ecbm.verify.audit.signals import likelihoods, signals
from kit import tabular
from number_kit import numbered
from types_kit import mixed

LINEAR = ecbm.Recipe(backbone="linear")


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
def test_class_margins_and_concept_likelihoods_are_those_of_the_probabilities(bottleneck: str) -> None:
    data = tabular(90, 6, missing=0.2)
    model = ecbm.train(data, LINEAR.replace(bottleneck=bottleneck))
    found = signals(model, data)
    p = model.class_probabilities(data)[torch.arange(90), data.labels].double()
    assert np.allclose(found[:, 0], torch.log(p / (1 - p)), atol=1e-8)
    q, t = model.concept_probabilities(data).double(), data.concepts.double()
    each = t * q.log() + (1 - t) * (1 - q).log()
    assert np.allclose(found[:, 1], torch.nanmean(each, 1), atol=1e-8)
    read = likelihoods(found, number=False)
    assert np.allclose(read[:, 0], p, atol=1e-10)
    assert np.allclose(read[:, 1], np.exp(torch.nanmean(each, 1)), atol=1e-10)


def test_other_types_and_numbers_are_read_in_the_units_of_training() -> None:
    data = mixed(120)
    model = ecbm.train(data, LINEAR)
    train = data.split("train")
    # The mean over concepts times their number is the data term of J_C.
    known = (~train.concepts.isnan()).sum(1).numpy()
    l2 = model.recipe.concept_regularisation
    penalty = 0.5 * l2 * sum(float(p.detach().square().sum()) for p in model.concept_head.parameters())
    data_term = -(signals(model, train)[:, 1] * known).mean()
    assert data_term + penalty == pytest.approx(model.provenance.training["concept_objective"], rel=1e-6)
    data = numbered(120)
    model = ecbm.train(data, LINEAR)
    train = data.split("train")
    penalty = (
        0.5
        * model.recipe.label_regularisation
        * sum(float(p.detach().square().sum()) for p in model.label_head.parameters())
    )
    found = -signals(model, train)[:, 0].mean() + penalty
    assert found == pytest.approx(model.provenance.training["label_objective"], rel=1e-6)


@pytest.mark.parametrize("data", [mixed(260, 20), numbered(260, 20)], ids=["typed", "number"])
def test_audits_know_every_type(data: ecbm.Dataset) -> None:
    model = ecbm.train(data, LINEAR)
    assert ecbm.verify(model, data)["verdict"] == "passed"
    found = ecbm.verify(model, data, depth="erasure", samples=12, references=8)
    assert found["controls"]["noop"]["caught"]
    assert found["differences"]["edit_minus_retrain"]["difference"] == pytest.approx(0, abs=1e-9)
