"""The quick check computes the record again: weights that somebody moved are found, whatever the record says."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

import ecbm
from ecbm.verify.audit.quick import Parent, Recorded, check_quickly
from kit import pictures, tabular

RECIPE = ecbm.Recipe(backbone="linear")


def recorded(report: dict, solved: bool = True) -> Recorded:
    return Recorded(
        report["method"], solved, report["residual"], report["objective"]["after"], report["drift"],
        report["changed"], report.get("traces"),
    )  # fmt: skip


def nudged(model: ecbm.ConceptBottleneck, head: str, by: float) -> ecbm.ConceptBottleneck:
    other = copy.deepcopy(model)
    with torch.no_grad():
        getattr(other, head).weight[0, 0] += by
    return other


@pytest.mark.parametrize("kind", ["plain", "missing", "soft"])
def test_an_honest_edit_passes_and_doing_nothing_would_not(kind: str) -> None:
    data = tabular(120, 5, missing=0.1 if kind == "missing" else 0.0, soft=kind == "soft")
    model = ecbm.train(data, RECIPE)
    edit = ecbm.Edit(remove_samples=data.split("train").ids[:6])
    result = ecbm.Editor(model, data).apply(edit)
    found = check_quickly(result.model, result.data, recorded(result.report), Parent(model, data, edit))
    assert found["verdict"] == "passed", found["why"]
    assert found["controls"]["noop"]["caught"] is True
    assert found["controls"]["noop"]["residual"]["concept_head"] > 1e-4
    assert found["certificate"]["class_predictions_that_could_differ"] == 0
    assert found["drift"]["seed_noise_rms"] == 0.0
    assert found["edit"]["auc"] is None, "no membership test was made"


@pytest.mark.parametrize("head", ["concept_head", "label_head"])
@pytest.mark.parametrize("by", [1e-6, 1e-2])
def test_nudged_weights_are_caught_with_and_without_a_record(head: str, by: float) -> None:
    data = tabular(120, 5)
    result = ecbm.Editor(ecbm.train(data, RECIPE), data).apply(ecbm.Edit(remove_samples=["s0"]))
    doctored = nudged(result.model, head, by)
    assert check_quickly(doctored, result.data, recorded(result.report))["verdict"] == "failed"
    found = ecbm.verify(doctored, result.data)
    assert found["verdict"] == "failed"
    assert head.replace("_", " ") in found["why"]


def test_the_unedited_model_under_the_name_of_the_edit_is_caught() -> None:
    data = tabular(120, 5)
    model = ecbm.train(data, RECIPE)
    edited = ecbm.Edit(remove_samples=["s0", "s1"]).apply_to(data)
    lie = copy.deepcopy(model)
    lie.provenance = dataclasses.replace(lie.provenance, data_fingerprint=edited.fingerprint)
    assert ecbm.verify(lie, edited)["verdict"] == "failed"


def test_an_influence_step_is_held_against_its_own_record() -> None:
    data = tabular(120, 5)
    edit = ecbm.Edit(remove_samples=data.split("train").ids[:6])
    result = ecbm.Editor(ecbm.train(data, RECIPE), data).apply(edit, "ekfac")
    known = recorded(result.report, solved=False)
    assert check_quickly(result.model, result.data, known)["verdict"] == "passed"
    assert check_quickly(nudged(result.model, "concept_head", 1e-2), result.data, known)["verdict"] == "failed"


def test_an_edit_that_touches_no_training_term_has_no_control_and_passes() -> None:
    data = tabular(120, 5)
    model = ecbm.train(data, RECIPE)
    outside = data.split("val").ids[0]
    edit = ecbm.Edit(remove_samples=[outside])
    result = ecbm.Editor(model, data).apply(edit)
    found = check_quickly(result.model, result.data, recorded(result.report), Parent(model, data, edit))
    assert (found["verdict"], found["controls"]["noop"]["caught"]) == ("passed", None)


def test_a_network_whose_backbone_was_moved_is_caught_by_its_heads() -> None:
    data = pictures(120)
    model = ecbm.train(data, ecbm.Recipe(backbone="convnet", epochs=1, patience=None))
    edit = ecbm.Edit(remove_samples=data.split("train").ids[:4])
    result = ecbm.Editor(model, data).apply(edit, "exact")
    known = recorded(result.report)
    found = check_quickly(result.model, result.data, known, Parent(model, data, edit))
    assert found["verdict"] == "passed", found["why"]
    assert "may remain" in found["why"], "a passed check of the heads says what the backbone has seen"
    doctored = copy.deepcopy(result.model)
    with torch.no_grad():
        next(doctored.backbone.parameters()).mul_(1.05)
    assert check_quickly(doctored, result.data, known)["verdict"] == "failed"
