"""An edit is a value: it prints, compares, inverts and composes, and refuses what does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from edit_kit import LEVELS, edit_of, new_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import ecbm
from ecbm.read.inputs import ImageInputs
from kit import pictures, tabular

DATA = tabular(40)
TRAIN = DATA.split("train")
A, B = TRAIN.ids[0], TRAIN.ids[1]
BIG, ROUND = "size=big", "round"


def same_content(one: ecbm.Dataset, other: ecbm.Dataset) -> bool:
    """Whether two datasets hold the same samples and values, in whatever order."""
    if set(one.ids) != set(other.ids) or set(one.concept_names) != set(other.concept_names):
        return False
    rows = [one.row(i) for i in other.ids]
    columns = [one.concept_index(n) for n in other.concept_names]
    ordered = one.select(rows)
    ordered = ordered.replace(concepts=ordered.concepts[:, columns], concept_names=other.concept_names)
    return ordered == other


# -- printing, comparing, hashing -------------------------------------------------------------------------


def test_an_edit_says_what_it_does() -> None:
    assert str(ecbm.Edit()) == "nothing"
    edit = ecbm.Edit(
        correct_concepts=[(A, BIG, 1), (A, ROUND, 0), (B, BIG, None)],
        correct_labels=[(A, "crow")],
        remove_concepts=["color::red"],
        add_concepts={"new": {A: 1}, "newer": {A: 0.5}},
        remove_samples=["x", "y"],
        add_samples=new_samples(DATA, 2),
    )
    assert str(edit) == (
        "correct 3 concept labels of 2 samples; correct 1 class label; remove 1 concept; add 2 concepts; "
        "remove 2 samples; add 2 samples"
    )
    assert repr(edit) == f"<Edit: {edit}>"


def test_the_order_in_which_parts_are_given_does_not_matter() -> None:
    one = ecbm.Edit(correct_concepts=[(A, BIG, 1), (B, BIG, None)], remove_samples=["x", "y"])
    other = ecbm.Edit(correct_concepts=[(B, BIG, math.nan), (A, BIG, 1.0)], remove_samples=("y", "x", "y"))
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    assert one != ecbm.Edit(correct_concepts=[(A, BIG, 1)], remove_samples=["x", "y"])
    assert one != "nothing"


@pytest.mark.parametrize("level", LEVELS)
def test_edits_of_every_level_compare_by_content(level: str) -> None:
    one, other = edit_of(level, DATA), edit_of(level, tabular(40))
    assert one == other
    assert hash(one) == hash(other)
    assert one
    assert one != ecbm.Edit()
    assert not ecbm.Edit()


def test_an_edit_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ecbm.Edit().remove_samples = ("x",)  # type: ignore[misc]


def test_numbers_of_other_libraries_are_numbers() -> None:
    plain = ecbm.Edit(correct_concepts=[(A, BIG, 1), (B, BIG, 0.5)])
    numpy = ecbm.Edit(correct_concepts=[(A, BIG, np.int64(1)), (B, BIG, np.float32(0.5))])
    tensors = ecbm.Edit(correct_concepts=[(A, BIG, torch.tensor(1)), (B, BIG, torch.tensor(0.5))])
    assert plain == numpy == tensors


# -- bad input --------------------------------------------------------------------------------------------

OTHERS = [i for i in TRAIN.ids if i != A]
CROWS = [i for i, label in zip(TRAIN.ids, TRAIN.labels.tolist(), strict=True) if label == 2]

WHEN_MADE: dict[str, tuple[Callable[[], object], str]] = {
    "twice": (lambda: ecbm.Edit(correct_concepts=[(A, BIG, 1), (A, BIG, 0)]), "corrected twice, to 1 and 0"),
    "twice, once missing": (
        lambda: ecbm.Edit(correct_concepts=[(A, BIG, 1), (A, BIG, None)]),
        "corrected twice",
    ),
    "class twice": (lambda: ecbm.Edit(correct_labels=[(A, "crow"), (A, "wren")]), "'crow' and 'wren'"),
    "above one": (lambda: ecbm.Edit(correct_concepts=[(A, BIG, 2)]), "2 is not in \\[0, 1\\]"),
    "below zero": (lambda: ecbm.Edit(add_concepts={"new": {A: -0.5}}), "-0.5 is not in"),
    "infinite": (lambda: ecbm.Edit(correct_concepts=[(A, BIG, math.inf)]), "inf is not in"),
    "text": (lambda: ecbm.Edit(correct_concepts=[(A, BIG, "maybe")]), "'maybe' is not a number"),
    "yes or no": (lambda: ecbm.Edit(correct_concepts=[(A, BIG, True)]), "not a number"),
    "two of three": (lambda: ecbm.Edit(correct_concepts=[(A, BIG)]), "expected \\(id, concept, value\\)"),
    "a number for a correction": (lambda: ecbm.Edit(correct_concepts=[3]), "got 3"),
    "a text for a correction": (lambda: ecbm.Edit(correct_concepts=["abc"]), "got 'abc'"),
    "corrections by name": (lambda: ecbm.Edit(correct_concepts={A: 1}), "expected a list"),
    "three of two": (lambda: ecbm.Edit(correct_labels=[(A, "crow", 1)]), "expected \\(id, class\\)"),
    "a text for a list": (lambda: ecbm.Edit(remove_samples="s1"), "got 's1'"),
    "a number for a list": (lambda: ecbm.Edit(remove_concepts=3), "got 3"),
    "a list for a mapping": (lambda: ecbm.Edit(add_concepts=["new"]), "expected {name: {id: value}}"),
    "a value for a column": (lambda: ecbm.Edit(add_concepts={"new": 1}), "got 1 for 'new'"),
    "no name": (lambda: ecbm.Edit(add_concepts={"": {A: 1}}), "needs a name"),
    "a tensor for samples": (lambda: ecbm.Edit(add_samples=torch.zeros(3)), "expected a Dataset, got Tensor"),
}

AGAINST_DATA: dict[str, tuple[Callable[[], ecbm.Edit], str]] = {
    "unknown id": (lambda: ecbm.Edit(correct_concepts=[("s99", BIG, 1)]), "did you mean 's9'"),
    "unknown concept": (lambda: ecbm.Edit(correct_concepts=[(A, "sise=big", 1)]), "did you mean 'size=big'"),
    "unknown class": (lambda: ecbm.Edit(correct_labels=[(A, "craw")]), "did you mean 'crow'"),
    "unknown id relabelled": (lambda: ecbm.Edit(correct_labels=[("nobody", "crow")]), "unknown sample id"),
    "unknown id removed": (lambda: ecbm.Edit(remove_samples=["s-1"]), "unknown sample id 's-1'; did you"),
    "unknown concept removed": (lambda: ecbm.Edit(remove_concepts=["rond"]), "did you mean 'round'"),
    "unknown id in a column": (lambda: ecbm.Edit(add_concepts={"new": {"s99": 1}}), "add_concepts: 'new'"),
    "every concept": (lambda: ecbm.Edit(remove_concepts=DATA.concept_names), "removes every concept"),
    "every sample": (lambda: ecbm.Edit(remove_samples=DATA.ids), "removes every sample"),
    "the train split": (lambda: ecbm.Edit(remove_samples=TRAIN.ids), "every sample of the train split"),
    "the val split": (lambda: ecbm.Edit(remove_samples=DATA.split("val").ids), "of the val split"),
    "a class": (lambda: ecbm.Edit(remove_samples=CROWS), "class 'crow' without a training sample"),
    "a class renamed": (lambda: ecbm.Edit(correct_labels=[(i, "wren") for i in CROWS]), "leaves class 'crow'"),
    "a concept's labels": (
        lambda: ecbm.Edit(correct_concepts=[(i, BIG, None) for i in TRAIN.ids]),
        "leaves concept 'size=big' without a label",
    ),
    "an empty column": (lambda: ecbm.Edit(add_concepts={"new": {}}), "concept 'new' without a label"),
    "an existing concept": (lambda: ecbm.Edit(add_concepts={ROUND: {A: 1}}), "'round' exists already"),
    "an existing id": (lambda: ecbm.Edit(add_samples=DATA.select([0])), "id 's0' exists already"),
    "another shape": (lambda: ecbm.Edit(add_samples=new_samples(tabular(9, 7))), "shape \\(7,\\)"),
    "a removed sample corrected": (
        lambda: ecbm.Edit(correct_concepts=[(A, BIG, 1)], remove_samples=[A]),
        "and removes sample",
    ),
    "a removed concept corrected": (
        lambda: ecbm.Edit(correct_concepts=[(A, BIG, 1)], remove_concepts=[BIG]),
        "and removes concept",
    ),
    "a removed sample relabelled": (
        lambda: ecbm.Edit(correct_labels=[(A, "crow")], remove_samples=[A]),
        "removes it",
    ),
    "a removed sample in a column": (
        lambda: ecbm.Edit(add_concepts={"new": {A: 1, B: 0}}, remove_samples=[A]),
        "which the edit removes",
    ),
    "new samples with an unknown concept": (
        lambda: ecbm.Edit(add_samples=new_samples(DATA).replace(concept_names=["rund", *DATA.concept_names[:4]])),
        "unknown concept 'rund'",
    ),
    "new samples with an unknown class": (
        lambda: ecbm.Edit(add_samples=new_samples(DATA).replace(class_names=["finch", "hawk", "emu"])),
        "add_samples: unknown class",
    ),
}


@pytest.mark.parametrize("case", WHEN_MADE)
def test_what_can_never_be_an_edit_is_refused_when_made(case: str) -> None:
    make, words = WHEN_MADE[case]
    with pytest.raises(ecbm.InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", AGAINST_DATA)
def test_an_edit_that_does_not_fit_is_refused_before_any_work(case: str, trained: ecbm.ConceptBottleneck) -> None:
    make, words = AGAINST_DATA[case]
    edit = make()
    with pytest.raises(ecbm.InputError, match=words) as caught:
        edit.apply_to(DATA)
    assert "\n" not in str(caught.value)
    editor = ecbm.Editor(trained, DATA)
    for method in ("auto", "exact", "ekfac", "hessian", "retrain"):
        with pytest.raises(ecbm.InputError, match=words):
            editor.apply(edit, method)
    assert not editor.state.seconds


@pytest.fixture(scope="module")
def trained() -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, ecbm.Recipe(backbone="linear"))


def test_an_edit_of_an_older_version_is_refused(trained: ecbm.ConceptBottleneck) -> None:
    edit = ecbm.Edit(remove_samples=[A], remove_concepts=[BIG])
    after = ecbm.Editor(trained, DATA).apply(edit)
    with pytest.raises(ecbm.InputError, match="unknown"):
        ecbm.Editor(after.model, after.data).apply(edit)


def test_a_model_of_other_data_is_refused(trained: ecbm.ConceptBottleneck) -> None:
    with pytest.raises(ecbm.InputError, match="trained on other data"):
        ecbm.Editor(trained, tabular(40, seed=1))
    with pytest.raises(ecbm.InputError, match="trained on other data"):
        ecbm.Editor(trained, ecbm.Edit(correct_concepts=[(A, BIG, 0.25)]).apply_to(DATA))


def test_bad_arguments_of_an_editor_are_refused(trained: ecbm.ConceptBottleneck) -> None:
    editor = ecbm.Editor(trained, DATA)
    edit = ecbm.Edit(remove_samples=[A])
    with pytest.raises(ecbm.InputError, match="did you mean 'exact'"):
        editor.apply(edit, "exakt")
    with pytest.raises(ecbm.InputError, match="expected an Edit"):
        editor.apply("remove everything")  # type: ignore[arg-type]
    with pytest.raises(ecbm.InputError, match="expected an Edit"):
        editor.apply([edit, 3])  # type: ignore[list-item]
    with pytest.raises(ecbm.InputError, match="expected a model and the dataset"):
        ecbm.Editor(DATA, trained)  # type: ignore[arg-type]
    wrong = (
        {"fisher": "wrong"},
        {"gradient": "half"},
        {"damping": -1.0},
        {"damping": math.inf},
        {"damping": "much"},
        {"budget": 0.0},
        {"budget": "some"},
    )
    for options in wrong:
        with pytest.raises(ecbm.InputError):
            editor.apply(edit, "ekfac", **options)  # type: ignore[arg-type]


# -- applying, inverting, composing -----------------------------------------------------------------------


def test_an_edited_dataset_says_what_was_asked() -> None:
    gone, kept = TRAIN.ids[3], TRAIN.ids[4]
    more = new_samples(DATA, 2)
    edited = ecbm.Edit(
        correct_concepts=[(A, BIG, 0.25), (B, ROUND, None)],
        correct_labels=[(A, "crow")],
        remove_concepts=["color::red"],
        add_concepts={"new": {kept: 1, more.ids[0]: 0.5}},
        remove_samples=[gone],
        add_samples=more,
    ).apply_to(DATA)
    assert edited.concept_names == ("size=big", "size=small", "color::blue", "round", "new")
    assert edited.ids == (*(i for i in DATA.ids if i != gone), *more.ids)
    assert edited.concepts[edited.row(A), 0] == 0.25
    assert edited.concepts[edited.row(B), 3].isnan()
    assert edited.labels[edited.row(A)] == 2
    assert edited.concepts[edited.row(kept), 4] == 1
    assert edited.concepts[edited.row(more.ids[0]), 4] == 0.5
    assert edited.concepts[edited.row(A), 4].isnan()
    assert torch.equal(edited.x[edited.row(more.ids[1])], more.x[1])


def test_new_samples_may_lack_concepts_and_order_classes_differently() -> None:
    more = new_samples(DATA, 3)
    turned = more.replace(
        concepts=more.concepts[:, [4, 0]],
        concept_names=["round", "size=big"],
        class_names=["crow", "finch", "wren"],
        labels=torch.tensor([{0: 1, 1: 2, 2: 0}[label] for label in more.labels.tolist()]),
    )
    edited = ecbm.Edit(add_samples=turned).apply_to(DATA)
    rows = [edited.row(i) for i in more.ids]
    assert torch.equal(edited.labels[rows], more.labels)
    assert torch.equal(edited.concepts[rows][:, [4, 0]], turned.concepts)
    assert edited.concepts[rows][:, 1:4].isnan().all()


@pytest.mark.parametrize("level", LEVELS)
def test_an_edit_and_its_inverse_give_back_the_data(level: str) -> None:
    before = DATA.fingerprint
    edit = edit_of(level, DATA)
    edited = edit.apply_to(DATA)
    assert not same_content(edited, DATA)
    assert same_content(edit.inverse(DATA).apply_to(edited), DATA)
    assert DATA.fingerprint == before
    assert same_content(ecbm.Edit.between(DATA, edited).apply_to(DATA), edited)


def test_a_sample_with_another_input_is_another_sample() -> None:
    """Removing an id and adding it with another input must not pass for nothing."""
    first = DATA.select([DATA.row(A)])
    changed = ecbm.Dataset(
        [A], first.x + 1, first.concepts, first.labels, first.concept_names, first.class_names, first.splits
    )
    remove, add = ecbm.Edit(remove_samples=[A]), ecbm.Edit(add_samples=changed)
    once = remove.then(add, DATA)
    assert once.remove_samples == (A,)
    assert once.add_samples is not None
    edited = once.apply_to(DATA)
    assert torch.equal(edited.x[edited.row(A)], changed.x[0])
    assert same_content(once.inverse(DATA).apply_to(edited), DATA)
    assert ecbm.Edit.between(DATA, edited) == once
    same = remove.then(ecbm.Edit(add_samples=first), DATA)
    assert same == ecbm.Edit()


def test_a_sample_in_another_split_is_another_sample() -> None:
    first = DATA.select([DATA.row(A)]).replace(splits=["val"])
    once = ecbm.Edit(remove_samples=[A]).then(ecbm.Edit(add_samples=first), DATA)
    edited = once.apply_to(DATA)
    assert edited.splits[edited.row(A)] == "val"
    assert len(edited.split("train")) == len(TRAIN) - 1


@st.composite
def edits(draw: st.DrawFn, data: ecbm.Dataset) -> ecbm.Edit:
    """Any edit that fits ``data``."""
    train = data.split("train")
    removed = draw(st.lists(st.sampled_from(train.ids), max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from(data.concept_names), max_size=len(data.concept_names) - 2, unique=True))
    left = [i for i in data.ids if i not in removed]
    values = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(0, 1, width=32))
    cells = st.tuples(st.sampled_from(left), st.sampled_from([n for n in data.concept_names if n not in names]))
    corrections = draw(st.dictionaries(cells, values, max_size=6))
    labels = draw(st.dictionaries(st.sampled_from(left), st.sampled_from(data.class_names), max_size=3))
    fresh = draw(st.sampled_from(["", "fresh", "other"]))
    column = draw(st.dictionaries(st.sampled_from(left), values, min_size=1, max_size=5))
    column[next(i for i in train.ids if i not in removed)] = 1.0
    count = draw(st.integers(0, 3))
    return ecbm.Edit(
        correct_concepts=[(*cell, value) for cell, value in corrections.items()],
        correct_labels=labels.items(),
        remove_concepts=names,
        add_concepts={fresh: column} if fresh and fresh not in data.concept_names else {},
        remove_samples=removed,
        add_samples=new_samples(data, count) if count and "new5" not in data.ids else None,
    )


def fits(edit: ecbm.Edit, data: ecbm.Dataset) -> bool:
    try:
        edit.apply_to(data)
    except ecbm.InputError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_edits_form_a_groupoid(drawn: st.DataObject) -> None:
    """Inverse undoes; ``then`` does both; ``between`` finds what happened; the empty edit does nothing."""
    data = tabular(30, 3, missing=0.1)
    one = drawn.draw(edits(data))
    if not fits(one, data):
        return
    middle = one.apply_to(data)
    assert same_content(one.inverse(data).apply_to(middle), data)
    assert same_content(ecbm.Edit.between(data, middle).apply_to(data), middle)
    other = drawn.draw(edits(middle))
    if not fits(other, middle):
        return
    end = other.apply_to(middle)
    both = one.then(other, data)
    assert same_content(both.apply_to(data), end)
    assert one.then(one.inverse(data), data) == ecbm.Edit()
    assert ecbm.Edit().then(one, data) == ecbm.Edit.between(data, middle)
    assert ecbm.Edit().apply_to(data) is data


# -- pictures ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder_of_pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ecbm.Dataset]:
    folder = tmp_path_factory.mktemp("pictures")
    drawn = pictures(80).select(range(80))
    for name, pixels in zip(drawn.ids, drawn.inputs.raw(range(len(drawn))), strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{name}.png")
    return folder, drawn


def test_edits_of_pictures_decode_only_what_is_needed(folder_of_pictures: tuple[Path, ecbm.Dataset]) -> None:
    folder, drawn = folder_of_pictures
    lazy = ecbm.Dataset(
        drawn.ids,
        ImageInputs(folder, [f"{i}.png" for i in drawn.ids]),
        drawn.concepts,
        drawn.labels,
        drawn.concept_names,
        drawn.class_names,
        drawn.splits,
    )
    gone = [i for i, split in zip(drawn.ids, drawn.splits, strict=True) if split == "train"][:2]
    edit = ecbm.Edit(remove_samples=gone, correct_concepts=[(drawn.ids[-1], drawn.concept_names[0], 0.5)])
    edited = edit.apply_to(lazy)
    assert "row_digests" not in lazy.__dict__
    back = edit.inverse(lazy).apply_to(edited)
    assert "row_digests" not in lazy.__dict__
    assert same_content(back, lazy)
    assert same_content(back, drawn)


def test_pictures_in_memory_stay_bytes(folder_of_pictures: tuple[Path, ecbm.Dataset]) -> None:
    folder, drawn = folder_of_pictures
    more = ecbm.datasets.birds(n=80, seed=5, size=32).select([0, 1])
    more = ecbm.Dataset(["p", "q"], more.inputs, more.concepts, more.labels, more.concept_names, more.class_names)
    edited = ecbm.Edit(add_samples=more).apply_to(drawn)
    assert edited.inputs.raw([0, len(edited) - 1]).dtype == torch.uint8
    assert torch.equal(edited.inputs.raw([len(edited) - 1])[0], more.inputs.raw([1])[0])
    lazily = ecbm.Dataset(
        ["p", "q"],
        ImageInputs(folder, [f"{i}.png" for i in drawn.ids[:2]]),
        more.concepts,
        more.labels,
        more.concept_names,
        more.class_names,
    )
    mixed = ecbm.Edit(add_samples=lazily).apply_to(drawn)
    assert torch.equal(mixed.x[-2:], drawn.x[:2])
    assert same_content(ecbm.Edit(add_samples=lazily).inverse(drawn).apply_to(mixed), drawn)


def test_features_and_pictures_are_not_joined() -> None:
    data = pictures(80)
    more = ecbm.Dataset(
        ["p"], torch.zeros(1, 3, 32, 32), data.concepts[:1], data.labels[:1], data.concept_names, data.class_names
    )
    with pytest.raises(ecbm.InputError, match="two kinds"):
        ecbm.Edit(add_samples=more).apply_to(data)
