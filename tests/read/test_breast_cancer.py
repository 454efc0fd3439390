"""The breast cancer data: what a model sees, what the concepts mean, how they are split."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from ecbm import datasets


def test_concepts_are_outer_thirds_of_measurements_the_model_does_not_see():
    data = datasets.breast_cancer()
    source = load_breast_cancer()
    assert data.x.shape == (569, 20)
    assert np.allclose(data.x.numpy(), source.data[:, :20])
    assert data.class_names == ("malignant", "benign")
    assert data.groups["concave points"] == ("concave points=small", "concave points=large")
    assert len(data.groups) == 10
    train = data.split("train").concepts
    assert np.allclose(train.mean(0), 1 / 3, atol=0.02)
    assert float((data.concepts[:, 0] * data.concepts[:, 1]).sum()) == 0


def test_the_split_is_seeded_and_keeps_the_share_of_each_class():
    data = datasets.breast_cancer(seed=4)
    assert data == datasets.breast_cancer(seed=4)
    assert data.splits != datasets.breast_cancer(seed=5).splits
    assert data.split_sizes == {"train": 398, "val": 58, "test": 113}
    for name in ("train", "val", "test"):
        assert abs(float(data.split(name).labels.float().mean()) - 0.627) < 0.02


def test_concepts_tell_the_class_well():
    data = datasets.breast_cancer()
    train, test = data.split("train"), data.split("test")
    probe = LogisticRegression().fit(train.concepts, train.labels)
    assert probe.score(test.concepts, test.labels) > 0.9
