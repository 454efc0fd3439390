"""Answers: an order that they agree with is left alone, and what they show to be wrong is found soon."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from suggest_kit import planted, precision
from torch import Tensor

from ecbm.verify.suggest.answers import _fit, _Given, learn, learn_alone, round_size
from ecbm.verify.suggest.asking import next_questions
from ecbm.verify.suggest.checks import cells_of, without_the_class
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.finding import find_wrong


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Records, chances as they are without answers, and which labels are wrong."""

    records: Records
    chances: Tensor
    errors: Tensor


def drawn(seed: int, *, n: int = 200, k: int = 6, classes: int = 4, bad: bool = False) -> Drawn:
    """Labels that are wrong with just the chances that are stated; with ``bad`` hardly any are, but nine tenths of
    the largest cell, which no chance tells of.
    """
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, k, generator=draw) < 0.5).double()
    chances = torch.sigmoid(2.5 * torch.randn(n, k, generator=draw, dtype=torch.float64) - (9 if bad else 5))
    errors = torch.rand(n, k, generator=draw, dtype=torch.float64) < chances
    records = Records(
        torch.zeros(n, 1, dtype=torch.float64), labels, torch.ones_like(labels), torch.arange(n) % classes, classes,
        torch.arange(n) // classes % 5, torch.ones(n, dtype=torch.bool), torch.full_like(labels, math.nan),
    )  # fmt: skip
    if bad:
        cells = cells_of(records)
        cell = int(torch.bincount(cells.flatten()).argmax())
        errors = errors | ((cells == cell) & (torch.rand(n, k, generator=draw) < 0.9))
    return Drawn(records, chances, errors)


def looks(case: Drawn, opinion: Tensor | None = None, *, learning: bool = True, share: float = 0.8) -> int:
    """How many labels have to be looked at until four fifths of the errors are found."""
    records, chances, errors = case.records, case.chances, case.errors
    needed = math.ceil(share * int(errors.sum()))
    if not learning:
        found = errors.flatten()[chances.flatten().argsort(descending=True, stable=True)].cumsum(0)
        return int((found < needed).sum()) + 1
    opinion = records.labels if opinion is None else opinion
    everything = torch.ones_like(errors)
    count = got = 0
    while got < needed:
        after = learn(records, chances)
        truth = records.truth.clone()
        for row, concept in next_questions(records, chances, after, opinion, everything)[0]:
            wrong = bool(errors[row, concept])
            truth[row, concept] = (records.labels[row, concept] - float(wrong)).abs()
            count, got = count + 1, got + wrong
            if got == needed:
                break
        records = dataclasses.replace(records, truth=truth)
    return count


def test_chances_that_are_right_need_no_more_looks_with_learning_than_without():
    for seed in range(25):
        case = drawn(seed)
        assert looks(case) <= looks(case, learning=False), seed


def test_a_cell_that_is_wrong_against_all_chances_is_found_in_two_thirds_of_the_looks():
    for seed in range(12):
        case = drawn(seed, bad=True)
        assert looks(case) <= looks(case, learning=False) * 2 / 3, seed


@pytest.mark.parametrize("kind", ["random", "overlook"])
def test_a_good_ranking_of_planted_errors_is_as_good_with_learning(kind):
    for seed in range(2):
        case = planted(kind, n=300, seed=seed)
        found = find_wrong(case.records, case.groups)
        assert precision(found.wrong, case.errors) > 0.5
        asked = Drawn(case.records, found.wrong, case.errors)
        opinion = without_the_class(case.records, found.evidence, case.records.labels)
        assert looks(asked, opinion) <= looks(asked, learning=False), seed


def answered(case: Drawn, some: Tensor) -> Records:
    labels = case.records.labels
    truth = torch.where(case.errors, 1 - labels, labels)
    return dataclasses.replace(case.records, truth=torch.where(some, truth, math.nan))


