"""What removed samples have left in a model, said of every method."""

from __future__ import annotations

import pytest
import torch

import ecbm
from kit import tabular

DATA = tabular(160, 4)
_EDITORS: dict[str, ecbm.Editor] = {}


def editor_for(backbone: str) -> ecbm.Editor:
    if backbone not in _EDITORS:
        options = {"hidden": (8, 8), "epochs": 6, "batch_size": 16} if backbone == "mlp" else {}
        data = ecbm.datasets.birds(n=90, size=24, seed=2) if backbone == "convnet" else DATA
        options |= {"epochs": 2} if backbone == "convnet" else {}
        _EDITORS[backbone] = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone=backbone, **options)), data)
    return _EDITORS[backbone]


def removal(editor: ecbm.Editor) -> ecbm.Edit:
    train = editor.data.split("train")
    counts = torch.bincount(train.labels)
    return ecbm.Edit(remove_samples=[next(i for i in train.ids if counts[train.labels[train.row(i)]] > 2)])


def test_an_edit_that_removes_nothing_speaks_of_no_traces() -> None:
    edit = ecbm.Edit(correct_concepts=[(DATA.split("train").ids[0], DATA.concept_names[0], None)])
    assert "traces" not in editor_for("linear").apply(edit).report


@pytest.mark.parametrize(("backbone", "method"), [("linear", "exact"), ("linear", "auto"), ("mlp", "retrain")])
def test_solved_heads_on_given_features_and_retraining_leave_nothing(backbone: str, method: str) -> None:
    editor = editor_for(backbone)
    traces = editor.apply(removal(editor), method).report["traces"]
    assert traces["solved_without_them"] == ["concept_head", "label_head"]
    assert not traces["as_before"]
    assert not traces["trained_on_without_them"]
    assert "nothing of the model has seen" in traces["words"]


def test_heads_alone_leave_the_whole_backbone_and_its_statistics() -> None:
    editor = editor_for("convnet")
    traces = editor.apply(removal(editor), "exact").report["traces"]
    named = {f"backbone.{name}" for name, _ in editor.model.backbone.named_parameters()}
    assert set(traces["as_before"]) == named
    assert traces["solved_without_them"] == ["concept_head", "label_head"]
    assert any("running_mean" in name for name in traces["statistics_as_before"])
    assert "retraining removes it" in traces["words"]


def test_a_live_tail_leaves_the_front_and_its_statistics() -> None:
    editor = editor_for("convnet")
    report = editor.apply(removal(editor), budget=0.9, tail=True).report
    cut = report["settings"]["ladder"][-1]
    assert cut["what"] == "live tail"
    assert cut["kept"]
    traces = report["traces"]
    assert traces["as_before"]
    assert traces["trained_on_without_them"]
    assert not set(traces["as_before"]) & set(traces["trained_on_without_them"])
    behind = {name.rsplit(".", 1)[0] for name in traces["trained_on_without_them"]}
    frozen = {name.rsplit(".", 1)[0] for name in traces["statistics_as_before"]}
    assert frozen
    assert not frozen & behind


def test_without_being_asked_a_small_removal_leaves_the_backbone() -> None:
    editor = editor_for("convnet")
    report = editor.apply(removal(editor), budget=0.9).report
    assert report["settings"]["kept_rung"] == "heads exactly"
    assert not report["traces"]["trained_on_without_them"]


def test_a_step_is_no_solution() -> None:
    editor = editor_for("mlp")
    traces = editor.apply(removal(editor), "ekfac", damping=1.0, guarded=False).report["traces"]
    assert traces["solved_without_them"] == []
    assert {"concept_head", "label_head"} <= set(traces["trained_on_without_them"])
