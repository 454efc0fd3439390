"""Terms of the concept objective, against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import ecbm
from ecbm.train.terms import concept_terms, positive_weights
from kit import CONCEPTS, tabular


def weighted_loss(logits, terms):
    return functional.binary_cross_entropy_with_logits(
        logits, terms.targets, weight=terms.weights, reduction="none"
    )


@pytest.mark.parametrize("soft", [False, True])
def test_positive_weights_mean_what_they_mean_in_torch(soft):
    draw = torch.Generator().manual_seed(0)
    targets = torch.rand(50, 4, generator=draw)
    targets = targets if soft else targets.round()
    logits, positive = torch.randn(50, 4, generator=draw), torch.tensor([0.2, 1.0, 3.0, 20.0])
    expected = nn.BCEWithLogitsLoss(pos_weight=positive, reduction="none")(logits, targets)
    torch.testing.assert_close(weighted_loss(logits, concept_terms(targets, positive)), expected)


def test_a_missing_label_adds_nothing_and_the_sum_is_still_divided_by_all_samples():
    data = tabular(40, missing=0.3, splits=False)
    terms = concept_terms(data.concepts, torch.ones(len(CONCEPTS)))
    logits = torch.randn(40, len(CONCEPTS))
    total = 0.0
    for i in range(40):
        for j in range(len(CONCEPTS)):
            target = float(data.concepts[i, j])
            if target == target:
                p = float(torch.sigmoid(logits[i, j].double()))
                total -= float(torch.log(torch.tensor(p if target else 1 - p)))
    assert float(weighted_loss(logits, terms).sum()) / 40 == pytest.approx(total / 40, rel=1e-5)
    assert torch.isfinite(terms.targets).all()


def test_balanced_weights_are_negatives_over_positives_of_the_known_labels():
    concepts = torch.tensor([[1.0, 0], [0, 0], [0, torch.nan], [torch.nan, 1]])
    data = ecbm.Dataset("abcd", torch.zeros(4, 1), concepts, torch.zeros(4), ["p", "q"], ["only"])
    weights = positive_weights(data, ecbm.Recipe(pos_weight="balanced"))
    assert weights.tolist() == [2.0, 2.0]


def test_balanced_weights_stay_between_a_twentieth_and_twenty():
    concepts = torch.tensor([[1.0, 0.0]] * 100)
    concepts[0] = torch.tensor([0.0, 1.0])
    data = ecbm.Dataset([str(i) for i in range(100)], torch.zeros(100, 1), concepts, torch.zeros(100), "pq", "c")
    assert positive_weights(data, ecbm.Recipe(pos_weight="balanced")).tolist() == [1 / 20, 20.0]


def test_positive_weights_by_number_and_by_name():
    data = tabular()
    assert positive_weights(data, ecbm.Recipe()).tolist() == [1.0] * 5
    assert positive_weights(data, ecbm.Recipe(pos_weight=3)).tolist() == [3.0] * 5
    assert positive_weights(data, ecbm.Recipe(pos_weight={"round": 2})).tolist() == [1, 1, 1, 1, 2]
    with pytest.raises(ecbm.UnknownNameError, match="did you mean 'round'"):
        positive_weights(data, ecbm.Recipe(pos_weight={"rond": 2}))


def test_a_positive_weight_raises_the_recall_of_a_rare_concept():
    data = tabular(400, seed=4)
    rare = data.concepts.clone()
    rare[:, 4] = ((data.x[:, 0] > 1.2) & (torch.rand(400) < 0.7)).float()
    data = data.replace(concepts=rare)
    found = [
        float(ecbm.train(data, ecbm.Recipe(pos_weight=w)).concept_probabilities(data.x)[rare[:, 4] == 1, 4].mean())
        for w in (None, "balanced")
    ]
    assert found[1] > found[0] + 0.1
