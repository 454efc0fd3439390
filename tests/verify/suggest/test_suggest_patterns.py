"""Patterns that were planted are found as such, and nature is not taken for carelessness."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from suggest_kit import planted, records, truths

from ecbm.verify.suggest import curves
from ecbm.verify.suggest.annotators import find_habits
from ecbm.verify.suggest.curves import Curve
from ecbm.verify.suggest.evidence import gather
from ecbm.verify.suggest.mixture import find_careless, fit_careless, fit_shift, membership
from ecbm.verify.suggest.plateaus import find_plateaus, fit_plateaus, without_other_values
from ecbm.verify.suggest.swaps import find_swaps, fit_association, fit_swap, swapped, wrong_in_pair


def draws(n: int = 60, k: int = 3, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=draw, dtype=torch.float64)
    labels = (torch.rand(n, k, generator=draw, dtype=torch.float64) < torch.sigmoid(logits)).double()
    weights = (torch.rand(n, k, generator=draw) > 0.1).double()
    return logits, labels, weights, torch.rand(n, generator=draw, dtype=torch.float64)


def opinions(labels, x, classes):
    """Logits by heads that know neither a sample's label nor its other labels."""
    rows = records(x, labels, classes)
    return gather(rows).alone.logits.clamp(-7, 7), rows.labels, rows.weights


# -- expectation maximisation, against a slow reference --------------------------------------------------------


def slow_careless(logits, labels, weights, members, overlooks, steps):
    """The same algorithm by loops over samples and concepts, straight from Bayes' rule."""
    n, k = labels.shape
    rates, members = [0.5] * k, members.tolist()
    curve = Curve.identity(k)
    share, total = sum(members) / n, 0.0
    for step in range(steps + 1):
        if step:
            total, new = 0.0, []
            for i in range(n):
                careful, careless = 1 - share, share
                for j in range(k):
                    if weights[i, j] == 0:
                        continue
                    s = float(curve(logits)[i, j])
                    p = (1 - rates[j]) * s if overlooks else s + rates[j] * (1 - s)
                    careful *= s if labels[i, j] else 1 - s
                    careless *= p if labels[i, j] else 1 - p
                total += math.log(careful + careless)
                new.append(careless / (careful + careless))
            members = new
        if step == steps:
            break
        share = min(max(sum(members) / n, 0.02), 0.98)
        targets = labels.clone()
        new_rates = []
        for j in range(k):
            did = could = 0.0
            for i in range(n):
                s, c = float(curve(logits)[i, j]), float(labels[i, j])
                p = (1 - rates[j]) * s if overlooks else s + rates[j] * (1 - s)
                if overlooks:
                    changed = 0.0 if c else rates[j] * s / (1 - p)
                    able = c + changed
                else:
                    changed = rates[j] * (1 - s) / p if c else 0.0
                    able = 1 - c + changed
                did += float(weights[i, j]) * members[i] * changed
                could += float(weights[i, j]) * members[i] * able
                targets[i, j] += (1 if overlooks else -1) * members[i] * changed
            new_rates.append(min((did + 0.05) / (could + 0.5), 0.999))
        rates = new_rates
        curve = curves.step(curve, logits, targets, weights)
    return rates, members, total


@pytest.mark.parametrize("overlooks", [True, False])
def test_expectation_maximisation_agrees_with_a_slow_reference(overlooks):
    logits, labels, weights, members = draws()
    fast = fit_careless(logits, labels, weights, members, overlooks, steps=6)
    rates, slow_members, total = slow_careless(logits, labels, weights, members, overlooks, 6)
    assert fast.rates.tolist() == pytest.approx(rates, abs=1e-10)
    assert fast.members.tolist() == pytest.approx(slow_members, abs=1e-10)
    assert fast.log_likelihood == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("overlooks", [True, False])
def test_every_step_makes_the_labels_likelier(overlooks):
    logits, labels, weights, members = draws(200)
    reached = [
        fit_careless(logits, labels, weights, members, overlooks, steps=s).log_likelihood for s in range(3, 30)
    ]
    # Rates and curves have weak priors, which may cost a little at the end.
    assert all(after > before - 0.01 for before, after in itertools.pairwise(reached))


@given(st.integers(0, 59), st.integers(0, 2))
def test_membership_is_seen_without_the_label_in_question(row, concept):
    logits, labels, weights, members = draws()
    pattern = fit_careless(logits, labels, weights, members, True, steps=5)
    before = membership(pattern, logits, labels, weights)
    labels[row, concept] = 1 - labels[row, concept]
    after = membership(pattern, logits, labels, weights)
    moved = (after - before).abs() > 1e-12
    others = [c for c in range(3) if c != concept]
    assert not moved[row, concept]
    assert moved[row, others].all() == bool(weights[row, concept])


