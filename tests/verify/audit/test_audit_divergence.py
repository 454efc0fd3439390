"""The divergence of margins has no bias, and bins are refused where they only see noise."""

from __future__ import annotations

import numpy as np
import pytest

from ecbm.errors import InputError
from ecbm.verify.audit.divergence import binned_divergence, margin_divergence, normal_divergence


@pytest.mark.parametrize(("apart", "spread"), [(0.0, 1.0), (1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_the_estimate_has_no_bias_and_its_closed_form(apart: float, spread: float) -> None:
    """KL = d²/2 of two normal distributions that are d deviations apart; 20 models of each kind, 20,000 samples."""
    draw = np.random.default_rng(0)
    first, second = draw.normal(apart, spread, (20, 20_000)), draw.normal(0, 1, (20, 20_000))
    truth = normal_divergence(apart, spread**2, 0.0, 1.0)
    if spread == 1:
        assert truth == pytest.approx(apart**2 / 2)
    assert margin_divergence(first, second).mean() == pytest.approx(truth, abs=0.02 * (1 + truth))


def test_samples_of_one_distribution_are_at_no_distance_on_average_where_bins_see_one() -> None:
    draw = np.random.default_rng(1)
    same = draw.normal(size=(2, 100, 2000))
    assert abs(margin_divergence(*same).mean()) < 0.002
    with pytest.raises(InputError, match="needs 500 models"):
        binned_divergence(*same)


def test_with_many_models_bins_come_near_the_truth() -> None:
    draw = np.random.default_rng(2)
    first, second = draw.normal(1, 1, (4000, 20)), draw.normal(0, 1, (4000, 20))
    assert binned_divergence(first, second).mean() == pytest.approx(0.5, abs=0.08)


def test_too_few_models_are_refused() -> None:
    with pytest.raises(InputError, match="needs 5 models"):
        margin_divergence(np.zeros((4, 1)), np.zeros((9, 1)))
