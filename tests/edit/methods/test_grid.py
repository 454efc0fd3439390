"""Deep backbones: every method at every level and regime, complete reports, nothing skipped in silence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from edit_kit import LEVELS, METHODS, edit_of, spare
from torch import nn

import ecbm
from ecbm.edit import methods
from ecbm.edit.carry import restandardise
from ecbm.edit.report import json_ready
from ecbm.train.heads.objectives import with_ones
from ecbm.train.terms import concept_terms
from kit import concept_objective, tabular

DATA = tabular(60, missing=0.05)
BIRDS = ecbm.datasets.birds(n=80, size=24)
FIELDS = {
    "method",
    "edit",
    "changed",
    "settings",
    "seconds",
    "objective",
    "statistics_refitted",
    "not_covered",
    "notes",
    "drift",
    "certificate",
    "residual",
    "no_certificate_for_backbone",
}
_EDITORS: dict[str, ecbm.Editor] = {}


class Normalised(nn.Module):
    """A backbone with BatchNorm and a parameter that no curvature covers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x) * self.scale
        return out


RECIPES: dict[str, tuple[ecbm.Dataset, dict[str, Any]]] = {
    "mlp-sequential-logits": (DATA, {"backbone": "mlp"}),
    "mlp-sequential-probabilities": (DATA, {"backbone": "mlp", "bottleneck": "probabilities"}),
    "mlp-independent-logits": (DATA, {"backbone": "mlp", "regime": "independent", "pos_weight": "balanced"}),
    "mlp-joint-probabilities": (
        DATA,
        {"backbone": "mlp", "regime": "joint", "bottleneck": "probabilities"},
    ),
    "batchnorm-sequential-logits": (DATA, {"backbone": Normalised()}),
    "convnet-sequential-logits": (BIRDS, {"backbone": "convnet"}),
}


def editor_for(name: str) -> ecbm.Editor:
    if name not in _EDITORS:
        data, options = RECIPES[name]
        recipe = ecbm.Recipe(**({"hidden": (6,), "epochs": 2, "batch_size": 16} | options))
        _EDITORS[name] = ecbm.Editor(ecbm.train(data, recipe), data)
    return _EDITORS[name]


def birds_edit(level: str) -> ecbm.Edit:
    train = BIRDS.split("train")
    gone = spare(BIRDS, 2)
    flips = [(i, BIRDS.concept_names[0], 1 - float(train.concepts[train.row(i), 0])) for i in train.ids[-3:]]
    more = ecbm.datasets.birds(n=80, size=24, seed=3).select([0, 1])
    more = ecbm.Dataset(["p", "q"], more.inputs, more.concepts, more.labels, more.concept_names, more.class_names)
    parts: dict[str, dict[str, Any]] = {
        "correct concepts": {"correct_concepts": flips},
        "soften and blank concepts": {"correct_concepts": [(train.ids[-1], BIRDS.concept_names[1], None)]},
        "correct classes": {"correct_labels": [(gone[0], BIRDS.class_names[0])]},
        "remove concepts": {"remove_concepts": BIRDS.concept_names[1:3]},
        "add concepts": {"add_concepts": {"fresh": {i: n % 2 for n, i in enumerate(train.ids) if i not in gone}}},
        "remove samples": {"remove_samples": gone},
        "add samples": {"add_samples": more},
    }
    if level != "mix":
        return ecbm.Edit(**parts[level])
    chosen = ("correct concepts", "remove concepts", "add concepts", "remove samples", "add samples")
    return ecbm.Edit(**{key: value for part in chosen for key, value in parts[part].items()})


def check_report(report: dict[str, Any], method: str) -> None:
    assert report.keys() - {"warning", "traces"} == FIELDS
    assert ("traces" in report) == ("remove 2 samples" in report["edit"] or "remove 1 sample" in report["edit"])
    assert report["method"] == method
    json.dumps(report, allow_nan=False)
    assert report["changed"]["terms"] > 0
    assert all(seconds >= 0 for seconds in report["seconds"].values())
    assert {"prepare", "edit", "report"} <= report["seconds"].keys()
    for when in ("before", "after"):
        assert report["objective"][when].keys() == {"concepts", "labels"}
    assert report["drift"]["split"] == "val"
    if method in ("ekfac", "hessian"):
        before, after = report["objective"]["before"], report["objective"]["after"]
        worse = [stage for stage in before if not after[stage] <= before[stage] * (1 + 1e-9)]
        if report["settings"]["guarded"]:
            assert "concepts" not in worse
            assert "warning" not in report
        else:
            assert ("warning" in report) == bool(worse)