def test_answers_that_agree_with_the_chances_leave_the_order_as_it_is():
    for seed in range(10):
        case = drawn(seed, n=400)
        some = case.chances >= case.chances.flatten().sort(descending=True).values[99]
        after = learn(answered(case, some), case.chances)[~some]
        before = case.chances[~some]
        assert torch.equal(before.argsort(stable=True), after.argsort(stable=True)), seed


def test_chances_that_are_too_low_everywhere_are_raised_in_the_same_order():
    case = drawn(1, n=400)
    some = case.chances >= case.chances.flatten().sort(descending=True).values[149]
    low = torch.sigmoid(torch.logit(case.chances) - 3)
    after = learn(answered(case, some), low)[~some]
    assert float(after.sum()) > 2 * float(low[~some].sum())
    assert torch.equal(low[~some].argsort(stable=True), after.argsort(stable=True))


def test_one_label_a_sample_is_moved_alike():
    draw = torch.Generator().manual_seed(0)
    chances = torch.rand(200, generator=draw, dtype=torch.float64) * 0.2
    looked = torch.arange(200) < 60
    after = learn_alone(chances, looked, torch.rand(200, generator=draw) < 0.8, torch.arange(200) % 5)
    assert torch.equal(chances[60:].argsort(stable=True), after[60:].argsort(stable=True))
    assert float(after[60:].mean()) > 0.4
    assert set(after[:60].tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(("kinds", "cells"), [(False, False), (True, False), (True, True)])
def test_effects_of_answers_are_those_of_a_dense_regression(kinds, cells):
    draw = torch.Generator().manual_seed(0)
    m, precision_of = 300, 2.0
    odds = 3 * torch.randn(m, generator=draw, dtype=torch.float64)
    cell = torch.randint(0, 24, (m,), generator=draw)
    wrong = (torch.rand(m, generator=draw) < 0.4).double()
    given = _Given(odds, wrong, cell % 6, cell, torch.arange(24) % 6, 6)
    parts = [torch.ones(m, 1).double(), odds[:, None] / 14]
    parts += [torch.nn.functional.one_hot(cell % 6, 6).double()] if kinds else []
    parts += [torch.nn.functional.one_hot(cell, 24).double()] if cells else []
    design = torch.cat(parts, 1)
    effects = torch.zeros(design.shape[1], dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(odds + design @ effects)
        hessian = (design.T * (p * (1 - p))) @ design + precision_of * torch.eye(design.shape[1]).double()
        effects += torch.linalg.solve(hessian, design.T @ (wrong - p) - precision_of * effects)
    found = given.moved(_fit(given, precision_of, kinds, cells))
    assert torch.allclose(found, odds + design @ effects, atol=1e-6)


def test_a_ranking_that_still_finds_errors_is_asked_before_checks_and_one_that_has_run_dry_is_not():
    case = drawn(0)
    chances = case.chances * 1e-4  # nothing is expected
    first = chances >= chances.flatten().sort(descending=True).values[19]
    for share, dry in ((0.0, True), (0.5, False)):
        errors = first & (torch.rand(first.shape, generator=torch.Generator().manual_seed(0)) < share)
        records = answered(dataclasses.replace(case, errors=errors), first)
        _, checks = next_questions(records, chances, chances, 1 - records.labels, torch.ones_like(first))
        assert (checks > 0) == dry
    nobody = next_questions(case.records, chances, chances, 1 - case.records.labels, torch.ones_like(first))
    assert (len(nobody[0]), nobody[1]) == (round_size(0), 0)


def test_an_order_that_answers_have_changed_is_tried_on_a_few():
    case = drawn(0)
    some = case.chances >= case.chances.flatten().sort(descending=True).values[399]
    records = answered(case, some)
    everything = torch.ones_like(some)
    same, _ = next_questions(records, case.chances, case.chances, records.labels, everything)
    other, _ = next_questions(records, case.chances, case.chances.flip(0), records.labels, everything)
    assert len(same) == round_size(400) == 100
    assert len(other) == 20
