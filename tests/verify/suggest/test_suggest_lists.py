"""Groups of which a sample has one value: what is wrong in them is seen by the group as a whole."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from suggest_kit import precision, records

from ecbm.verify.suggest.evidence import gather
from ecbm.verify.suggest.exclusive import find_lists, fit_choice
from ecbm.verify.suggest.finding import find_wrong
from ecbm.verify.suggest.omissions import find_omissions


def group(n: int = 1500, m: int = 3, rate: float = 0.05, seed: int = 0, two: bool = False):
    """Logits, spoilt labels and errors of a group: one value a sample, or none; or yes/no concepts apart."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, m, generator=draw, dtype=torch.float64)
    if two:
        truth = (torch.rand(n, m, generator=draw, dtype=torch.float64) < torch.sigmoid(logits)).double()
    else:
        chances = torch.softmax(torch.cat([1.5 * logits, torch.zeros(n, 1)], 1), 1)
        value = torch.multinomial(chances, 1, generator=draw)[:, 0]
        truth = torch.nn.functional.one_hot(value, m + 1)[:, :m].double()
    flip = torch.rand(n, m, generator=draw) < rate
    return logits, torch.where(flip, 1 - truth, truth), flip


def test_a_list_is_told_from_concepts_apart():
    for two in (False, True):
        logits, labels, _ = group(two=two)
        nothing = torch.zeros_like(labels)
        found = find_lists(logits, labels, torch.ones_like(labels), nothing, nothing, [torch.arange(3)])
        assert [some.tolist() for some in found] == ([] if two else [[0, 1, 2]])


def test_the_rate_of_slips_in_a_list_is_found():
    logits, labels, flip = group(4000, rate=0.08)
    nothing = torch.zeros_like(labels)
    choice = fit_choice(logits, labels, torch.ones_like(labels), nothing, nothing)
    assert choice.rate == pytest.approx(float(flip.double().mean()), abs=0.01)


def test_presence_given_the_other_labels_agrees_with_counting_all_cases():
    """Bayes' rule by enumeration: every truth, every label that may have been changed."""
    logits, labels, _ = group(40, m=3)
    weights = (torch.rand(40, 3, generator=torch.Generator().manual_seed(1)) > 0.2).double()
    nothing, down, up = torch.zeros_like(labels), torch.full_like(labels, 0.3), torch.full_like(labels, 0.1)
    choice = fit_choice(logits, labels, weights, nothing, nothing, 0.05)
    present = choice.present(logits, labels, weights, down, up)
    prior = choice.log_chances(logits).exp()
    for row, column in itertools.product(range(40), range(3)):
        have = total = 0.0
        for value in range(4):
            case = float(prior[row, value])
            for other in range(3):
                if other == column or weights[row, other] == 0:
                    continue
                chance = 1 - float(down[row, other]) if value == other else float(up[row, other])
                case *= chance if labels[row, other] else 1 - chance
            total, have = total + case, have + case * (value == column)
        assert float(present[row, column]) == pytest.approx(have / total, abs=1e-9)


def test_two_values_at_once_are_a_sign_of_an_error_in_the_less_likely_one():
    logits, labels, _ = group(3000, rate=0.01)
    nothing = torch.zeros_like(labels)
    choice = fit_choice(logits, labels, torch.ones_like(labels), nothing, nothing)
    z = torch.tensor([[3.0, 1.0, -3.0]], dtype=torch.float64)
    both = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    flips = torch.full_like(both, choice.rate)
    one = choice.present(z, both, torch.ones_like(both), flips, flips)[0]
    assert float(one[0]) > float(one[1])
    assert float(one[1]) < float(choice.present(z, both * 0, torch.ones_like(both), flips, flips)[0, 1])
    assert math.isfinite(choice.log_likelihood)


# -- lists that somebody leaves empty ------------------------------------------------------------------------


def shapes(n: int = 700, *, none: bool = False, seed: int = 0):
    """Features, labels of one list of four values and of two other concepts; with ``none`` a fourth of the samples
    has none of the values by nature, which the features show.
    """
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=draw, dtype=torch.float64)
    scores = 4 * x[:, :5] + 0.5 * torch.randn(n, 5, generator=draw, dtype=torch.float64)
    value = scores.argmax(1) if none else scores[:, :4].argmax(1)
    truth = torch.cat([torch.nn.functional.one_hot(value, 5)[:, :4].double(), (x[:, 5:7] > 0).double()], 1)
    return x, truth, torch.tensor([0, 0, 0, 0, 1, 2]), draw


def test_a_list_that_somebody_leaves_empty_is_found_and_filled():
    x, truth, groups, draw = shapes()
    labels = truth.clone()
    careless = torch.rand(len(x), generator=draw) < 0.4
    labels[careless, :4] = 0.0
    case = records(x, labels, torch.zeros(len(x), dtype=torch.long))
    found = find_wrong(case, groups)
    (pattern,) = found.patterns.careless
    assert pattern.concepts.tolist() == [0, 1, 2, 3]
    assert pattern.share == pytest.approx(float(careless.double().mean()), abs=0.02)
    assert precision(found.wrong, labels != truth) > 0.8
    assert float(found.wrong.sum()) == pytest.approx(int((labels != truth).sum()), rel=0.25)


@pytest.mark.parametrize("none", [False, True])
def test_a_list_that_is_whole_or_empty_by_nature_is_left_alone(none):
    x, truth, _, _ = shapes(none=none)
    case = records(x, truth, torch.zeros(len(x), dtype=torch.long))
    logits = gather(case).alone.logits.clamp(-7, 7)
    assert find_omissions(logits, case.labels, case.weights, [torch.arange(4)]) == []