def test_every_registered_method_is_tested_here_and_stands_in_the_guide() -> None:
    assert set(METHODS) == set(methods.METHODS)
    guide = (Path(__file__).parents[3] / "docs" / "editing.md").read_text(encoding="utf-8")
    for method in METHODS:
        assert f'| `"{method}"`' in guide


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("convnet")])
def test_every_method_runs_at_every_level(name: str, level: str, method: str) -> None:
    editor = editor_for(name)
    model = editor.model.fingerprint
    result = editor.apply(edit_of(level, DATA, 2), method)
    check_report(result.report, method)
    if method in ("ekfac", "hessian"):
        check_report(editor.apply(edit_of(level, DATA, 2), method, guarded=False).report, method)
    assert editor.model.fingerprint == model
    assert result.model.concept_names == result.data.concept_names
    assert not result.model.training
    assert bool(torch.isfinite(result.model.class_probabilities(DATA.x)).all())
    assert ecbm.Editor(result.model, result.data)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_on_pictures(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecbm.edit.methods.solve._CG_ITERATIONS", 5)
    editor = editor_for("convnet-sequential-logits")
    result = editor.apply(birds_edit("mix"), method)
    check_report(result.report, method)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_of_pictures(level: str) -> None:
    editor = editor_for("convnet-sequential-logits")
    check_report(editor.apply(birds_edit(level), "ekfac").report, "ekfac")
    exact = editor.apply(birds_edit(level), "exact")
    check_report(exact.report, "exact")
    assert exact.report["certificate"]["class_predictions_that_could_differ"] == 0


@pytest.mark.parametrize("form", ["difference", "full"])
@pytest.mark.parametrize("fisher", ["true", "empirical", "exact"])
def test_both_fishers_and_both_gradients_run(fisher: Any, form: str) -> None:
    editor = editor_for("mlp-sequential-logits")
    report = editor.apply(edit_of("mix", DATA, 2), "ekfac", fisher=fisher, gradient=form).report
    assert report["settings"]["fisher"] == fisher
    assert report["settings"]["gradient"] == form
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("method", ["ekfac", "auto"])
def test_uncovered_parameters_are_listed(method: str) -> None:
    editor = editor_for("batchnorm-sequential-logits")
    result = editor.apply(edit_of("correct concepts", DATA, 2), method)
    if method == "ekfac":
        assert "backbone.scale" in result.report["not_covered"]
    for name, buffer in editor.model.backbone.named_buffers():
        if "running" in name:
            assert torch.equal(dict(result.model.backbone.named_buffers())[name], buffer)


def test_a_step_that_blows_up_is_kept_and_said() -> None:
    recipe = ecbm.Recipe(
        backbone="mlp", hidden=(32, 32), epochs=15, patience=None, concept_l2=1e-5, learning_rate=0.03
    )
    editor = ecbm.Editor(ecbm.train(DATA, recipe), DATA)
    report = editor.apply(edit_of("correct concepts", DATA, 9), "ekfac", damping=0.0, guarded=False).report
    json.dumps(report, allow_nan=False)
    assert report["objective"]["after"]["concepts"] > 10 * report["objective"]["before"]["concepts"]
    assert "got worse" in report["warning"]


def test_a_report_is_json_even_beyond_all_numbers() -> None:
    ready = json_ready({"a": [math.inf, 1.0, (math.nan, 2)], "b": {"c": -math.inf}, "d": "text", "e": True})
    assert ready == {"a": [None, 1.0, [None, 2]], "b": {"c": None}, "d": "text", "e": True}


@pytest.mark.parametrize("name", ["mlp-sequential-logits", "mlp-joint-probabilities", "convnet-sequential-logits"])
def test_retrain_is_training_bit_for_bit(name: str) -> None:
    editor = editor_for(name)
    edit = birds_edit("mix") if "convnet" in name else edit_of("mix", DATA, 2)
    result = editor.apply(edit, "retrain")
    again = ecbm.train(result.data, editor.model.recipe_for(result.data.concept_names))
    assert result.model.fingerprint == again.fingerprint


def test_retraining_can_start_warm() -> None:
    editor = editor_for("mlp-sequential-logits")
    edit = edit_of("mix", DATA, 2)
    warm, cold = (editor.apply(edit, "retrain", warm_start=start) for start in (True, False))
    assert warm.report["settings"]["warm_start"] is True
    assert warm.model.fingerprint != cold.model.fingerprint
    for name, value in cold.model.backbone.named_buffers():
        assert torch.equal(dict(warm.model.backbone.named_buffers())[name], value)


def test_the_certificate_is_about_the_features_the_model_has() -> None:
    """Removing samples rewrites the first layer; the heads are solved on what it then gives, rounding included."""
    editor = editor_for("mlp-sequential-logits")
    result = editor.apply(edit_of("remove samples", DATA, 2), "exact")
    model, train = result.model, result.data.split("train")
    design = with_ones(model.features(train.x))
    rows = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach()
    terms = concept_terms(train.concepts, model.positive_weights)
    gradient = concept_objective(
        design, terms.targets.double(), terms.weights.double(), rows, model.recipe.concept_regularisation
    )[1]
    assert float(gradient.norm()) < 1e-10
    assert result.report["residual"]["concept_head"] == pytest.approx(float(gradient.norm()), abs=1e-12)


def test_rewriting_the_standardisation_changes_no_output() -> None:
    for name in ("mlp-sequential-logits", "batchnorm-sequential-logits"):
        model = editor_for(name).model
        other = restandardise(model, DATA.split("test"))
        torch.testing.assert_close(other.concept_logits(DATA.x), model.concept_logits(DATA.x), rtol=1e-4, atol=1e-5)


def test_edits_on_edits() -> None:
    now = editor_for("mlp-sequential-logits")
    for turn, method in enumerate(("ekfac", "exact", "hessian", "auto", "ekfac")):
        name = spare(now.data, 8)[turn]
        result = now.apply(ecbm.Edit(remove_samples=[name]), method)
        check_report(result.report, method)
        now = now.follow(result)
    assert len(now.data) == len(DATA) - 5


@pytest.mark.parametrize("level", ["correct concepts", "add concepts", "remove samples"])
def test_a_step_that_leaves_all_numbers_is_reported_and_proves_nothing(level: str) -> None:
    """Every layer makes the whole correction: forty of them go beyond float32."""
    torch.manual_seed(0)
    data, width, layers = tabular(200, missing=0.05), 6, list[nn.Module]()
    for _ in range(40):
        layers += [nn.Linear(width, 32), nn.ReLU()]
        nn.init.orthogonal_(layers[-2].weight, math.sqrt(2))
        width = 32
    recipe = ecbm.Recipe(backbone=nn.Sequential(*layers), epochs=2, concept_l2=1e-6, learning_rate=1e-3)
    editor = ecbm.Editor(ecbm.train(data, recipe), data)
    report = editor.apply(edit_of(level, data, 9), "ekfac", damping=0.0, guarded=False).report
    json.dumps(report, allow_nan=False)
    if level == "correct concepts":
        assert report["objective"]["after"]["concepts"] is None
    if report["objective"]["after"]["concepts"] is None:
        certificate = report["certificate"]
        assert certificate["class_predictions_that_could_differ"] == certificate["validation_samples"]
        assert certificate["concept_distance"] is None
        assert "got worse" in report["warning"]


def test_the_label_heads_curvature_is_an_option_of_its_own() -> None:
    editor = ecbm.Editor(ecbm.train(DATA, ecbm.Recipe(backbone="linear")), DATA)
    edit = edit_of("correct concepts", DATA, 2)
    default, zero = (editor.apply(edit, "ekfac", damping=damping) for damping in (None, 0.0))
    assert default.report["settings"] == zero.report["settings"]
    assert default.model.fingerprint == zero.model.fingerprint
    kronecker = editor.apply(edit, "ekfac", label_curvature="ekfac")
    assert (kronecker.report["settings"]["label_curvature"], default.report["settings"]["label_curvature"]) == (
        "ekfac",
        "blocks",
    )
    assert kronecker.model.fingerprint != default.model.fingerprint
    with pytest.raises(ecbm.InputError, match="label_curvature must be one of"):
        editor.apply(edit, "ekfac", label_curvature="exact")


def test_a_frozen_ekfac_edit_fits_no_kronecker_factors() -> None:
    editor = ecbm.Editor(ecbm.train(DATA, ecbm.Recipe(backbone="linear")), DATA)
    editor.apply(edit_of("remove samples", DATA, 2), "ekfac")
    assert not any("curvature" in name for name in editor.state.seconds)
