"""Influence through solved heads: against dense derivatives, and against what really happens."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch.func import hessian, jacrev
from torch.nn import functional

import ecbm
import number_kit
import types_kit
from ecbm.errors import InputError
from ecbm.train.heads.activations import activate
from ecbm.train.heads.objectives import concept_losses, rows_of, with_ones
from ecbm.verify.influence import concept_side, label_side
from ecbm.verify.influence.asking import Influence
from ecbm.verify.influence.confirm import actual_change, measured
from ecbm.verify.influence.targets import target_of
from kit import tabular

LINEAR = ecbm.Recipe(backbone="linear")
CASES = {
    "logits": (lambda: tabular(200), LINEAR),
    "probabilities": (lambda: tabular(200), LINEAR.replace(bottleneck="probabilities")),
    "independent, probabilities": (
        lambda: tabular(200),
        LINEAR.replace(regime="independent", bottleneck="probabilities"),
    ),
    "joint": (lambda: tabular(200), LINEAR.replace(regime="joint")),
    "weights that follow the labels": (
        lambda: tabular(200, missing=0.2),
        LINEAR.replace(pos_weight="balanced"),
    ),
    "sparse": (lambda: tabular(200), LINEAR.replace(label_l1=0.01)),
    "typed": (lambda: types_kit.mixed(240), LINEAR),
    "numbers": (lambda: number_kit.numbered(240), LINEAR),
}


@functools.cache
def asked_about(case: str) -> Influence:
    make, recipe = CASES[case]
    data = make()
    return Influence(ecbm.Editor(ecbm.train(data, recipe), data))


def by_autograd(asked: Influence, of: str) -> tuple[Tensor, Tensor]:
    """ż and l̇ of all training samples, by dense Hessians and Jacobians of the objectives as they are written."""
    state = asked.editor.state
    model, recipe, terms = state.model, state.model.recipe, state.terms
    target = target_of(model, state.data, of)
    inputs, (k, d) = state.design, rows_of(model.concept_head).shape
    classes = len(model.class_names)
    n, alpha, beta = len(inputs), recipe.concept_regularisation, recipe.label_regularisation
    concept, label = rows_of(model.concept_head).flatten(), rows_of(model.label_head).flatten()
    targets, weights = terms.targets.double(), terms.weights.double()

    def read(rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        logits = rows @ at.view(k, d).T
        seen = logits if recipe.bottleneck == "logits" else activate(logits, terms.layout)
        return logits, torch.cat([seen, torch.ones(len(seen), 1, dtype=torch.float64)], 1)

    def of_concepts(at: Tensor) -> Tensor:
        losses = concept_losses(read(inputs, at)[0], targets, weights, terms.layout)
        return losses.sum() / n + 0.5 * alpha * at @ at

    def of_label(at: Tensor, head: Tensor) -> Tensor:
        outputs = read(inputs, at)[1] @ head.view(classes, k + 1).T
        return functional.cross_entropy(outputs, state.train.labels) + 0.5 * beta * head @ head

    def measure(at: Tensor, head: Tensor) -> Tensor:
        logits, seen = read(asked.heads.features(target), at)
        outputs = seen @ head.view(classes, k + 1).T
        shares = target.terms.weights.double()
        concepts = concept_losses(logits, target.terms.targets.double(), shares, terms.layout).sum()
        return concepts + (target.shares * functional.cross_entropy(outputs, target.labels, reduction="none")).sum()

    by_concept, by_label = jacrev(measure, (0, 1))(concept, label)
    along = torch.linalg.solve(hessian(of_label, 1)(concept, label), by_label)
    cross = jacrev(lambda at: jacrev(of_label, 1)(at, label))(concept)
    moved = torch.linalg.solve(hessian(of_concepts)(concept), by_concept - cross.T @ along)
    seen = read(inputs, concept)[1]
    return inputs @ moved.view(k, d).T, seen @ along.view(classes, k + 1).T


@pytest.mark.parametrize("iterated", [False, True])
@pytest.mark.parametrize("of", ["val", "s7"])
@pytest.mark.parametrize("case", ["logits", "probabilities"])
def test_sensitivities_are_those_of_dense_implicit_differentiation(case, of, iterated, monkeypatch):
    asked = asked_about(case)
    if iterated:
        monkeypatch.setattr(concept_side, "_DENSE_SIZE", 0)
        monkeypatch.setattr(label_side, "_WHOLE", 0)
        asked = Influence(asked.editor)
    concepts, classes = by_autograd(asked, of)
    found = asked.heads.sensitivity(asked.target(of), tolerance=1e-9)
    assert torch.allclose(found.concepts, concepts, rtol=1e-3, atol=1e-5 * float(concepts.abs().max()))
    difference = found.classes - classes
    difference = difference - difference.mean(1, keepdim=True)  # what all classes share moves no probability
    assert float(difference.abs().max()) < 1e-4 * float(classes.abs().max())


@pytest.mark.parametrize("case", CASES)
def test_leaving_samples_out_changes_the_validation_loss_as_predicted(case):
    asked = asked_about(case)
    count = 12 if case == "joint" else 24
    ids = asked.editor.state.train.ids[:count]
    target = asked.target("val")
    predicted = asked.sample_changes(target)[:count].numpy()
    actual = np.array([actual_change(asked.editor, target, ecbm.Edit(remove_samples=[one])) for one in ids])
    assert spearmanr(predicted, actual).statistic > 0.97
    assert predicted @ actual / (predicted @ predicted) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("case", CASES)
def test_flipping_labels_changes_the_validation_loss_as_predicted(case):
    asked = asked_about(case)
    table = asked.labels("val")
    table = table.iloc[:: len(table) // (10 if case == "joint" else 20)].reset_index(drop=True)
    actual = asked._actual("labels", table, asked.target("val"), len(table))
    assert spearmanr(table["change"], actual).statistic > 0.97


@pytest.mark.parametrize("case", CASES)
def test_sets_left_out_change_the_loss_as_predicted(case):
    asked = asked_about(case)
    ids, draw = np.array(asked.editor.state.train.ids), np.random.default_rng(0)
    target = asked.target("val")
    groups = [draw.choice(ids, len(ids) // 8, replace=False).tolist() for _ in range(8 if case == "joint" else 16)]
    actual = np.array([asked.group_change(group, target, "exact") for group in groups])
    first = np.array([asked.group_change(group, target, "sum") for group in groups])
    assert spearmanr(first, actual).statistic > 0.8
    if case == "joint":
        assert asked.group_change(groups[0], target) == first[0]
        with pytest.raises(InputError, match="this model has 'sum'"):
            asked.group_change(groups[0], target, "newton")
        return
    predicted = np.array([asked.group_change(group, target) for group in groups])
    assert spearmanr(predicted, actual).statistic > 0.98
    assert np.abs(predicted - actual).max() < 0.5 * np.abs(first - actual).max(), "a sum loses what samples share"


def test_sets_are_asked_by_name_and_a_set_that_is_none_is_refused():
    asked = asked_about("typed")
    ids = list(asked.editor.state.train.ids)
    table = asked.sets({"first": ids[:9], "second": ids[9:12]}, exact=1)
    assert list(table.columns) == ["id", "concept", "set", "samples", "change", "sum", "actual"]
    assert table["change"].is_monotonic_increasing
    first = table[table["set"] == "first"].iloc[0]
    assert first["samples"] == 9
    assert first["change"] == asked.group_change(ids[:9], asked.target("val"))
    assert first["actual"] == pytest.approx(first["change"], rel=0.3)
    assert table["actual"].isna().sum() == 1
    whole = ecbm.influence(asked, together=ids[:9])
    assert whole["change"].tolist() == [first["change"]]
    other = next(name for name in asked.editor.data.ids if name not in set(ids))
    for wrong, words in (
        ([], "at least one id"),
        ("s1", "at least one id"),
        ([ids[0], ids[0]], "names a sample twice"),
        ([other], "unknown sample"),
        (ids, "must leave training samples"),
    ):
        with pytest.raises(InputError, match=words):
            asked.group_change(wrong, asked.target("val"))
    with pytest.raises(InputError, match="together= is for kind='samples'"):
        ecbm.influence(asked, kind="labels", together=ids[:2])
    with pytest.raises(InputError, match="has no sets"):
        asked.sets({})


def test_the_exact_query_is_what_training_from_nothing_gives():
    asked = asked_about("logits")
    editor, target = asked.editor, asked.target("s7")
    table = asked.samples("s7", exact=4)
    for row in table.iloc[:4].itertuples():
        again = ecbm.train(ecbm.Edit(remove_samples=[row.id]).apply_to(editor.data), editor.model.recipe)
        change = measured(again, target, editor.model) - measured(editor.model, target, editor.model)
        assert row.actual == pytest.approx(change, abs=1e-8)
    assert table["actual"].iloc[4:].isna().all()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("case", ["logits", "probabilities", "independent, probabilities", "typed", "numbers"])
def test_all_concepts_at_once_agree_with_removing_them_one_by_one(case, blocks, monkeypatch):
    if blocks:
        monkeypatch.setattr(label_side, "_WHOLE", 0)
    asked = Influence(asked_about(case).editor)
    target = asked.target("val", "class")
    concepts = asked.editor.data.layout.concepts
    predicted = asked.concept_changes(target)
    for change, concept in zip(predicted.tolist(), concepts, strict=True):
        actual = actual_change(asked.editor, target, ecbm.Edit(remove_concepts=[concept.name]))
        assert change == pytest.approx(actual, abs=1e-5)


def test_an_independent_model_on_logits_feels_the_quantiles_it_reads():
    data = tabular(300, seed=6)
    asked = Influence(ecbm.Editor(ecbm.train(data, LINEAR.replace(regime="independent")), data))
    table = asked.labels("val").iloc[::30].reset_index(drop=True)
    actual = asked._actual("labels", table, asked.target("val"), len(table))
    assert spearmanr(table["change"], actual).statistic > 0.9


def test_a_target_is_the_mean_loss_of_concepts_plus_that_of_classes():
    data = tabular(120, missing=0.3)
    model = ecbm.train(data, LINEAR)
    asked = Influence(ecbm.Editor(model, data))
    part = data.split("val")
    logits = model.concept_logits(part)
    known = ~part.concepts.isnan()
    concepts = functional.binary_cross_entropy_with_logits(logits[known], part.concepts[known].double())
    classes = -model.class_probabilities(part).log()[torch.arange(len(part)), part.labels].mean()
    for loss, expected in (("all", concepts + classes), ("class", classes), ("concepts", concepts)):
        assert asked.value(asked.target("val", loss)) == pytest.approx(float(expected), rel=1e-9)
    column = part.concept_names.index("round")
    own = known[:, column]
    expected = functional.binary_cross_entropy_with_logits(logits[own, column], part.concepts[own, column].double())
    assert asked.value(asked.target("val", "round")) == pytest.approx(float(expected), rel=1e-9)
    crow = -model.class_probabilities(data.select([data.row("s3")])).log()[0, 2]
    assert asked.value(asked.target("s3", label="crow")) == pytest.approx(float(crow), rel=1e-9)


def test_removing_a_sample_of_a_class_lowers_that_class_s_probability_elsewhere():
    asked = asked_about("logits")
    table = asked.samples("s8", label="crow")
    means = table.groupby("label")["change"].mean()
    assert means["crow"] > means[["finch", "wren"]].max()


def test_design_of_targets_reads_kept_validation_features():
    asked = asked_about("logits")
    assert asked.heads.features(asked.target("val")) is asked.editor.state.validation
    one = asked.heads.features(asked.target("s7"))
    row = asked.editor.data.split("val").ids.index("s7")
    assert torch.equal(one[0], asked.editor.state.validation[row])
    assert with_ones(one[:, :-1]).shape == one.shape
