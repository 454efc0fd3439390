"""Work is counted: operations of passes and products, from the model's sizes and what its training took."""

from __future__ import annotations

import dataclasses

import pytest

import ecbm
from ecbm.edit.alignment import align
from ecbm.edit.methods.auto.cost import CostModel, forward_operations
from ecbm.train.model import Provenance
from kit import tabular

DATA = tabular(90)


@pytest.fixture(scope="module")
def model() -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, ecbm.Recipe(backbone="mlp", hidden=(8, 4), epochs=3, patience=None))


def cost_of(model: ecbm.ConceptBottleneck, edit: ecbm.Edit) -> CostModel:
    return CostModel.of(align(model, DATA, edit, edit.apply_to(DATA)))


EDIT = ecbm.Edit(remove_samples=DATA.split("train").ids[5:8])


def test_a_forward_pass_is_two_operations_a_weight(model: ecbm.ConceptBottleneck) -> None:
    assert forward_operations(model) == 2 * (6 * 8 + 8 * 4 + 4 * 5)


def test_retraining_is_its_epochs_its_features_and_both_heads(model: ecbm.ConceptBottleneck) -> None:
    cost, training = cost_of(model, EDIT), model.provenance.training
    n, val, forward = len(DATA.split("train")) - 3, len(DATA.split("val")), forward_operations(model)
    epochs = 3 * (cost.passes(n, backward=True) + cost.passes(val) + (cost.step - cost.passes(64, backward=True)))
    heads = 4 * n * (5 * training["concept_work"] + 6 * training["label_work"])
    assert cost.retraining == pytest.approx(epochs + forward * n + heads)


def test_counts_do_not_depend_on_a_clock(model: ecbm.ConceptBottleneck) -> None:
    slow = {**model.provenance.training, "seconds": 1e6, "deep_seconds": 1e6}
    before = cost_of(model, EDIT)
    model.provenance, kept = Provenance(model.provenance.data_fingerprint, slow), model.provenance
    try:
        assert cost_of(model, EDIT) == before
    finally:
        model.provenance = kept


def test_a_model_that_does_not_know_its_training_has_a_price_all_the_same(model: ecbm.ConceptBottleneck) -> None:
    kept = model.provenance
    model.provenance = dataclasses.replace(kept, training={})
    try:
        assert 0.1 < cost_of(model, EDIT).retraining / cost_of_known(model, kept) < 10
    finally:
        model.provenance = kept


def cost_of_known(model: ecbm.ConceptBottleneck, provenance: Provenance) -> float:
    present, model.provenance = model.provenance, provenance
    found = cost_of(model, EDIT).retraining
    model.provenance = present
    return found
