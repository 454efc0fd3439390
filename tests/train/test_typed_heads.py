"""Concept heads of every type: against a dense reference, and what each type promises of its predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ecbm
from ecbm.train.heads.joint import joint_objective
from ecbm.train.heads.mixed import solve_heads
from ecbm.train.heads.objectives import with_ones
from ecbm.train.terms import concept_scaling, positive_weights, terms_of
from types_kit import CATEGORICAL, CONTINUOUS, NAMES, ORDINAL, TYPES, head_rows, mixed, reference_of

LINEAR = ecbm.Recipe(backbone="linear")


@pytest.fixture(scope="module")
def data() -> ecbm.Dataset:
    return mixed()


@pytest.fixture(scope="module")
def model(data: ecbm.Dataset) -> ecbm.ConceptBottleneck:
    return ecbm.train(data, LINEAR)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_heads_of_every_type_are_those_of_a_dense_solve(missing: float) -> None:
    data = mixed(missing=missing)
    model = ecbm.train(data, LINEAR)
    torch.testing.assert_close(head_rows(model), reference_of(model, data).solve(), rtol=0, atol=1e-7)
    assert model.provenance.training["concept_gradient_norm"] < 1e-12


def test_soft_distributions_are_fitted_as_they_are(data: ecbm.Dataset) -> None:
    concepts = data.concepts.clone()
    known = ~concepts[:, 1].isnan()
    concepts[known, 1:4] = 0.8 * concepts[known, 1:4] + torch.tensor([0.1, 0.06, 0.04])
    soft = data.replace(concepts=concepts)
    model = ecbm.train(soft, LINEAR)
    torch.testing.assert_close(head_rows(model), reference_of(model, soft).solve(), rtol=0, atol=1e-6)


def test_binary_heads_do_not_depend_on_what_else_is_there(
    data: ecbm.Dataset, model: ecbm.ConceptBottleneck
) -> None:
    alone = data.replace(concepts=data.concepts[:, [0, 8]], concept_names=["striped", "crest"])
    binary = ecbm.train(alone, LINEAR)
    torch.testing.assert_close(head_rows(model)[[0, 8]], head_rows(binary), rtol=0, atol=1e-12)


def test_values_of_a_categorical_concept_sum_to_one(data: ecbm.Dataset, model: ecbm.ConceptBottleneck) -> None:
    far = 5 * data.x
    total = model.concept_probabilities(far)[:, list(CATEGORICAL)].sum(1)
    torch.testing.assert_close(total, torch.ones_like(total))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([None, "balanced", 4.0]))
def test_thresholds_of_an_ordinal_concept_are_in_order_for_any_data(seed: int, grades: int, weight: object) -> None:
    draw = torch.Generator().manual_seed(seed)
    n = 30
    grade = torch.randint(0, grades + 1, (n,), generator=draw)
    columns = torch.stack([(grade >= step).float() for step in range(1, grades + 1)], 1)
    names = [f"pain::>={step}" for step in range(1, grades + 1)]
    labels = torch.arange(n) % 2
    data = ecbm.Dataset(
        list(map(str, range(n))),
        torch.randn(n, 3, generator=draw),
        columns,
        labels,
        names,
        ["a", "b"],
        concept_types={"pain": "ordinal"},
    )
    model = ecbm.train(data, LINEAR.replace(pos_weight=weight))
    rows = head_rows(model)
    assert bool((rows[:, :-1] == rows[:1, :-1]).all())
    assert bool((rows[1:, -1] <= rows[:-1, -1] + 1e-9).all())
    chances = model.concept_probabilities(torch.randn(50, 3, generator=draw) * 10)
    assert bool((chances[:, 1:] <= chances[:, :-1] + 1e-9).all())


def test_a_continuous_concept_is_ridge_regression_in_its_unit(
    data: ecbm.Dataset, model: ecbm.ConceptBottleneck
) -> None:
    train = data.split("train")
    known = ~train.concepts[:, CONTINUOUS].isnan()
    size = train.concepts[known, CONTINUOUS].double().numpy()
    design = with_ones(model.features(train.inputs)).numpy()
    used = design[known.numpy()]
    penalty = LINEAR.concept_regularisation * len(design)
    found = np.linalg.solve(
        used.T @ used + penalty * np.eye(used.shape[1]), used.T @ ((size - size.mean()) / size.std())
    )
    expected = size.mean() + size.std() * (design @ found)
    shown = model.concept_probabilities(train.inputs)[:, CONTINUOUS]
    np.testing.assert_allclose(shown.numpy(), expected, rtol=1e-6)


def test_wide_features_give_the_same_as_the_normal_equations() -> None:
    draw = torch.Generator().manual_seed(3)
    design = with_ones(torch.randn(200, 350, generator=draw))
    data = mixed(200, missing=0.2)
    terms = terms_of(data, positive_weights(data, LINEAR), concept_scaling(data))
    column = torch.tensor([CONTINUOUS])
    part = terms.part(slice(None), column)
    solved = solve_heads(design, part.targets, part.weights, 0.1, part.layout, tolerance=1e-12)
    w = part.weights.double()
    matrix = design.T @ (w * design) / len(design) + 0.1 * torch.eye(351, dtype=torch.float64)
    right = design.T @ (w * part.targets.double()) / len(design)
    torch.testing.assert_close(solved.parameters.T, torch.linalg.solve(matrix, right), rtol=0, atol=1e-10)
    assert solved.gradient_norm < 1e-12


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
def test_the_joint_gradient_is_that_of_the_joint_objective(data: ecbm.Dataset, bottleneck: str) -> None:
    recipe = LINEAR.replace(regime="joint", bottleneck=bottleneck, joint_weight=0.7)
    train = data.split("train")
    terms = terms_of(train, positive_weights(train, recipe), concept_scaling(train))
    draw = torch.Generator().manual_seed(1)
    design = with_ones(train.x)
    label = torch.randn(3, 10, generator=draw).double()
    reference = reference_of(ecbm.train(data, LINEAR), data)
    concept = reference.rows(torch.randn(reference.count, generator=draw).double())

    def value(free: torch.Tensor, head: torch.Tensor) -> float:
        return float(joint_objective(design, terms, train.labels, recipe, reference.rows(free), head)[0])

    _, gradient, label_gradient = joint_objective(design, terms, train.labels, recipe, concept, label)
    at, step = reference.free(concept), 1e-6
    for _ in range(8):
        direction = torch.randn(reference.count, generator=draw).double()
        slope = (value(at + step * direction, label) - value(at - step * direction, label)) / (2 * step)
        assert slope == pytest.approx(float((gradient * reference.rows(direction)).sum()), rel=1e-5, abs=1e-7)
    turn = torch.randn(3, 10, generator=draw).double()
    slope = (value(at, label + step * turn) - value(at, label - step * turn)) / (2 * step)
    assert slope == pytest.approx(float((label_gradient * turn).sum()), rel=1e-5)


@pytest.mark.parametrize("regime", ["sequential", "joint"])
def test_a_deep_model_keeps_slopes_tied(data: ecbm.Dataset, regime: str) -> None:
    recipe = ecbm.Recipe(
        backbone="mlp", hidden=(6,), epochs=2, regime=regime, bottleneck="probabilities", patience=None
    )
    for resolved in (False, True):
        model = ecbm.train(data, recipe.replace(resolve_concept_head=resolved))
        rows = head_rows(model)[list(ORDINAL), :-1]
        assert bool((rows == rows[:1]).all())
    chances = model.concept_probabilities(data)[:, list(ORDINAL)]
    assert bool((chances[:, 1:] <= chances[:, :-1]).all())


# -- positive weights --------------------------------------------------------------------------------------


def test_balanced_weights_by_type(data: ecbm.Dataset) -> None:
    weights = positive_weights(data, LINEAR.replace(pos_weight="balanced"))
    counts = data.concepts[:, list(CATEGORICAL)].nansum(0).double()
    torch.testing.assert_close(weights[list(CATEGORICAL)], (counts.sum() / (3 * counts)).clamp(1 / 20, 20))
    assert len(set(weights[list(ORDINAL)].tolist())) == 1
    assert weights[CONTINUOUS] == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"severity::>=2": 3.0}, "is a threshold"),
        ({"size": 3.0}, "is continuous"),
        ({"colour": 3.0}, "weigh its values"),
        ({"colors": 3.0}, "unknown concept 'colors'"),
    ],
)
def test_positive_weights_that_make_no_sense_are_refused(data: ecbm.Dataset, setting: object, words: str) -> None:
    with pytest.raises(ecbm.InputError, match=words):
        ecbm.train(data, LINEAR.replace(pos_weight=setting))


def test_weighted_values_move_the_prediction_towards_them(data: ecbm.Dataset) -> None:
    heavy = ecbm.train(data, LINEAR.replace(pos_weight={"colour::green": 8.0, "severity": 8.0}))
    plain = ecbm.train(data, LINEAR)
    more = heavy.concept_probabilities(data).mean(0) - plain.concept_probabilities(data).mean(0)
    assert float(more[3]) > 0.05
    assert float(more[list(ORDINAL)].min()) > 0.02


# -- predictions and interventions -------------------------------------------------------------------------


def test_predictions_are_said_by_type(data: ecbm.Dataset, model: ecbm.ConceptBottleneck) -> None:
    said = model.predict_concepts(data[:1])[0]
    assert any(one.startswith("colour=") for one in said)
    assert any(one.startswith("severity=") for one in said)
    assert any(one.startswith("size=") and one.endswith(" mm") for one in said)


@pytest.mark.parametrize("bottleneck", ["logits", "probabilities"])
def test_an_intervention_sets_every_column_of_its_concept(data: ecbm.Dataset, bottleneck: str) -> None:
    model = ecbm.train(data, LINEAR.replace(bottleneck=bottleneck))
    set_to = {"colour": "blue", "severity": 2, "size": 25.0}
    found = {column: float(v[0]) for column, v in model.resolve_intervention(set_to, 1).items()}
    assert found == {1: 0.0, 2: 1.0, 3: 0.0, 4: 1.0, 5: 1.0, 6: 0.0, 7: 25.0}
    values = model.bottleneck_from(model.concept_logits(data[:1]))
    labels = torch.zeros(1, 9).double()
    labels[0, list(found)] = torch.tensor(list(found.values())).double()
    values[0, list(found)] = model.concept_values(labels)[0, list(found)]
    expected = torch.softmax(model.label_head(values), 1)
    torch.testing.assert_close(model.intervene(data[:1], set_to), expected.detach())
    scale = model.concept_values(labels)[0, 7]
    train = data.split("train").concepts[:, 7].double()
    known = train[~train.isnan()]
    assert float(scale) == pytest.approx(float((25 - known.mean()) / known.std(correction=0)))


def test_percentiles_are_those_of_the_training_labels(data: ecbm.Dataset, model: ecbm.ConceptBottleneck) -> None:
    size = data.split("train").concepts[:, CONTINUOUS].double()
    expected = float(torch.quantile(size[~size.isnan()], 0.9))
    assert float(model.resolve_intervention({"size": "p90"}, 1)[CONTINUOUS]) == pytest.approx(expected)


def test_one_column_implies_what_it_implies(model: ecbm.ConceptBottleneck) -> None:
    def found(name: str, value: float) -> dict[int, float]:
        return {column: float(v) for column, v in model.resolve_intervention({name: value}, 1).items()}

    assert found("severity::>=2", 1) == {4: 1.0, 5: 1.0}
    assert found("severity::>=2", 0) == {5: 0.0, 6: 0.0}
    assert found("colour::blue", 1) == {1: 0.0, 2: 1.0, 3: 0.0}


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"colour": "bleu"}, "did you mean 'blue'"),
        ({"colour": 1}, "give one of its values by name"),
        ({"colour::blue": 0.4}, "a categorical concept has one value"),
        ({"severity": 4}, "grades are 0 to 3"),
        ({"severity": 1.5}, "no grade"),
        ({"size": "large"}, "a number in mm, or a percentile"),
        ({"size": float("inf")}, "not finite"),
        ({"severity": [1, 2, 3]}, "3 values for 2 samples"),
    ],
)
def test_values_that_a_concept_cannot_have_are_refused(
    data: ecbm.Dataset, model: ecbm.ConceptBottleneck, given_: dict[str, object], words: str
) -> None:
    with pytest.raises(ecbm.InputError, match=words):
        model.intervene(data[:2], given_)  # type: ignore[arg-type]


def test_thresholds_by_name_are_cumulative_also_where_they_are_binary() -> None:
    draw = torch.Generator().manual_seed(0)
    score = torch.randn(120, 1, generator=draw)
    columns = torch.cat([(score > cut).float() for cut in (-0.5, 0.5, 1.0)], 1)
    labels = (score[:, 0] > 0.4).long()
    names = ["severity::>=1", "severity::>=2", "severity::>=3"]
    data = ecbm.Dataset(list(map(str, range(120))), score, columns, labels, names, ["no", "yes"])
    model = ecbm.train(data, LINEAR)
    one = data[:1]
    high = float(model.intervene(one, {"severity": ">=3"})[0, 1])
    all_set = float(model.intervene(one, dict.fromkeys(names, 1.0))[0, 1])
    assert high == all_set
    assert high > 0.8
    assert float(model.intervene(one, {"severity": 0})[0, 1]) < 0.2
    chances = [float(model.intervene(one, {"severity": grade})[0, 1]) for grade in range(4)]
    assert chances == sorted(chances)


# -- concepts that repeat the class ------------------------------------------------------------------------


def test_a_concept_that_repeats_the_class_is_remarked(data: ecbm.Dataset) -> None:
    labels = (data.labels > 0).long()
    concepts = torch.cat([data.concepts[:, :1], 1 - labels[:, None].float()], 1)
    told = data.replace(
        concepts=concepts, labels=labels, concept_names=["striped", "ill"], class_names=["ill", "well"]
    )
    with pytest.warns(UserWarning, match="concept 'ill' repeats the class one to one"):
        model = ecbm.train(told, LINEAR)
    assert len(model.provenance.training["warnings"]) == 1


def test_one_class_alone_is_remarked(data: ecbm.Dataset) -> None:
    same = data.replace(labels=torch.zeros_like(data.labels), class_names=["ill"])
    with pytest.warns(UserWarning, match="every training sample has the class 'ill'"):
        ecbm.train(same, LINEAR)


@pytest.mark.parametrize("types", [{}, {"kind": "categorical"}])
def test_a_group_that_repeats_the_class_is_remarked(data: ecbm.Dataset, types: dict[str, str]) -> None:
    groups = torch.nn.functional.one_hot(data.labels, 3).float()
    told = data.replace(concepts=groups, concept_names=["kind::a", "kind::b", "kind::c"], concept_types=types)
    with pytest.warns(UserWarning, match="concept 'kind' repeats the class"):
        ecbm.train(told, LINEAR)


def test_concepts_that_only_go_with_the_class_are_not_remarked(data: ecbm.Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ecbm.train(data, LINEAR)


def test_the_kit_declares_what_it_says(data: ecbm.Dataset) -> None:
    assert data.concept_names == NAMES
    assert {k: v for k, v in data.concept_types.items() if v != "binary"} == TYPES
