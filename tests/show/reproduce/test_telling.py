"""Sentences follow from the numbers: who loses is said to lose, and noise is called noise."""

from __future__ import annotations

import pytest

from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.telling import (
    bounds,
    concept_importance,
    harmful,
    membership,
    periodic,
    ratios,
    table1,
    visual,
)
from ecbm.show.reproduce.telling.comparisons import Level


def entry(repetition=0, **figures):
    usual = {"class_f1": 0.8, "class_accuracy": 0.8, "concept_accuracy": 0.9, "closure": 0.5, "class_closure": 0.5}
    return usual | {"seconds": 1.0, "training_seconds": 10.0, "repetition": repetition} | figures


def level(**methods):
    """Entries of three repetitions for each method, figures given as lists."""
    found = {}
    for name, figures in methods.items():
        found[_NAMES.get(name, name)] = [
            entry(r, **{k: v[r] if isinstance(v, list) else v for k, v in figures.items()}) for r in range(3)
        ]
    return found


_NAMES = {"none": "no-op", "written": "ekfac as written (ECBM)", "tuned": "fine-tuning of equal work"}


def at(of="concept", **methods):
    return Level(level(**methods), of)


def test_an_edit_that_ends_farther_away_than_no_edit_is_said_to():
    found = at(none={"closure": 0.0}, retrain={"closure": 0.6}, auto={"closure": 0.5}, written={"closure": -1.8})
    assert found.standing() == [
        "Closer to the retrained concept probabilities than no edit: auto 0.50 ± 0.00.",
        "Farther from them than no edit: ekfac as written −1.80 ± 0.00.",
        "Closure of another seed of retraining: 0.60.",
    ]


def test_an_edit_that_may_be_no_better_than_no_edit_is_called_neither():
    found = at(none={"closure": 0.0}, retrain={"closure": 0.9}, auto={"closure": 0.9},
               written={"closure": [-0.4, 0.3, -0.05]})  # fmt: skip
    assert "Not told from no edit: ekfac as written −0.05 ± 0.87." in found.standing()
    assert not any("Farther" in sentence for sentence in found.standing())


def test_where_nothing_helps_no_method_is_called_closer():
    found = at(none={"closure": 0.0}, retrain={"closure": -0.3}, auto={"closure": -0.2}).standing()
    assert found[0] == "No method comes closer to the retrained concept probabilities than no edit."
    assert not any(sentence.startswith("Closer") for sentence in found)


def test_where_concepts_are_removed_classes_are_what_counts():
    methods = {"none": {}, "retrain": {}, "auto": {"closure": 0.0, "class_closure": 0.4}}
    assert at("class", **methods).standing()[0].startswith("Closer to the retrained class probabilities")
    assert at("concept", **methods).standing()[0].startswith("No method comes closer")


def test_an_f1_that_retraining_does_not_move_is_said_to_tell_nothing():
    within = at(none={"class_f1": [0.80, 0.81, 0.79]}, retrain={"class_f1": [0.81, 0.80, 0.80]})
    assert within.effect("class_f1", "F1").endswith("within its interval.")
    assert table1.f1_effect({"a": within}).startswith(
        "Retraining itself changes F1 beyond its interval at 0 of 1 levels"
    )
    moved = at(none={"class_f1": [0.80, 0.81, 0.79]}, retrain={"class_f1": [0.70, 0.71, 0.691]})
    assert moved.effect("class_f1", "F1").endswith("beyond its interval.")
    both = table1.f1_effect({"3% of a": within, "b": moved})
    assert both.startswith("Retraining itself changes F1 beyond its interval for b (−0.0997 ± ")
    assert both.endswith("elsewhere a score near retraining's does not tell an edit from none.")
    assert "elsewhere" not in table1.f1_effect({"a": moved, "b": moved})


def test_one_repetition_claims_no_interval():
    entries = level(none={"class_f1": 0.7}, retrain={"class_f1": 0.8}, auto={}, written={"closure": -2.0})
    one = Level({name: found[:1] for name, found in entries.items()}, "concept")
    assert one.effect("class_f1", "F1") == "Retraining changes F1 by +0.1000 (one repetition, no interval)."
    assert not one.closer("auto")
    assert not one.farther("ekfac as written (ECBM)")
    assert one.standing()[0].startswith("Closure of concept probabilities (one repetition): auto 0.50 and ekfac")
    assert table1.ends({"a": one}).startswith("One repetition, so without intervals: the closure of auto is 0.50")
    assert table1.f1_effect({"a": one}) == "With one repetition no change of F1 has an interval."


