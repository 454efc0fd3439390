"""LiRA, its Student form, RMIA and the paper's form agree with slow references and with closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from ecbm.errors import InputError
from ecbm.verify.audit.designs import FORGOTTEN, LEFT_OUT, STAYS, halves, thirds
from ecbm.verify.audit.intervals import auc
from ecbm.verify.audit.lira import fit, lira, lira_student
from ecbm.verify.audit.rmia import mean_likelihood, offline_likelihood, rmia, rmia_gaussian


def drawn(references: int = 12, samples: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    inside = halves(samples, references, seed)
    values = draw.normal(size=inside.shape) * draw.uniform(0.5, 2, samples) + 1.5 * inside
    return values, inside, draw.normal(size=samples)


def test_every_sample_is_in_half_of_the_references_and_more_references_extend_the_first() -> None:
    inside = halves(9, 8, 3)
    assert (inside.sum(0) == 4).all()
    assert (halves(9, 12, 3)[:8] == inside).all()
    with pytest.raises(InputError, match="even number"):
        halves(9, 7, 3)


def test_three_pairs_in_a_row_give_every_sample_each_role_once() -> None:
    roles = np.stack([thirds(10, pair, 1) for pair in range(6)])
    for start in (0, 3):
        assert (np.sort(roles[start : start + 3], 0) == np.array([[FORGOTTEN], [STAYS], [LEFT_OUT]])).all()
    assert not (roles[:3] == roles[3:]).all()


def test_lira_is_the_difference_of_two_normal_densities() -> None:
    values, inside, signal = drawn()
    found = lira(signal, fit(values, inside))
    for sample in range(len(signal)):
        with_it, without = values[inside[:, sample], sample], values[~inside[:, sample], sample]
        wanted = norm.logpdf(signal[sample], with_it.mean(), with_it.std(ddof=1))
        wanted -= norm.logpdf(signal[sample], without.mean(), without.std(ddof=1))
        assert found[sample] == pytest.approx(wanted, rel=1e-12)


def test_the_student_form_is_the_predictive_density_with_one_variance() -> None:
    values, inside, signal = drawn(8)
    found = lira_student(signal, fit(values, inside))
    for sample in range(len(signal)):
        with_it, without = values[inside[:, sample], sample], values[~inside[:, sample], sample]
        squares = ((with_it - with_it.mean()) ** 2).sum() + ((without - without.mean()) ** 2).sum()
        variance = squares / 6
        wanted = student.logpdf(signal[sample], 6, with_it.mean(), math.sqrt(variance * 1.25))
        wanted -= student.logpdf(signal[sample], 6, without.mean(), math.sqrt(variance * 1.25))
        assert found[sample] == pytest.approx(wanted, rel=1e-10)


def test_with_many_references_both_reach_the_closed_form_of_a_gaussian_pair() -> None:
    """Signals N(d, 1) with the sample and N(0, 1) without it, other means for every sample: AUC = Φ(d/√2)."""
    draw, apart, samples = np.random.default_rng(1), 1.2, 4000
    centre = draw.normal(0, 5, samples)
    inside = halves(samples, 200, 0)
    fits = fit(centre + draw.normal(size=inside.shape) + apart * inside, inside)
    members, others = centre + apart + draw.normal(size=samples), centre + draw.normal(size=samples)
    for score in (lira, lira_student):
        found = auc(score(members, fits), score(others, fits))
        assert found == pytest.approx(norm.cdf(apart / math.sqrt(2)), abs=0.015)
    # The same signals without references of each sample: what a population's score sees.
    assert auc(members, others) == pytest.approx(norm.cdf(apart / math.sqrt(52)), abs=0.015)


def test_with_few_references_the_student_form_sees_more() -> None:
    draw, apart, samples = np.random.default_rng(2), 1.5, 3000
    inside = halves(samples, 4, 0)
    fits = fit(draw.normal(size=inside.shape) + apart * inside, inside)
    members, others = apart + draw.normal(size=samples), draw.normal(size=samples)
    few, normal = (auc(score(members, fits), score(others, fits)) for score in (lira_student, lira))
    assert few > normal + 0.02


def test_samples_without_two_references_of_each_kind_are_refused() -> None:
    with pytest.raises(InputError, match="two references"):
        fit(np.zeros((3, 1)), np.array([[True], [True], [False]]))


def test_rmia_is_the_share_of_population_samples_that_are_less_likely() -> None:
    draw = np.random.default_rng(3)
    of_x, of_z = draw.random((6, 5)), draw.random((6, 8))
    x, z = draw.random(5), draw.random(8)
    inside = halves(5, 6, 0)
    for gamma in (1.0, 2.0):
        found = rmia(x, mean_likelihood(of_x, inside), z, offline_likelihood(of_z), gamma)
        for place in range(5):
            mine = inside[:, place]
            mean = 0.5 * (of_x[mine, place].mean() + of_x[~mine, place].mean())
            hits = 0
            for other in range(8):
                theirs = 0.5 * (1.3 * of_z[:, other].mean() + 0.7)
                hits += (x[place] / mean) / (z[other] / theirs) > gamma
            assert found[place] == pytest.approx(hits / 8)


def test_the_papers_form_is_the_share_of_pairwise_ratios() -> None:
    values, inside, signal = drawn(10, 6)
    fits = fit(values, inside)

    def density(sample: int, kind: bool) -> float:
        own = values[inside[:, sample] == kind, sample]
        return float(norm.pdf(signal[sample], own.mean(), own.std(ddof=1)))

    population = np.array([3, 4, 5])
    found = rmia_gaussian(signal, fits, population)
    for x in range(6):
        others = [z for z in population if z != x]
        hits = [density(x, True) / density(x, False) * density(z, False) / density(z, True) > 1 for z in others]
        assert found[x] == pytest.approx(np.mean(hits))


def test_rmia_needs_a_population() -> None:
    with pytest.raises(InputError, match="population"):
        rmia(np.ones(2), np.ones(2), np.ones(0), np.ones(0))
