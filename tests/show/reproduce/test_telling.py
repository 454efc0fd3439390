"""Sentences follow from the numbers: who loses is said to lose, and noise is called noise."""

from __future__ import annotations

import pytest

from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.telling import bounds, comparisons, concept_importance, membership, periodic
from ecbm.show.reproduce.telling.harmful import _about as about_harm
from ecbm.show.reproduce.telling.harmful import _recovery
from ecbm.show.reproduce.telling.table1 import _about as about_level


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


def test_an_edit_that_ends_farther_away_than_no_edit_is_said_to():
    found = about_level("samples", level(none={"closure": 0.0}, retrain={"closure": 0.6}, auto={"closure": 0.5},
                                         written={"closure": -1.8}))  # fmt: skip
    assert "Closest to the retrained concept probabilities: auto, with a closure of 0.50" in found
    assert "another seed of retraining has 0.60" in found
    assert "Farther from retraining than doing nothing: ekfac as written (ECBM) (-1.80)" in found


def test_an_edit_that_may_be_no_better_than_no_edit_is_called_neither():
    found = comparisons.closeness(
        level(none={"closure": 0.0}, retrain={"closure": 0.9}, auto={"closure": 0.9},
              written={"closure": [-0.4, 0.3, -0.05]}), ["auto", _NAMES["written"]],
    )  # fmt: skip
    assert found[1] == "not told from doing nothing: ekfac as written (ECBM) (-0.05 ± 0.87)"
    assert not any("farther" in sentence for sentence in found)


def test_where_nothing_helps_no_method_is_called_closest():
    found = comparisons.closeness(
        level(none={"closure": 0.0}, retrain={"closure": -0.3}, auto={"closure": -0.2}), ["auto"]
    )
    assert found[0].startswith("no method comes closer to the retrained concept probabilities than doing nothing")
    assert not any("closest" in sentence for sentence in found)


def test_f1_that_retraining_does_not_move_is_said_to_tell_nothing():
    same = level(none={"class_f1": [0.80, 0.81, 0.79]}, retrain={"class_f1": [0.81, 0.80, 0.79]})
    assert "does not tell an edit from no edit" in comparisons.effect_on("class_f1", "F1", same)
    moved = level(none={"class_f1": [0.80, 0.81, 0.79]}, retrain={"class_f1": [0.70, 0.71, 0.691]})
    assert "beyond its interval" in comparisons.effect_on("class_f1", "F1", moved)


def test_one_repetition_claims_no_interval():
    one = {name: found[:1] for name, found in level(none={"class_f1": 0.7}, retrain={"class_f1": 0.8}).items()}
    words = comparisons.effect_on("class_f1", "F1", one)
    assert words.endswith("(one repetition, no interval) against doing nothing")


@pytest.mark.parametrize(
    ("auto", "tuned", "words"),
    [
        ([0.9, 0.91, 0.9], [0.5, 0.5, 0.51], "auto is ahead of fine-tuning of equal work"),
        ([0.5, 0.5, 0.51], [0.9, 0.91, 0.9], "auto is behind fine-tuning of equal work"),
        ([0.5, 0.9, 0.1], [0.6, 0.2, 0.7], "not told apart"),
    ],
)
def test_auto_against_fine_tuning_says_who_is_ahead_or_that_nobody_is(auto, tuned, words):
    found = level(none={}, retrain={}, auto={"closure": auto}, tuned={"closure": tuned})
    assert words in about_level("labels", found).replace("Auto", "auto")


def test_what_takes_longer_than_retraining_is_said_to():
    found = comparisons.times(level(auto={"seconds": 1.0}, written={"seconds": 25.0}), ["auto", _NAMES["written"]])
    assert (
        found
        == "of retraining's time: auto 10.0%; longer than retraining: ekfac as written (ECBM) (2.5 times as long)"
    )


def test_harm_that_retraining_does_not_mend_leaves_nothing_to_recover():
    entries = level(none={"class_accuracy": [0.8, 0.82, 0.78], "gained": 0.0, "to_gain": 0.0},
                    retrain={"class_accuracy": [0.79, 0.82, 0.79], "gained": 0.0, "to_gain": 0.0},
                    auto={"gained": 0.01, "to_gain": 0.0})  # fmt: skip
    assert _recovery("samples", entries, "auto") == {"recovery": None}
    assert "no gain beyond noise, so there is nothing to recover" in about_harm("samples", entries, [])