def test_the_summary_of_table_1_counts_levels_and_changes_with_them():
    good = at(none={}, retrain={}, auto={"closure": [0.5, 0.51, 0.5], "seconds": 0.5},
              written={"closure": [-2.0, -2.1, -2.0]})  # fmt: skip
    open_ = at(none={}, retrain={}, auto={"closure": [0.9, -0.8, 0.1]}, written={"closure": [0.5, 0.5, 0.51]})
    assert table1.ends({"a": good, "b": good}) == (
        "Edited by auto, the model ends closer to retraining than the unedited one at all 2 levels (closure 0.50), "
        "in 5 % of retraining's time; by the paper's step as written it does at none of the 2 levels, and ends "
        "farther away at 2."
    )
    mixed = table1.ends({"a": good, "b": open_})
    assert "at 1 of the 2 levels (closure 0.50), in 5 % to 10 % of retraining's time" in mixed
    assert mixed.endswith("as written it does at 1 of the 2 levels, and ends farther away at 1.")
    bad = at(none={}, retrain={}, auto={"closure": -1.0})
    assert "none of the 2 levels, in 10 % of retraining's time, and farther away at 2." in table1.ends(
        {"a": bad, "b": bad}
    )


def test_seeds_that_scatter_more_than_the_edit_are_said_to():
    scattered, alike = at(none={}, retrain={"closure": -0.4}), at(none={}, retrain={"closure": 0.6})
    assert table1.seeds({"a": alike}) == []
    (said,) = table1.seeds({"samples, 3%": scattered, "b": alike})
    assert said.startswith("At 1 of the 2 levels two retrained models lie farther from each other")
    assert "(samples, 3 %)" in said


@pytest.mark.parametrize(
    ("auto", "tuned", "words"),
    [
        ([0.9, 0.91, 0.9], [0.5, 0.5, 0.51], "Auto is ahead of fine-tuning of equal work"),
        ([0.5, 0.5, 0.51], [0.9, 0.91, 0.9], "Auto is behind fine-tuning of equal work"),
        ([0.5, 0.9, 0.1], [0.6, 0.2, 0.7], "not told apart"),
    ],
)
def test_auto_against_fine_tuning_says_who_is_ahead_or_that_nobody_is(auto, tuned, words):
    found = at(none={}, retrain={}, auto={"closure": auto}, tuned={"closure": tuned})
    assert any(words in sentence for sentence in table1.about(found))


def test_what_takes_longer_than_retraining_is_said_to():
    found = at(retrain={}, auto={"seconds": 1.0}, written={"seconds": 25.0}).times()
    assert found == "Of retraining's time: auto 10 %; longer than retraining: ekfac as written (2.5 times)."


def test_harm_that_retraining_does_not_mend_leaves_nothing_to_recover():
    found = at("class", none={"class_accuracy": [0.8, 0.82, 0.78], "gained": 0.0, "to_gain": 0.0},
               retrain={"class_accuracy": [0.79, 0.82, 0.79], "gained": 0.0, "to_gain": 0.0},
               auto={"gained": 0.01, "to_gain": 0.0})  # fmt: skip
    assert harmful.recovery("samples", found, "auto") == {"recovery": None}
    assert "no gain beyond chance, so there is nothing to recover" in harmful.about("samples", found, [])[0]
    assert harmful.leading({"samples": found}, [])[0].endswith("there is nothing to recover.")


def test_a_method_that_harms_a_spoilt_model_is_said_to():
    found = at("class", none={"class_accuracy": 0.6}, retrain={"class_accuracy": [0.8, 0.81, 0.79]},
               auto={"gained": 0.18, "to_gain": 0.2}, written={"gained": -0.1, "to_gain": 0.2})  # fmt: skip
    rows = [
        {"edit": "samples", "method": name} | harmful.recovery("samples", found, name) for name in found.methods
    ]
    words = harmful.about("samples", found, rows)
    assert "Of that gain: ekfac as written −50 % and auto 90 %." in words
    assert "Worse than the spoilt model: ekfac as written." in words
    assert harmful.leading({"samples": found}, rows) == [
        "Retraining without it gains something beyond chance for 1 of 1 kinds of noise: samples (class accuracy "
        "+0.2000 ± 0.0248).",
        "Of that gain auto has 90 % for samples, the best other edit −50 % for samples (ekfac as written).",
    ]


