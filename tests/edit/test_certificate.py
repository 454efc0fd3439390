"""The certificate: whatever could be meant by its bound, brute force does not exceed it."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from edit_kit import design_of, flat, terms_of
from hypothesis import given, settings
from hypothesis import strategies as st

import ecbm
from ecbm.edit import carry
from ecbm.edit.alignment import align
from ecbm.edit.certificate import Certificate, Evidence, certify, spectral_bound
from ecbm.edit.report import _design_norm
from ecbm.train import stages
from ecbm.train.heads.objectives import label_residual, rows_of, with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms
from kit import concept_objective, label_objective, newton_logistic, newton_multinomial, tabular

DATA = tabular(40, 3, concepts=("round", "red", "big"), missing=0.1)
VALIDATION = DATA.split("val")
KINDS = [
    ("logits", "sequential"),
    ("probabilities", "sequential"),
    ("logits", "independent"),
    ("probabilities", "independent"),
]
_OPTIMA: dict[tuple[str, str], ConceptBottleneck] = {}


def with_heads(model: ConceptBottleneck, concept: torch.Tensor, label: torch.Tensor) -> ConceptBottleneck:
    logits = design_of(model, DATA) @ concept.T
    low, high = stages.logit_range(logits, DATA.split("train").concepts)
    return carry.with_heads(model, concept, label, low, high)


def read_by(model: ConceptBottleneck) -> torch.Tensor:
    concepts = DATA.split("train").concepts
    logits = model.concept_head(design_of(model, DATA)[:, :-1]).detach()
    return with_ones(stages.label_inputs(model.recipe, logits, concepts, model.low, model.high))


def optimum(bottleneck: str, regime: str) -> ConceptBottleneck:
    """Both heads at gradients of 1e-14, by dense Newton."""
    key = bottleneck, regime
    if key not in _OPTIMA:
        recipe = ecbm.Recipe(backbone="linear", bottleneck=bottleneck, regime=regime)
        model = ecbm.train(DATA, recipe)
        design, (targets, weights) = design_of(model, DATA), terms_of(model, DATA)
        concept = torch.stack(
            [newton_logistic(design, targets[:, j], weights[:, j], recipe.concept_regularisation) for j in range(3)]
        )
        label = torch.cat([model.label_head.weight, model.label_head.bias[:, None]], 1).detach()
        read = read_by(with_heads(model, concept, label))
        ones = torch.ones(len(read)).double()
        solved = newton_multinomial(read, DATA.split("train").labels, ones, 3, recipe.label_regularisation)
        _OPTIMA[key] = with_heads(model, concept, solved)
    return _OPTIMA[key]


def certificate_of(model: ConceptBottleneck) -> Certificate:
    design, (targets, weights) = design_of(model, DATA), terms_of(model, DATA)
    rows = torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach()
    label = torch.cat([model.label_head.weight, model.label_head.bias[:, None]], 1).detach()
    labels, read = DATA.split("train").labels, read_by(model)
    gradient = concept_objective(design, targets, weights, rows, model.recipe.concept_regularisation)[1]
    ones = torch.ones(len(read)).double()
    _, of_label = label_objective(read, labels, ones, label, model.recipe.label_regularisation)
    validation = with_ones(stages.extract_features(model.backbone, VALIDATION.inputs))
    norm = float(of_label.norm())
    size = spectral_bound(design)
    residual = label_residual(read @ label.T, labels)
    terms = ConceptTerms(torch.where(weights == 0, 0.0, targets), weights)
    evidence = Evidence(
        design.norm(dim=1), design @ rows.T, terms, gradient, read, residual, norm, validation, size
    )
    return certify(model, evidence, "both heads")


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    concept_size=st.sampled_from([0.0, 1e-8, 1e-4, 1e-2, 0.3]),
    label_size=st.sampled_from([0.0, 1e-8, 1e-3, 0.1, 1.0]),
)
def test_no_perturbation_of_the_optimum_escapes_the_bound(
    kind: tuple[str, str], seed: int, concept_size: float, label_size: float
) -> None:
    """Stand anywhere near the optimum: the certificate computed there must reach back to it."""
    true = optimum(*kind)
    draw = torch.Generator().manual_seed(seed)
    concept = torch.cat([true.concept_head.weight, true.concept_head.bias[:, None]], 1).detach()
    label = torch.cat([true.label_head.weight, true.label_head.bias[:, None]], 1).detach()
    concept = concept + concept_size * torch.randn(concept.shape, generator=draw, dtype=torch.float64)
    label = label + label_size * torch.randn(label.shape, generator=draw, dtype=torch.float64)
    model = with_heads(true, concept, label)
    bound = certificate_of(model)
    slack = 1e-10  # the reference's own distance to the optimum
    assert (flat(model, "concept") - flat(true, "concept")).norm() <= bound.concept_distance + slack
    assert (flat(model, "class") - flat(true, "class")).norm() <= bound.label_distance + slack
    x = VALIDATION.x
    here, there = model.concept_logits(x), true.concept_logits(x)
    assert float((here - there).abs().max()) <= bound.largest_concept_logit_change + slack
    assert int(((here > 0) != (there > 0)).sum()) <= bound.concept_predictions_that_could_differ
    with torch.no_grad():
        ours, theirs = (m.label_head(m.bottleneck_from(z)) for m, z in ((model, here), (true, there)))
    assert float((ours - theirs).abs().max()) <= bound.largest_class_logit_change + slack
    assert int((ours.argmax(1) != theirs.argmax(1)).sum()) <= bound.class_predictions_that_could_differ


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_at_the_optimum_nothing_can_differ(kind: tuple[str, str]) -> None:
    bound = certificate_of(optimum(*kind))
    assert bound.concept_distance < 1e-11
    assert bound.label_distance < 1e-8
    assert bound.concept_predictions_that_could_differ == bound.class_predictions_that_could_differ == 0
    assert bound.validation_samples == len(VALIDATION)
    assert all(math.isfinite(v) for v in bound.to_dict().values() if isinstance(v, float))


def test_what_is_unproven_is_counted() -> None:
    """Far from the optimum the certificate must admit that predictions could differ."""
    true = optimum("logits", "sequential")
    zero = with_heads(true, torch.zeros(3, 4).double(), torch.zeros(3, 4).double())
    bound = certificate_of(zero)
    assert bound.class_predictions_that_could_differ == len(VALIDATION)
    assert bound.concept_predictions_that_could_differ == 3 * len(VALIDATION)


def test_the_concept_heads_error_is_counted_in_the_label_heads() -> None:
    """The label head is solved on inputs that are themselves only known up to the concept head's bound."""
    true = optimum("logits", "sequential")
    concept = torch.cat([true.concept_head.weight, true.concept_head.bias[:, None]], 1).detach()
    model = with_heads(true, concept + 1e-3, torch.zeros(3, 4).double())
    read, labels = read_by(model), DATA.split("train").labels
    ones = torch.ones(len(read)).double()
    solved = newton_multinomial(read, labels, ones, 3, model.recipe.label_regularisation)
    bound = certificate_of(with_heads(model, concept + 1e-3, solved))
    wanted = torch.cat([true.label_head.weight, true.label_head.bias[:, None]], 1).detach()
    distance = float((solved - wanted).norm())
    assert 1e-6 < distance <= bound.label_distance