def test_a_method_that_harms_a_spoilt_model_is_said_to():
    entries = level(none={"class_accuracy": 0.6}, retrain={"class_accuracy": [0.8, 0.81, 0.79]},
                    auto={"gained": 0.18, "to_gain": 0.2}, written={"gained": -0.1, "to_gain": 0.2})  # fmt: skip
    rows = [{"edit": "samples", "method": name} | _recovery("samples", entries, name) for name in entries
            if name not in ("no-op", "retrain")]  # fmt: skip
    words = about_harm("samples", entries, rows)
    assert "auto has 90%" in words
    assert "the spoilt model is made worse still by ekfac as written (ECBM)" in words


def _rounds(level_name, method, f1):
    figures = ("class_f1", "class_accuracy", "concept_accuracy")
    lines = [{"round": r, "closure": 0.1 * r, "seconds": 1.0} | dict.fromkeys(figures, v) for r, v in enumerate(f1)]
    return Piece("", 0, {"level": level_name, "method": method}), {"rounds": lines}


class _Words:
    def setting(self, name):
        return "title"


def test_rounds_that_drift_away_are_said_to():
    values = [_rounds("labels", "retrain", [0.6, 0.7, 0.8]), _rounds("labels", "auto", [0.6, 0.7, 0.79]),
              _rounds("labels", "ekfac", [0.6, 0.5, 0.3])]  # fmt: skip
    said = periodic.tell(_Words(), values).sentences[0]
    assert "auto -0.0100 in F1" in said
    assert said.endswith("Farther from retraining's F1 than the start was: ekfac guarded (ECBM).")


def _scored(name, auc, gap):
    return {"model": name, "signal": "class", "members": 0.6, "others": 0.5, "auc": auc, "low": auc - 0.05,
            "high": auc + 0.05, "gap": gap, "gap_low": gap - 0.02, "gap_high": gap + 0.02}  # fmt: skip


def test_a_membership_test_that_misses_the_untouched_model_is_inconclusive():
    own = {
        "no-op": _scored("no-op", 0.51, 0.01),
        "retrain": _scored("retrain", 0.5, 0.0),
        "auto": _scored("auto", 0.5, 0),
    }
    assert membership._about("class", own).endswith("inconclusive.")


def test_a_membership_test_that_works_says_who_passes_and_who_does_not():
    own = {"no-op": _scored("no-op", 0.8, 0.3), "retrain": _scored("retrain", 0.5, 0.0),
           "auto": _scored("auto", 0.51, 0.01), "ekfac": _scored("ekfac", 0.7, 0.2),
           "far": _scored("far", 0.3, -0.2)}  # fmt: skip
    said = membership._about("class", own)
    assert "Not told apart from retraining: auto (0.510)." in said
    assert "Members stay easier to tell than after retraining: ekfac (0.700)." in said
    assert "Members score lower than after retraining, which tells them too: far (0.300)." in said


def test_agreement_counts_shared_concepts():
    assert concept_importance.agreement({"a": 2, "b": 1, "c": 0}, {"a": 0, "b": 1, "c": 2}, 1) == (0, -1.0)


def test_influential_concepts_that_cost_nothing_are_not_said_to():
    sets = [{"end": "most", "count": 1, "auto": 0.0, "retrain": 0.02, "gap": -0.02},
            {"end": "least", "count": 1, "auto": 0.0, "retrain": 0.03, "gap": -0.03}]  # fmt: skip
    assert "do not cost F1 more" in concept_importance._ends(sets)[-1]
    sets[0]["retrain"] = -0.05
    assert "ones cost F1 more" in concept_importance._ends(sets)[-1]


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
    assert found.sentences[0] == (
        "The corrected bounds hold in 2 of 3 cases, so that something in them or in the solver is wrong."
    )
    assert "error grows from 1.0e+00 at 0 to 3.0e+00 at 0.1" in found.sentences[1]
    assert found.sentences[2].startswith("With removed samples of 0.1 the influence step's error is 1.0e+00")
