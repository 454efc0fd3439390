"""The leakage check catches a model that leaks and lets one pass that does not."""

from __future__ import annotations

import torch

import ecbm
from kit import hand_model

NAMES, CLASSES = ("spotted", "crested"), ("finch", "wren")


def data_and_model(leaking: bool, missing: float = 0.0):
    """The class is decided by a concept nobody named; a leaking bottleneck carries it in its logits."""
    draw = torch.Generator().manual_seed(0)
    n = 600
    concepts = torch.rand(n, 2, generator=draw).round()
    unnamed = torch.rand(n, generator=draw).round()
    labels = torch.where(torch.rand(n, generator=draw) < 0.8, unnamed, concepts[:, 0]).long()
    logits = 4 * concepts - 2 + 0.3 * torch.randn(n, 2, generator=draw)
    if leaking:
        logits[:, 1] += 1.5 * (unnamed - 0.5)  # still on the right side of 0: concept accuracy does not show it
    concepts[torch.rand(n, 2, generator=draw) < missing] = torch.nan
    splits = ["train" if i % 2 else "test" for i in range(n)]
    data = ecbm.Dataset([str(i) for i in range(n)], logits, concepts, labels, NAMES, CLASSES, splits)
    return data, hand_model(torch.zeros(2, 2), concepts=NAMES, classes=CLASSES)


def test_a_leaking_bottleneck_is_caught():
    data, model = data_and_model(leaking=True)
    assert ecbm.evaluate(model, data)["concept_accuracy"] > 0.99
    found = ecbm.concept_leakage(model, data)
    assert found.leakage > 0.1
    assert found.interval[0] > 0
    assert found.interval[0] <= found.leakage <= found.interval[1]
    assert found.from_both > found.from_true_concepts + 0.1


def test_a_bottleneck_that_carries_only_concepts_passes():
    data, model = data_and_model(leaking=False)
    found = ecbm.concept_leakage(model, data)
    assert abs(found.leakage) < 0.05
    assert found.interval[0] <= 0


def test_missing_labels_do_not_stop_the_check():
    data, model = data_and_model(leaking=True, missing=0.2)
    assert ecbm.concept_leakage(model, data).interval[0] > 0


def test_the_check_gives_the_same_answer_twice():
    data, model = data_and_model(leaking=True)
    assert ecbm.concept_leakage(model, data) == ecbm.concept_leakage(model, data)