def test_a_certificate_is_plain_values() -> None:
    bound = certificate_of(optimum("logits", "sequential"))
    assert set(bound.to_dict()) == {field.name for field in dataclasses.fields(Certificate)}
    assert all(isinstance(v, float | int | str) for v in bound.to_dict().values())


@pytest.mark.parametrize("wide", [False, True], ids=["from its Gram matrix", "from kept eigenvalues"])
def test_the_norm_of_the_edited_features_is_an_upper_bound(wide: bool) -> None:
    data = tabular(160, 9, seed=5)
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone="linear")), data)
    train = data.split("train")
    other = tabular(200, 9, seed=5).select(range(160, 200)).replace(splits=["train"] * 40)
    removed = list(train.ids[:20])
    for edit in (
        ecbm.Edit(correct_concepts=[(train.ids[0], data.concept_names[0], 0.5)]),
        ecbm.Edit(remove_samples=removed),
        ecbm.Edit(add_samples=other),
        ecbm.Edit(remove_samples=removed, add_samples=other),
    ):
        result = editor.apply(edit, "exact")
        alignment = align(editor.model, data, edit, result.data)
        design = with_ones(stages.extract_features(result.model.backbone, alignment.after.inputs))
        true = float(torch.linalg.matrix_norm(design, 2))
        if wide:
            bound = _design_norm(alignment, editor.state, result.model, design)
            assert true <= bound <= 2 * float(design.norm())
        else:
            assert true <= spectral_bound(design) <= true * (1 + 1e-8)


@pytest.mark.parametrize(
    "broken",
    ["gradient", "sizes", "logits", "bottleneck", "label residual", "label gradient", "validation", "head"],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_proves_nothing(broken: str, value: float) -> None:
    model = copy.deepcopy(optimum("logits", "sequential"))
    design, read = design_of(model, DATA), read_by(model)
    parts = {
        "gradient": torch.zeros(3, design.shape[1]).double(),
        "sizes": design.norm(dim=1),
        "logits": design @ rows_of(model.concept_head).T,
        "bottleneck": read,
        "label residual": torch.zeros(len(read), 3).double(),
        "label gradient": torch.zeros(1).double(),
        "validation": with_ones(stages.extract_features(model.backbone, VALIDATION.inputs)),
        "head": model.concept_head.weight.data,
    }
    parts[broken].view(-1)[0] = value
    residual, norm = parts["label residual"], float(parts["label gradient"])
    targets, weights = terms_of(model, DATA)
    evidence = Evidence(
        parts["sizes"],
        parts["logits"],
        ConceptTerms(torch.where(weights == 0, 0.0, targets), weights),
        parts["gradient"],
        parts["bottleneck"],
        residual,
        norm,
        parts["validation"],
    )
    bound = certify(model, evidence, "both heads")
    assert bound.class_predictions_that_could_differ == len(VALIDATION)
    assert bound.concept_predictions_that_could_differ == 3 * len(VALIDATION)
    assert bound.concept_distance == bound.label_distance == math.inf


def test_a_spectral_bound_of_what_is_not_finite_is_infinite() -> None:
    assert spectral_bound(torch.full((5, 2), math.nan).double()) == math.inf
    assert spectral_bound(torch.full((5, 2), 1e300, dtype=torch.float64)) == math.inf