def _rounds(level_name, method, f1, repetition=0):
    figures = ("class_f1", "class_accuracy", "concept_accuracy")
    lines = [{"round": r, "closure": 0.1 * r, "seconds": 1.0} | dict.fromkeys(figures, v) for r, v in enumerate(f1)]
    return Piece("", repetition, {"level": level_name, "method": method}), {"rounds": lines}


class _Words:
    def setting(self, name):
        return "title"


def test_rounds_that_drift_away_are_said_to():
    values = [_rounds("labels", "retrain", [0.6, 0.7, 0.8]), _rounds("labels", "auto", [0.6, 0.7, 0.79]),
              _rounds("labels", "ekfac", [0.6, 0.5, 0.3])]  # fmt: skip
    found = periodic.tell(_Words(), values)
    assert found.summary == (
        "After 2 rounds of edits on edits auto is at most 0.010 from retraining and ekfac guarded is at most 0.500 "
        "from retraining, in concept accuracy where labels were wrong, in F1 else."
    )
    assert (
        "After the last round, against retraining: auto −0.0100 and ekfac guarded −0.5000."
        in found.details[0].sentences
    )
    assert (
        "Farther from retraining's concept accuracy than the start was: ekfac guarded."
        in found.details[0].sentences
    )


def test_rounds_that_are_told_from_retraining_are_counted():
    values = [
        _rounds("samples", method, [0.6, end + shift], repetition)
        for method, end in (("retrain", 0.8), ("auto", 0.8), ("ekfac", 0.5))
        for repetition, shift in enumerate((0.0, 0.01, -0.01) if method == "auto" else (0.0, 0.0, 0.0))
    ]
    said = periodic.tell(_Words(), values).lead
    assert "auto is at most 0.000 from retraining (told apart for 0 of 1 kinds" in said[0]
    assert "ekfac guarded is at most 0.300 from retraining (told apart for 1 of 1 kinds" in said[0]
    assert said[1] == "Retraining in every round gains something beyond its interval for 1 of 1 kinds of noise."


def _scored(name, auc, gap):
    return {"model": name, "signal": "class", "members": 0.6, "others": 0.5, "auc": auc, "low": auc - 0.05,
            "high": auc + 0.05, "gap": gap, "gap_low": gap - 0.02, "gap_high": gap + 0.02}  # fmt: skip


def test_a_membership_test_that_misses_the_untouched_model_is_inconclusive():
    own = {
        "no-op": _scored("no-op", 0.51, 0.01),
        "retrain": _scored("retrain", 0.5, 0.0),
        "auto": _scored("auto", 0.5, 0),
    }
    assert membership.verdict("class", own).endswith("inconclusive.")
    assert membership.about(own)[-1].endswith("inconclusive.")
    own["no-op"] = _scored("no-op", 0.8, 0.3)
    assert "inconclusive" not in membership.verdict("class", own)


def test_a_membership_test_that_works_says_who_passes_and_who_does_not():
    own = {"no-op": _scored("no-op", 0.8, 0.3), "retrain": _scored("retrain", 0.5, 0.0),
           "auto": _scored("auto", 0.51, 0.01), "ekfac": _scored("ekfac", 0.7, 0.2),
           "far": _scored("far", 0.3, -0.2)}  # fmt: skip
    said = membership.about(own)
    assert membership.verdict("concepts", own) == (
        "By the concept signal the removed samples are told before the removal (AUC 0.800, retrained 0.500); they "
        "are not told from retraining after auto, still told after ekfac and told by scores below retraining's "
        "after far."
    )
    assert "Not told apart from retraining: auto (0.510)." in said
    assert "Members stay easier to tell than after retraining: ekfac (0.700)." in said
    assert "Members score lower than after retraining, which tells them too: far (0.300)." in said


def test_agreement_counts_shared_concepts():
    assert concept_importance.agreement({"a": 2, "b": 1, "c": 0}, {"a": 0, "b": 1, "c": 2}, 1) == (0, -1.0)


def test_influential_concepts_that_cost_nothing_are_not_said_to():
    sets = [{"end": "most", "count": 1, "auto": 0.0, "retrain": 0.02, "gap": -0.02},
            {"end": "least", "count": 1, "auto": 0.0, "retrain": 0.03, "gap": -0.03}]  # fmt: skip
    assert "do not cost F1 more" in concept_importance.ends(sets)[-1]
    sets[0]["retrain"] = -0.05
    assert "ones cost F1 more" in concept_importance.ends(sets)[-1]


