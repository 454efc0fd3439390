"""Metrics and intervention curves of concepts of every type."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm.verify.interventions import POLICIES, group_order, intervention_curve
from ecbm.verify.leakage import concept_leakage
from types_kit import CATEGORICAL, CONTINUOUS, ORDINAL, mixed

DATA = mixed(240)
TEST = DATA.split("test")


@pytest.fixture(scope="module", params=["logits", "probabilities"])
def model(request: pytest.FixtureRequest) -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, ecbm.Recipe(backbone="linear", bottleneck=request.param))


def test_metrics_are_those_of_the_types(model: ecbm.ConceptBottleneck) -> None:
    found = ecbm.evaluate(model, TEST)
    per, values, truth = found["per_concept"], model.concept_probabilities(TEST), TEST.concepts
    assert list(per) == ["striped", "colour", "severity", "size", "crest"]
    known = ~truth[:, CONTINUOUS].isnan()
    gap = (values[known, CONTINUOUS] - truth[known, CONTINUOUS]).double()
    assert per["size"]["rmse"] == pytest.approx(float(gap.square().mean().sqrt()))
    assert per["size"]["unit"] == "mm"
    known = ~truth[:, ORDINAL[0]].isnan()
    grades = [(part[known][:, list(ORDINAL)] >= 0.5).sum(1) for part in (values, truth)]
    assert per["severity"]["grade_error"] == pytest.approx(float((grades[0] - grades[1]).abs().double().mean()))
    assert found["concept_grade_error"] == per["severity"]["grade_error"]
    known = ~truth[:, CATEGORICAL[0]].isnan()
    colours = [part[known][:, list(CATEGORICAL)].argmax(1) for part in (values, truth)]
    assert per["colour"]["accuracy"] == pytest.approx(float((colours[0] == colours[1]).double().mean()))
    labels = sum(per[name]["count"] for name in ("striped", "colour", "severity", "crest"))
    right = sum(per[name]["accuracy"] * per[name]["count"] for name in ("striped", "colour", "severity", "crest"))
    assert found["concept_accuracy"] == pytest.approx(right / labels)
    assert found["concept_r2"] > 0.5


def test_a_model_that_knows_better_than_chance_is_seen_to(model: ecbm.ConceptBottleneck) -> None:
    per = ecbm.evaluate(model, TEST)["per_concept"]
    assert per["colour"]["accuracy"] > 0.55
    assert per["colour"]["auc"] > 0.75
    assert per["severity"]["auc"] > 0.75


@pytest.mark.parametrize("policy", POLICIES)
def test_corrected_concepts_of_every_type_help(policy: str) -> None:
    recipe = ecbm.Recipe(backbone="linear", bottleneck="probabilities", regime="independent")
    model = ecbm.train(mixed(240, missing=0.0), recipe)
    curve = intervention_curve(model, mixed(240, seed=5, missing=0.0), policy)
    assert len(curve) == 6
    assert curve[-1] > curve[0] + 0.03


def test_a_sure_colour_is_asked_after_an_unsure_one(model: ecbm.ConceptBottleneck) -> None:
    logits = torch.full((1, 9), 20.0).double()
    logits[0, list(CATEGORICAL)] = 0.0
    assert int(group_order(model, logits, "uncertain")[0, 0]) == list(model.groups).index("colour")


def test_leakage_is_measured_with_every_type(model: ecbm.ConceptBottleneck) -> None:
    assert 0 <= concept_leakage(model, DATA).from_bottleneck <= 1
