"""``exact`` on a frozen backbone equals retraining, and its certificate holds."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from edit_kit import (
    LEVELS,
    cosine,
    design_of,
    edit_of,
    flat,
    pos_weight,
    relative_gap,
    spare,
    standing_values,
    terms_of,
)

import ecbm
from ecbm.train import stages
from ecbm.train.heads.objectives import with_ones
from ecbm.train.model import ConceptBottleneck
from kit import newton_logistic, newton_multinomial, tabular

DATASETS = {
    "whole": tabular(90),
    "missing": tabular(90, missing=0.2, seed=1),
    "soft": tabular(90, missing=0.1, soft=True, seed=2),
}
# Every bottleneck with every regime, and every kind of label with every kind of weight.
SETTINGS = [
    ("logits", "sequential", "whole", "none"),
    ("logits", "sequential", "missing", "balanced"),
    ("logits", "sequential", "soft", "mapping"),
    ("probabilities", "sequential", "whole", "mapping"),
    ("probabilities", "sequential", "missing", "none"),
    ("probabilities", "sequential", "soft", "balanced"),
    ("logits", "independent", "whole", "balanced"),
    ("logits", "independent", "missing", "mapping"),
    ("probabilities", "independent", "soft", "none"),
    ("logits", "joint", "missing", "none"),
    ("probabilities", "joint", "soft", "balanced"),
]
_EDITORS: dict[tuple[str, ...], ecbm.Editor] = {}


def editor_for(bottleneck: str, regime: str, labels: str, weights: str) -> ecbm.Editor:
    key = (bottleneck, regime, labels, weights)
    if key not in _EDITORS:
        recipe = ecbm.Recipe(
            backbone="linear", regime=regime, bottleneck=bottleneck, pos_weight=pos_weight(weights)
        )
        data = DATASETS[labels]
        _EDITORS[key] = ecbm.Editor(ecbm.train(data, recipe), data)
    return _EDITORS[key]


def optimum(result: ecbm.EditResult) -> ConceptBottleneck:
    """The model that retraining to a gradient of 1e-14 gives, by dense Newton."""
    model, data = result.model, result.data
    train, recipe = data.split("train"), model.recipe
    trained = ecbm.train(data, recipe)
    design = design_of(trained, data)
    targets, weights = terms_of(trained, data)
    rows = [
        newton_logistic(design, targets[:, j], weights[:, j], recipe.concept_regularisation)
        for j in range(targets.shape[1])
    ]
    concept = torch.stack(rows)
    logits = design @ concept.T
    low, high = stages.logit_range(logits, train.concepts)
    read = with_ones(stages.label_inputs(recipe, logits, train.concepts, low, high))
    label = newton_multinomial(
        read,
        train.labels,
        torch.ones(len(read)).double(),
        len(data.class_names),
        recipe.label_regularisation,
    )
    with torch.no_grad():
        trained.concept_head.weight.copy_(concept[:, :-1])
        trained.concept_head.bias.copy_(concept[:, -1])
        trained.label_head.weight.copy_(label[:, :-1])
        trained.label_head.bias.copy_(label[:, -1])
    return trained


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("setting", SETTINGS, ids="-".join)
def test_exact_equals_retraining(setting: tuple[str, str, str, str], level: str) -> None:
    editor = editor_for(*setting)
    result = editor.apply(edit_of(level, editor.data), "exact")
    retrained = ecbm.train(result.data, editor.model.recipe_for(result.data.concept_names))
    joint = setting[1] == "joint"
    assert relative_gap(result.model, retrained) < (1e-3 if joint else 1e-6)
    mine, theirs = standing_values(result.model), standing_values(retrained)
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, rtol=0, atol=1e-2 if joint else 1e-7, msg=name)
    assert result.model.recipe == retrained.recipe
    certificate = result.report["certificate"]
    assert certificate["class_predictions_that_could_differ"] == 0
    assert certificate["concept_predictions_that_could_differ"] == 0
    json.dumps(result.report, allow_nan=False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "setting",
    [
        ("logits", "sequential", "missing", "balanced"),
        ("probabilities", "sequential", "soft", "balanced"),
        ("logits", "independent", "missing", "mapping"),
    ],
    ids="-".join,
)
def test_the_certificate_holds_against_the_true_optimum(setting: tuple[str, str, str, str], level: str) -> None:
    editor = editor_for(*setting)
    result = editor.apply(edit_of(level, editor.data), "exact")
    true = optimum(result)
    bound = result.report["certificate"]
    # 1e-13: what is left of the reference's own error, its gradient of 1e-14 divided by α and β.
    concept = float((flat(result.model, "concept") - flat(true, "concept")).norm())
    label = float((flat(result.model, "class") - flat(true, "class")).norm())
    assert concept <= bound["concept_distance"] + 1e-12
    assert label <= bound["label_distance"] + 1e-11
    validation = result.data.split("val").x
    logits, true_logits = result.model.concept_logits(validation), true.concept_logits(validation)
    assert float((logits - true_logits).abs().max()) <= bound["largest_concept_logit_change"] + 1e-11
    classes, true_classes = (
        m.label_head(m.bottleneck_from(z)).detach() for m, z in ((result.model, logits), (true, true_logits))
    )
    assert float((classes - true_classes).abs().max()) <= bound["largest_class_logit_change"] + 1e-10
    assert torch.equal(classes.argmax(1), true_classes.argmax(1))
    assert torch.equal(logits > 0, true_logits > 0)


@pytest.mark.parametrize("method", ["ekfac", "hessian"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_certificate_holds_for_approximate_edits(level: str, method: str) -> None:
    """It needs no assumption about how parameters were found."""
    editor = editor_for("logits", "sequential", "missing", "balanced")
    result = editor.apply(edit_of(level, editor.data), method)
    true = optimum(result)
    bound = result.report["certificate"]
    assert (flat(result.model, "concept") - flat(true, "concept")).norm() <= bound["concept_distance"]
    assert (flat(result.model, "class") - flat(true, "class")).norm() <= bound["label_distance"]
    validation = result.data.split("val").x
    changed = result.model.concept_logits(validation) - true.concept_logits(validation)
    assert float(changed.abs().max()) <= bound["largest_concept_logit_change"]
    differ = result.model.class_probabilities(validation).argmax(1) != true.class_probabilities(validation).argmax(
        1
    )
    assert int(differ.sum()) <= bound["class_predictions_that_could_differ"]
    signs = (result.model.concept_logits(validation) > 0) != (true.concept_logits(validation) > 0)
    assert int(signs.sum()) <= bound["concept_predictions_that_could_differ"]


def test_auto_on_a_frozen_backbone_is_exact() -> None:
    editor = editor_for("logits", "sequential", "whole", "none")
    edit = edit_of("mix", editor.data)
    auto, exact = editor.apply(edit), editor.apply(edit, "exact")
    assert torch.equal(flat(auto.model), flat(exact.model))


def test_a_replaced_sample_is_read_anew() -> None:
    """An id that is removed and added with another input must not keep its old features."""
    editor = editor_for("logits", "sequential", "whole", "none")
    data = editor.data
    name = spare(data, 1)[0]
    old = data.select([data.row(name)])
    new = ecbm.Dataset([name], 3 - old.x, old.concepts, old.labels, old.concept_names, old.class_names, old.splits)
    steps = [ecbm.Edit(remove_samples=[name]), ecbm.Edit(add_samples=new)]
    together = ecbm.Edit(remove_samples=[name], add_samples=new)
    for edit, method in itertools.product((steps, together), ("exact", "retrain", "hessian", "ekfac")):
        result = editor.apply(edit, method)
        retrained = ecbm.train(result.data, editor.model.recipe)
        if method in ("exact", "retrain"):
            assert relative_gap(result.model, retrained) < 1e-6
        else:
            moved = flat(result.model, "concept") - flat(editor.model, "concept")
            assert cosine(moved, flat(retrained, "concept") - flat(editor.model, "concept")) > 0.9


def test_several_edits_in_one_step_are_one_edit() -> None:
    editor = editor_for("logits", "sequential", "missing", "balanced")
    one, two = edit_of("correct concepts", editor.data), edit_of("remove samples", editor.data, 8)
    later = ecbm.Edit(remove_samples=two.remove_samples[6:])
    batch = editor.apply([one, later, ecbm.Edit()], "exact")
    first = editor.apply(one, "exact")
    second = editor.follow(first).apply(later, "exact")
    assert relative_gap(batch.model, second.model) < 1e-8
    assert batch.data == second.data


def test_preview_is_the_report_and_keeps_nothing() -> None:
    editor = editor_for("logits", "sequential", "whole", "none")
    edit = edit_of("mix", editor.data)
    model, data = editor.model.fingerprint, editor.data.fingerprint
    preview = editor.preview(edit, method="exact")
    report = editor.apply(edit, "exact").report
    for one in (preview, report):
        one.pop("seconds")
    assert preview == report
    assert (editor.model.fingerprint, editor.data.fingerprint) == (model, data)


def test_retrain_is_training_bit_for_bit() -> None:
    for setting in (("logits", "sequential", "soft", "mapping"), ("logits", "joint", "missing", "none")):
        editor = editor_for(*setting)
        result = editor.apply(edit_of("mix", editor.data), "retrain")
        again = ecbm.train(result.data, editor.model.recipe_for(result.data.concept_names))
        assert result.model.fingerprint == again.fingerprint


def test_without_a_validation_split_the_training_samples_are_watched() -> None:
    data = tabular(40, splits=False)
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone="linear")), data)
    for method in ("exact", "ekfac", "hessian", "retrain"):
        report = editor.apply(edit_of("remove samples", data), method).report
        assert report["drift"]["split"] == "train"
        json.dumps(report, allow_nan=False)