def _importance(noise):
    influences = {f"c{i}": float(i) for i in range(30)}
    one = {name: {"retrain": {"changes": {"val": 0.0}}, "training_seconds": 2.0} for name in influences}
    return {0: {"influence": {"influences": influences, "noise": noise, "seconds": 0.1}, "one": one}}


@pytest.mark.parametrize(
    ("shared", "noise", "words", "more"),
    [
        (9, 1.0, "and 9 among those of retraining (0.80), more than chance (3.3).", False),
        (4, 99.0, "and 4 among those of retraining (0.80), which chance may give as well (3.3 in the mean).", True),
    ],
)
def test_an_overlap_that_chance_may_give_is_said_to_and_so_are_seeds_that_scatter(shared, noise, words, more):
    found = {"auto": [(10, 1.0)], "retrain": [(shared, 0.8)]}
    assert concept_importance.agreed(found, 10, 30).endswith(words)
    said = concept_importance.in_short(found, _importance(noise), 10)
    assert f"and {shared} of those of retraining (chance: 3.3)" in said
    assert ("two seeds of one training differ by more than any predicted influence" in said) is more
    assert ("cannot rank concepts here" in concept_importance.noise(_importance(noise))[0]) is more
    assert concept_importance.noise(_importance(0.0)) == [], "frozen features: seeds agree"


def test_concepts_of_a_class_that_editing_and_retraining_share_are_counted():
    ranks = {f"c{i}": float(i) for i in range(40)}
    other = {name: -value for name, value in ranks.items()}
    changes = {"wren": {"auto": ranks, "theorem": other, "retrain": ranks}}
    assert visual.in_short(changes, 10).endswith("share 10 in the mean (chance: 2.5; the paper: 9 of 10).")
    said = visual.leading(changes, 10)[0]
    assert "auto shares 10 with retraining in the mean, which is beyond chance for 1 of 1 classes" in said
    assert "theorem 4.3 shares 0 with retraining in the mean, which is beyond chance for 0 of 1 classes" in said


def test_edits_of_growing_size_are_told_by_their_ends_and_beside_no_edit():
    def piece(size, none, auto, closure):
        rows = {
            name: entry(class_f1=f1, closure=value)
            for name, f1, value in (("no-op", none, 0.0), ("auto", auto, closure), ("retrain", 0.9, 0.3))
        }
        options = {"level": "labels", "size": size}
        return Piece(f"labels, {size}", 0, options), {"rows": rows, "training_seconds": 10.0}

    found = ratios.tell(_Words(), [piece(0.01, 0.88, 0.89, 0.8), piece(0.1, 0.85, 0.8, -0.2)])
    assert (
        found.summary
        == "As the edit grows, the closure of auto goes from 0.80 to −0.20 for concept labels (1 % to 10 %)."
    )
    assert found.lead[0] == (
        "Over all sizes and levels F1 after auto is at most 0.100 from retraining's, F1 of the unedited model at "
        "most 0.050."
    )
    assert "Farther from it than no edit: auto." in found.details[0].sentences


def test_a_bound_that_fails_is_said_to_and_one_point_is_no_curve():
    def row(of, at, **figures):
        usual = {
            "distance": 1.0,
            "bound": 2.0,
            "newton_distance": 0.1,
            "newton_bound": 0.2,
            "held": 1,
            "of_cases": 1,
        }
        return usual | {"of": of, "at": at} | figures

    rows = [row("damping", 0.0), row("damping", 0.1, distance=3.0, held=0), row("removed samples", 0.1)]
    found = bounds.tell(_Words(), [(Piece("", 0, {}), {"rows": rows})])
    wrong = "The corrected bounds hold in 2 of 3 cases, so that something in them or in the solver is wrong."
    assert found.lead[0] == wrong
    assert found.summary == f"{wrong} They are 0.67 to 2 times the true error."
    damping, samples = (detail.sentences[0] for detail in found.details)
    assert damping.startswith("From 0 to 0.1 the influence step's error grows from 1.0e+00 to 3.0e+00")
    assert samples.startswith("With removed samples of 0.1 the influence step's error is 1.0e+00")
    rows[1] = row("damping", 0.1)
    held = bounds.tell(_Words(), [(Piece("", 0, {}), {"rows": rows})]).summary
    assert held == "The corrected bounds hold in 3 of 3 cases. They are 2 times the true error."