# -- unknown annotators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["overlook", "invent"])
def test_an_unknown_annotator_is_found_with_the_right_concepts_and_samples(kind):
    case = planted(kind)
    logits = gather(case.records).alone.logits.clamp(-7, 7)
    (pattern,) = find_careless(logits, case.records.labels, case.records.weights)
    assert pattern.overlooks == (kind == "overlook")
    assert pattern.concepts.tolist() == [0, 1, 2]
    assert float(pattern.rates.min()) > 0.9
    assert pattern.share == pytest.approx(0.5, abs=0.08)
    wrong = case.errors.sum(1)
    assert float(pattern.members[wrong >= 2].mean()) > 0.95


def test_an_annotator_who_overlooks_some_is_found_with_the_rate():
    case = planted("overlook", n=2500, rate=0.6)
    logits = gather(case.records).alone.logits.clamp(-7, 7)
    (pattern,) = find_careless(logits, case.records.labels, case.records.weights)
    assert pattern.concepts.tolist() == [0, 1, 2]
    assert pattern.rates.mean() == pytest.approx(0.6, abs=0.12)


@pytest.mark.parametrize(
    "options", [{"kind": "none"}, {"kind": "random", "rate": 0.05}, {"kind": "random", "rate": 0.2}]
)
def test_nobody_is_accused_where_labels_are_right_or_slips_are_random(options):
    for seed in range(3):
        case = planted(seed=seed, n=800, **options)
        logits = gather(case.records).alone.logits.clamp(-7, 7)
        assert find_careless(logits, case.records.labels, case.records.weights) == []


def test_a_hidden_cause_is_not_taken_for_an_annotator():
    """Findings that a hidden cause makes present or absent together, on ambiguous samples and not on clear ones."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(2000, 8, generator=draw, dtype=torch.float64)
    cause = torch.where(torch.rand(2000, 1, generator=draw) < 0.5, 1.5, -1.5).double()
    scores = 3 * x[:, :5] + cause
    labels = (torch.rand(2000, 5, generator=draw, dtype=torch.float64) < torch.sigmoid(scores)).double()
    logits, labels, weights = opinions(labels, x, torch.zeros(2000, dtype=torch.long))
    members = torch.sigmoid(2 * cause[:, 0])
    careless = max(
        fit_careless(logits, labels, weights, m, o, steps=60).log_likelihood
        for m in (members, 1 - members)
        for o in (True, False)
    )
    assert fit_shift(logits, labels, weights, members) > careless + 50  # nature explains it much better
    assert find_careless(logits, labels, weights) == []


# -- exchanged concepts ----------------------------------------------------------------------------------------


def test_exchanged_concepts_are_found():
    case = planted("swap")
    logits = gather(case.records).alone.logits.clamp(-7, 7)
    (swap,) = find_swaps(logits, case.records.labels, case.records.weights, case.groups)
    assert swap.concepts.tolist() == [1, 4]
    assert swap.share == pytest.approx(0.3, abs=0.06)
    differ = case.records.labels[:, 1] != case.records.labels[:, 4]
    wrong = case.errors[:, 1]
    assert float(swap.chances[wrong].mean()) > float(swap.chances[differ & ~wrong].mean()) + 0.4


@pytest.mark.parametrize("kind", ["none", "overlook"])
def test_no_swap_is_seen_where_there_is_none(kind):
    case = planted(kind)
    logits = gather(case.records).alone.logits.clamp(-7, 7)
    assert find_swaps(logits, case.records.labels, case.records.weights, case.groups) == []


def test_values_that_exclude_each_other_by_nature_are_not_exchanged():
    """Two values of one scale, hard to tell apart near the border and clear elsewhere."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 6, generator=draw, dtype=torch.float64)
    value = 2 * x[:, 0] + 0.7 * torch.randn(1500, generator=draw, dtype=torch.float64)
    labels = torch.stack([value > 0, value <= 0, x[:, 1] > 0], 1).double()
    logits, labels, weights = opinions(labels, x, torch.zeros(1500, dtype=torch.long))
    pair = torch.tensor([0, 1])
    part = logits[:, pair], labels[:, pair], weights[:, pair]
    assert fit_association(*part) > fit_swap(*part).log_likelihood + 50
    assert find_swaps(logits, labels, weights, torch.tensor([0, 0, 1])) == []


