"""An edit says what it really changes: not labels that have their value already, and nothing that training reads
where it names samples of other splits."""

from __future__ import annotations

import math

import pytest

import ecbm
from kit import same_bytes, tabular

DATA = tabular(60, missing=0.1)
MODEL = ecbm.train(DATA)
TRAIN, VAL, TEST = (DATA.split(name) for name in ("train", "val", "test"))


def other_class(sample) -> str:
    return next(name for name in DATA.class_names if name != sample.label)


def flipped(sample) -> float:
    return 0.25 if sample.concepts["round"] is None else 1.0 - sample.concepts["round"]


def test_labels_with_their_value_are_no_change():
    same = [(s.id, name, value) for s in TRAIN for name, value in s.concepts.items()]
    labels = [(s.id, s.label) for s in TRAIN]
    found = ecbm.Edit(correct_concepts=same, correct_labels=labels).changes(DATA)
    assert not found.edit
    assert (found.asked, found.unchanged) == (len(same) + len(labels),) * 2
    assert found.notes() == [f"{found.asked} of {found.asked} labels already have these values: nothing to do"]


def test_only_changes_are_left_and_their_old_values_are_known():
    first, second = TRAIN[0], TRAIN[1]
    edit = ecbm.Edit(
        correct_concepts=[
            (s.id, "round", flipped(first) if s is first else s.concepts["round"]) for s in (first, second)
        ],
        correct_labels=[(first.id, other_class(first)), (second.id, second.label)],
    )
    found = edit.changes(DATA)
    assert found.edit == edit.effective(DATA)
    assert [(i, c) for i, c, _ in found.edit.correct_concepts] == [(first.id, "round")]
    assert found.edit.correct_labels == ((first.id, other_class(first)),)
    assert found.before.correct_labels == ((first.id, first.label),)
    assert found.before.apply_to(edit.apply_to(DATA)) == DATA
    assert found.notes() == ["2 of 4 labels already have these values"]


def test_soft_labels_are_compared_as_they_are_stored():
    soft = ecbm.Edit(correct_concepts=[(TRAIN.ids[0], "round", 0.1)])
    assert soft.effective(DATA)
    assert not soft.effective(soft.apply_to(DATA))
    missing = ecbm.Edit(correct_concepts=[(TRAIN.ids[0], "round", None)])
    assert not missing.effective(missing.apply_to(DATA))


def test_everything_else_is_a_change():
    edit = ecbm.Edit(
        remove_concepts=["round"], remove_samples=[TRAIN.ids[0]], add_concepts={"new": {TRAIN.ids[1]: 1}}
    )
    assert edit.effective(DATA) == edit


@pytest.mark.parametrize("method", ["auto", "exact", "ekfac", "retrain"])
def test_an_edit_that_changes_nothing_leaves_the_model_alone(method):
    edit = ecbm.Edit(correct_labels=[(TRAIN[0].id, TRAIN[0].label)])
    result = ecbm.Editor(MODEL, DATA).apply(edit, method)
    assert result.model is MODEL
    assert result.data == DATA
    assert result.report["changed"] == {"terms": 0, "samples": 0, "concepts": 0}
    assert result.report["notes"] == ["the label already has this value: nothing to do"]
    assert result.report["settings"]["why"] == result.report["notes"][0]
    assert "nothing to do" in repr(result)


def test_the_report_counts_only_what_changed():
    editor = ecbm.Editor(MODEL, DATA)
    one = ecbm.Edit(correct_concepts=[(TRAIN[0].id, "round", flipped(TRAIN[0]))])
    many = ecbm.Edit(
        correct_concepts=[*one.correct_concepts, *((s.id, "round", s.concepts["round"]) for s in TRAIN[1:])]
    )
    alone, among = editor.apply(one), editor.apply(many)
    assert same_bytes(alone.model, among.model)
    assert alone.report["changed"] == among.report["changed"]
    assert alone.report["edit"] == among.report["edit"] == "correct 1 concept label of 1 sample"
    count = len(many.correct_concepts)
    assert among.report["notes"] == [f"{count - 1} of {count} labels already have these values"]


@pytest.mark.parametrize(
    ("edit", "note"),
    [
        (ecbm.Edit(correct_labels=[(VAL[0].id, other_class(VAL[0]))]), "it changes only samples of val"),
        (ecbm.Edit(remove_samples=[VAL.ids[0], TEST.ids[0]]), "it changes only samples of val and test"),
        (
            ecbm.Edit(
                correct_concepts=[(s.id, "round", flipped(s)) for s in (TRAIN[0], TEST[0], TEST[1])],
            ),
            "2 of its 3 changes are in test",
        ),
        (
            ecbm.Edit(remove_concepts=["round"], correct_labels=[(TEST[0].id, other_class(TEST[0]))]),
            "1 of its 2 changes is in test",
        ),
    ],
)
def test_changes_outside_the_training_split_say_so(edit, note):
    result = ecbm.Editor(MODEL, DATA).apply(edit)
    assert result.report["notes"] == [f"{note}, on which no training term depends"]
    inside = [s for s, *_ in (*edit.correct_concepts, *edit.correct_labels) if s in TRAIN]
    if not edit.remove_concepts:
        assert result.report["changed"]["terms"] == len(inside)


def test_a_training_edit_needs_no_note():
    result = ecbm.Editor(MODEL, DATA).apply(ecbm.Edit(remove_samples=[TRAIN.ids[0]]))
    assert result.report["notes"] == []


def test_edits_one_after_another_that_cancel_are_nothing():
    there = ecbm.Edit(correct_concepts=[(TRAIN[0].id, "round", flipped(TRAIN[0]))])
    result = ecbm.Editor(MODEL, DATA).apply([there, there.inverse(DATA)])
    assert result.model is MODEL
    assert math.isclose(result.report["changed"]["terms"], 0)


def test_a_new_concept_with_hardly_a_training_label_is_remarked():
    some = {**dict.fromkeys(TRAIN.ids[:3], 1), **dict.fromkeys(DATA.split("test").ids, 0)}
    (note,) = ecbm.Edit(add_concepts={"new": some}).changes(DATA).notes()
    assert note == "new concept 'new' has 3 training labels: what is learnt from so few says little"
    enough = {name: place % 2 for place, name in enumerate(TRAIN.ids[:20])}
    assert ecbm.Edit(add_concepts={"new": enough}).changes(DATA).notes() == []
