"""Predictions come as names, and as tensors that can say what their columns are."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import ecbm
from ecbm.train.model import Provenance
from kit import CLASSES, CONCEPTS, hand_model, tabular

WEIGHT = torch.tensor([[2.0, 0, 0, 0, 0], [0, 2.0, 0, 0, 0], [0, 0, 2.0, 0, 0]])
MODEL = hand_model(WEIGHT)
X = torch.tensor([[3.0, -1, -1, -1, 1], [-1, -1, 3.0, -1, -1]])
DATA = ecbm.Dataset(["a", "b"], X, torch.zeros(2, 5), [0, 1], CONCEPTS, CLASSES)


def test_classes_and_concepts_are_predicted_by_name():
    assert MODEL.predict(X) == ["finch", "crow"]
    assert MODEL.predict_concepts(X) == [("size=big", "round"), ("color::red",)]


@pytest.mark.parametrize(
    "x", [X, X.numpy(), X.tolist(), X.double(), DATA, DATA.inputs], ids=lambda x: type(x).__name__
)
def test_anything_that_holds_inputs_is_taken(x):
    assert torch.equal(MODEL.class_probabilities(x), MODEL.class_probabilities(X))


def test_one_sample_of_a_dataset_is_a_batch_of_one():
    assert MODEL.predict(DATA["b"]) == ["crow"]
    assert list(MODEL.predict(DATA["b"]).to_frame().index) == ["b"]
    both = MODEL.predict([DATA["b"], DATA["a"]])
    assert (both, list(both.to_frame().index)) == (["crow", "finch"], ["b", "a"])


@pytest.mark.parametrize("call", ["class_probabilities", "concept_probabilities", "predict", "predict_concepts"])
def test_they_become_labelled_tables_on_request(call):
    names = CLASSES if call in ("class_probabilities", "predict") else CONCEPTS
    frame = getattr(MODEL, call)(DATA).to_frame()
    assert (list(frame.columns), list(frame.index)) == (list(names), ["a", "b"])
    numbered = getattr(MODEL, call)(X).to_frame()
    assert list(numbered.index) == [0, 1]
    assert np.array_equal(frame.to_numpy(), numbered.to_numpy())


def test_an_intervention_is_labelled_too():
    frame = MODEL.intervene(DATA, {"color": "red"}).to_frame()
    assert (list(frame.columns), frame.loc["a"].idxmax()) == (list(CLASSES), "finch")


def test_an_intervention_that_is_no_mapping_is_refused():
    with pytest.raises(ecbm.InputError, match=r"intervention: expected \{concept: value\}, got list"):
        MODEL.intervene(X, ["round"])


def test_what_is_computed_from_labelled_probabilities_is_a_plain_tensor():
    labelled = MODEL.class_probabilities(X)
    assert isinstance(labelled, torch.Tensor)
    for derived in (labelled + 1, labelled[0], labelled.argmax(1), labelled.float(), torch.cat([labelled] * 2)):
        assert type(derived) is torch.Tensor
    again = copy.deepcopy(MODEL.predict(DATA))
    assert (again, list(again.to_frame().index)) == (["finch", "crow"], ["a", "b"])


@pytest.mark.parametrize("x", [None, "a", ["a"], {}, [[1.0, 2], [3]], DATA.to_frame()], ids=repr)
def test_what_holds_no_inputs_is_refused_in_one_line(x):
    with pytest.raises(ecbm.InputError, match=r"inputs: expected numbers .* or a dataset, got \w+$"):
        MODEL.class_probabilities(x)


def test_a_model_says_what_it_is():
    data = tabular(60)
    model = ecbm.train(data)
    assert repr(model) == (
        "ConceptBottleneck(sequential, linear backbone, inputs (6,) → 5 concepts in 3 groups → 3 classes, "
        "53 parameters)"
    )
    markup = model._repr_html_()
    assert "color::red, color::blue" in markup
    assert model.fingerprint in markup
    model.provenance = Provenance()
    assert "<script" not in hand_model(WEIGHT, classes=["<script>", "b", "c"])._repr_html_()