def test_errors_of_a_pair_agree_with_counting_all_cases():
    """Draw truth, swap and slips a million times; what was seen must be wrong as often as computed."""
    draw = torch.Generator().manual_seed(0)
    n, share, slips = 1_000_000, 0.3, 0.05
    chance = torch.tensor([0.8, 0.3], dtype=torch.float64)
    truth = (torch.rand(n, 2, generator=draw, dtype=torch.float64) < chance).double()
    crossed = torch.rand(n, generator=draw) < share
    written = torch.where(crossed[:, None], truth.flip(1), truth)
    seen = torch.where(torch.rand(n, 2, generator=draw) < slips, 1 - written, written)
    for one in (0.0, 1.0):
        for other in (0.0, 1.0):
            label = torch.tensor([[one, other]], dtype=torch.float64)
            rows = (seen == label).all(1)
            computed = wrong_in_pair(chance[None], label, torch.ones_like(label), share, slips)[0]
            counted = (truth[rows] != label).double().mean(0)
            assert computed.tolist() == pytest.approx(counted.tolist(), abs=0.01)


def test_a_missing_label_tells_nothing_about_a_swap():
    present = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    labels = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    chances, _ = swapped(present, labels, torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.3)
    assert chances.tolist() == [0.0]


# -- one concept alone -----------------------------------------------------------------------------------------


def test_a_concept_that_is_overlooked_alone_is_found_by_its_plateau():
    x, truth, classes = truths(2500)
    labels = truth.clone()
    labels[::2, 4] = 0
    logits, labels, weights = opinions(labels, x, classes)
    (plateau,) = find_plateaus(logits, labels, weights, torch.arange(8))
    assert (plateau.concept, plateau.overlooks) == (4, True)
    assert plateau.rate == pytest.approx(0.5, abs=0.08)


def test_labels_without_errors_have_no_plateau():
    x, truth, classes = truths(1500)
    logits, labels, weights = opinions(truth, x, classes)
    assert find_plateaus(logits, labels, weights, torch.arange(8)) == []


def test_a_value_in_the_middle_of_a_group_is_not_taken_for_overlooked():
    """Half of what looks like the middle of a scale is another value: a plateau, unless one knows the group."""
    draw = torch.Generator().manual_seed(0)
    logits = 10 * torch.rand(3000, 1, generator=draw, dtype=torch.float64) - 5
    middle = torch.rand(3000, 1, generator=draw, dtype=torch.float64) < 0.5 * torch.sigmoid(3 * logits)
    upper = ~middle & (logits > 0)
    labels = torch.cat([middle, upper, torch.zeros_like(middle)], 1).double()
    logits = torch.cat([logits, -3 * torch.ones(3000, 2, dtype=torch.float64)], 1)
    weights = torch.ones_like(labels)
    _, plain = curves.fitted(logits, labels, weights)
    rate, alone = fit_plateaus(logits, labels, weights, True)
    assert float((alone - plain)[0]) > 3 * math.log(3000)
    assert float(rate[0]) == pytest.approx(0.5, abs=0.05)
    assert [p.concept for p in find_plateaus(logits, labels, weights, torch.arange(3))] == [0]
    assert find_plateaus(logits, labels, weights, torch.zeros(3, dtype=torch.long)) == []


def test_samples_with_another_value_of_the_group_are_left_out():
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    counted = without_other_values(labels, torch.ones_like(labels), torch.tensor([0, 0, 1]))
    assert counted.tolist() == [[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]


# -- known annotators ------------------------------------------------------------------------------------------


def test_habits_of_known_annotators_are_found_and_nobody_else_is_blamed():
    x, truth, classes = truths(1800)
    who = torch.arange(1800) % 3
    labels = truth.clone()
    draw = torch.Generator().manual_seed(0)
    some = torch.rand(1800, generator=draw) < 0.3
    labels[(who == 1) & some, 2] = 0  # overlooks a third of one concept
    labels[who == 2, 5] = 1  # always records another
    logits, labels, weights = opinions(labels, x, classes)
    habits = find_habits(logits, labels, weights, who)
    found = {(h.annotator, h.concept): h for h in habits}
    assert set(found) == {(1, 2), (2, 5)}
    assert found[1, 2].overlooks
    assert found[1, 2].rate == pytest.approx(0.3, abs=0.1)
    assert not found[2, 5].overlooks
    assert found[2, 5].rate > 0.9


def test_annotators_of_random_slips_have_no_habits():
    case = planted("random", rate=0.1)
    logits = gather(case.records).alone.logits.clamp(-7, 7)
    who = torch.arange(len(logits)) % 4
    assert find_habits(logits, case.records.labels, case.records.weights, who) == []
