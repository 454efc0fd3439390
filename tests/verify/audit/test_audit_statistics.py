"""AUCs, their intervals and bounds of ε agree with slow references, closed forms and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from ecbm.errors import InputError
from ecbm.verify.audit.intervals import (
    auc,
    auc_difference,
    auc_interval,
    clopper_pearson,
    epsilon_bound,
)


def by_pairs(members: np.ndarray, others: np.ndarray) -> float:
    """The definition, pair by pair."""
    total = sum((a > b) + 0.5 * (a == b) for a in members for b in others)
    return float(total / (len(members) * len(others)))


def test_the_auc_is_the_share_of_pairs_with_ties_counted_half() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        a, b = draw.integers(0, 6, 9).astype(float), draw.integers(0, 6, 7).astype(float)
        assert auc(a, b) == pytest.approx(by_pairs(a, b), abs=1e-14)


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.5])
def test_a_gaussian_pair_has_its_closed_form(apart: float) -> None:
    draw = np.random.default_rng(1)
    found = auc(draw.normal(apart, 1, 20_000), draw.normal(0, 1, 20_000))
    assert found == pytest.approx(norm.cdf(apart / math.sqrt(2)), abs=0.01)


@pytest.mark.parametrize(
    ("apart", "members", "others"), [(0.0, 200, 200), (0.0, 20, 60), (1.0, 60, 60), (2.5, 40, 40)]
)
def test_the_interval_covers_the_truth_as_often_as_it_says(apart: float, members: int, others: int) -> None:
    draw, truth, runs = np.random.default_rng(2), norm.cdf(apart / math.sqrt(2)), 1000
    covered = 0
    for _ in range(runs):
        found = auc_interval(draw.normal(apart, 1, members), draw.normal(0, 1, others))
        covered += found.low <= truth <= found.high
    # Three standard errors of a share of .95 in a thousand runs are .02; score intervals may be a little wide.
    assert 0.93 <= covered / runs <= 0.985


def test_separated_samples_do_not_make_a_point_of_the_interval() -> None:
    found = auc_interval(np.arange(10, 15.0), np.arange(5.0))
    assert found.auc == found.high == 1.0
    assert 0.5 < found.low < 0.95
    reversed_ = auc_interval(np.arange(5.0), np.arange(10, 15.0))
    assert reversed_.auc == reversed_.low == 0.0
    assert reversed_.high == pytest.approx(1 - found.low)


def test_one_sample_alone_proves_nothing() -> None:
    assert auc_interval(np.array([5.0]), np.arange(4.0)).low < 0.5


def test_the_difference_of_two_aucs_is_covered_as_often_as_it_says() -> None:
    draw, runs = np.random.default_rng(3), 800
    truth = norm.cdf(0.8 / math.sqrt(2)) - norm.cdf(0.3 / math.sqrt(2))
    covered = 0
    for _ in range(runs):
        # What the two share is most of them: an interval that ignored it would cover nearly always.
        a, b = draw.normal(0, 1, 80), draw.normal(0, 1, 80)
        noise = [0.3 * draw.normal(0, 1, 80) for _ in range(4)]
        scale = math.sqrt(1.09)
        first = (a + noise[0]) / scale + 0.8, (b + noise[1]) / scale
        second = (a + noise[2]) / scale + 0.3, (b + noise[3]) / scale
        found = auc_difference(first, second)
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / runs <= 0.98


def test_equal_scores_have_no_difference_at_all() -> None:
    draw = np.random.default_rng(4)
    pair = draw.normal(size=30), draw.normal(size=40)
    found = auc_difference(pair, pair)
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)


def test_shares_are_covered_by_their_exact_interval() -> None:
    from scipy.stats import binom

    for share in (0.02, 0.3, 0.9):
        covered = sum(
            binom.pmf(hits, 40, share)
            for hits in range(41)
            if clopper_pearson(hits, 40)[0] <= share <= clopper_pearson(hits, 40)[1]
        )
        assert covered >= 0.95
    with pytest.raises(InputError, match="0 ≤ hits ≤ trials"):
        clopper_pearson(5, 4)


def test_a_bound_of_epsilon_stays_below_the_truth() -> None:
    """Randomised response with e^ε = 9: the attacker's scores are the answers."""
    draw, truth, above, found = np.random.default_rng(5), math.log(9), 0, []
    for _ in range(200):
        members = (draw.random(300) < 0.9).astype(float)
        others = (draw.random(300) < 0.1).astype(float)
        found.append(epsilon_bound(members, others))
        above += found[-1] > truth
    assert above <= 10
    assert np.median(found) > 0.6 * truth
    assert epsilon_bound(draw.normal(size=100), draw.normal(size=100)) == 0.0


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="at least one member"):
        auc(np.array([]), np.array([1.0]))
    with pytest.raises(InputError, match="finite"):
        auc(np.array([np.nan]), np.array([1.0]))
