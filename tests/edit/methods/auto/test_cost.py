"""Work is counted: operations of passes and products, from the model's sizes and what its training took."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

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


def test_a_forward_pass_is_two_operations_a_weight_and_a_price_for_every_number_written() -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    assert forward_operations(network, torch.zeros(1, 6)) == 2 * (6 * 8 + 8 * 4) + 100 * (8 + 8 + 4)


def test_what_is_behind_a_cut_costs_less_the_later_the_cut(model: ecbm.ConceptBottleneck) -> None:
    cost = cost_of(model, EDIT)
    short, whole = cost.tails
    assert 2 * (8 * 4 + 4 * 5) < short < whole <= cost.forward
    assert cost.tail_step(cost.forward) == cost.step


def test_retraining_is_its_epochs_its_features_and_both_heads(model: ecbm.ConceptBottleneck) -> None:
    cost, training = cost_of(model, EDIT), model.provenance.training
    n, val = len(DATA.split("train")) - 3, len(DATA.split("val"))
    epochs = 3 * (cost.passes(n, backward=True) + cost.passes(val) + (cost.step - cost.passes(64, backward=True)))
    heads = cost.basis + cost.concept_work(training["concept_work"]) + cost.label_work(training["label_work"])
    assert cost.retraining == pytest.approx(epochs + cost.forward * n + heads)


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
