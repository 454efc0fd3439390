"""``ecbm.suggest``: planted errors are found and named, right labels left alone, and the same gives the same."""

from __future__ import annotations

import functools

import pytest
import torch
from suggest_kit import planted, precision, spoilt_table, truths

import ecbm
from ecbm.verify.suggest.finding import find_wrong
from ecbm.verify.suggest.inspection import Inspection
from ecbm.verify.suggest.read_answers import Answer
from kit import tabular
from types_kit import mixed


@functools.cache
def careless() -> tuple[ecbm.Dataset, ecbm.Dataset, ecbm.ConceptBottleneck]:
    """Clean data, the same as two annotators recorded it (one never records three concepts), and a model."""
    clean, spoilt = spoilt_table("overlook", n=800)
    return clean, spoilt, ecbm.train(spoilt)


@functools.cache
def slips() -> tuple[ecbm.Dataset, ecbm.Dataset, ecbm.ConceptBottleneck]:
    clean, spoilt = spoilt_table("random", n=700, rate=0.03)
    return clean, spoilt, ecbm.train(spoilt)


@functools.cache
def inspected() -> Inspection:
    """What is known about the labels of :func:`slips`."""
    _, spoilt, model = slips()
    return Inspection.of(model, spoilt)


def right(clean: ecbm.Dataset, suggestions) -> float:
    """Share of suggested concept labels that are wrong indeed, with the value they should have."""
    hits = [float(clean.concepts[clean.row(s.id), clean.concept_index(s.concept)]) == s.value for s in suggestions]
    return sum(hits) / max(len(hits), 1)


def wrong_labels(clean: ecbm.Dataset, spoilt: ecbm.Dataset) -> int:
    rows = [row for row, split in enumerate(spoilt.splits) if split == "train"]
    return int((clean.concepts[rows] != spoilt.concepts[rows]).sum())


# -- what is found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "least"), [("random", 0.75), ("overlook", 0.85), ("invent", 0.88), ("swap", 0.85)]
)
def test_planted_errors_are_found(kind, least):
    case = planted(kind, n=900)
    found = find_wrong(case.records, case.groups)
    assert precision(found.wrong, case.errors) > least
    assert float(found.wrong.sum()) == pytest.approx(int(case.errors.sum()), rel=0.4)


def test_suggestions_are_mostly_right_and_their_number_is_stated():
    clean, spoilt, _ = slips()
    found = inspected().suggestions()
    concepts = [s for s in found if s.concept is not None]
    assert right(clean, concepts) > 0.8
    assert found.expected_errors["concept_labels"] == pytest.approx(wrong_labels(clean, spoilt), rel=0.35)
    # A chance is a chance: of labels with 60 to 100 %, about as many are wrong as it says.
    assert right(clean, concepts) == pytest.approx(sum(s.score for s in concepts) / len(concepts), abs=0.12)


def test_a_careless_annotator_is_named_in_words():
    _, spoilt, model = careless()
    found = ecbm.suggest(model, spoilt, limit=5, concepts=["c0", "c1", "c2"])
    assert [p["words"] for p in found.patterns] == [
        "about half of the samples were labelled by somebody who never records c0, c1 and c2"
    ]
    assert "labelled by somebody who overlooked it" in found.suggestions[0].reasons[0]


def test_clean_labels_are_left_alone():
    clean, _ = spoilt_table("none", n=700)
    found = ecbm.suggest(ecbm.train(clean), clean)
    assert found.patterns == ()
    assert found.expected_errors["concept_labels"] < 0.01 * found.labels["concept_labels"]
    assert len(found) <= 2 * found.expected_errors["concept_labels"] + found.expected_errors["class_labels"] * 2 + 1


def test_wrong_classes_are_found():
    clean, _ = spoilt_table("none", n=800)
    labels = clean.labels.clone()
    rows = [row for row, split in enumerate(clean.splits) if split == "train"][::25]
    labels[rows] = (labels[rows] + 2) % 4
    spoilt = clean.replace(labels=labels)
    found = [s for s in ecbm.suggest(ecbm.train(spoilt), spoilt, least=0.3) if s.concept is None]
    ids = {spoilt.ids[row] for row in rows}
    assert sum(s.id in ids for s in found) >= 0.8 * len(ids)
    said = [s.value == clean.label_of(clean.row(s.id)) for s in found if s.id in ids]
    assert sum(said) >= 0.85 * len(said)


def test_a_class_of_one_sample_is_not_judged_and_not_proposed():
    """No model that did not see the sample has seen its class: that it says another one means nothing."""
    data = tabular(200, 6, seed=4)
    labels, lonely = data.labels.clamp_max(1), data.splits.index("train")
    labels[lonely] = 2
    spoilt = data.replace(labels=labels)
    found = ecbm.suggest(ecbm.train(spoilt, ecbm.Recipe(backbone="linear")), spoilt, least=0.0)
    classes = [one for one in found if one.concept is None]
    assert classes
    assert data.ids[lonely] not in {one.id for one in classes}
    assert not any(one.value == data.class_names[2] for one in classes)
    assert any(
        "too few samples to judge class labels" in note and data.class_names[2] in note for note in found.notes
    )


def test_habits_of_known_annotators_are_compared_in_words():
    clean, _ = spoilt_table("none", n=900)
    people = {name: ("anna", "ben", "carl")[row % 3] for row, name in enumerate(clean.ids)}
    concepts = clean.concepts.clone()
    draw = torch.Generator().manual_seed(0)
    bens = torch.tensor([people[name] == "ben" for name in clean.ids])
    concepts[bens & (torch.rand(len(clean), generator=draw) < 0.5), 4] = 0.0
    spoilt = clean.replace(concepts=concepts)
    found = ecbm.suggest(ecbm.train(spoilt), spoilt, by=people)
    (pattern,) = found.patterns
    assert pattern["annotator"] == "ben"
    assert pattern["concepts"] == ["c4"]
    assert pattern["words"].startswith("ben records c4 as absent ")
    assert all(people[s.id] == "ben" for s in found if s.concept == "c4" and "its annotator" in s.reasons[0])


def test_missing_labels_are_not_suggested():
    _, spoilt = spoilt_table("random", n=600, rate=0.05)
    concepts = spoilt.concepts.clone()
    gone = torch.rand(concepts.shape, generator=torch.Generator().manual_seed(1)) < 0.3
    concepts[gone] = torch.nan
    data = spoilt.replace(concepts=concepts)
    found = ecbm.suggest(ecbm.train(data), data, least=0.0)
    named = {(s.id, s.concept) for s in found if s.concept is not None}
    assert named
    assert not any(bool(gone[data.row(i), data.concept_index(c)]) for i, c in named)


def test_concepts_that_hardly_any_sample_has_are_reported_apart():
    clean, _ = spoilt_table("none", n=600)
    concepts = clean.concepts.clone()
    concepts[:, 7] = 0.0
    concepts[::90, 7] = 1.0
    data = clean.replace(concepts=concepts)
    found = ecbm.suggest(ecbm.train(data), data, least=0.0)
    assert all(s.concept != "c7" for s in found)
    assert {s.concept for s in found.rare} == {"c7"}
    assert [s.score for s in found.rare] == sorted((s.score for s in found.rare), reverse=True)


# -- concepts of other types ---------------------------------------------------------------------------------


def test_categories_grades_and_measurements_are_suggested_with_values_that_an_edit_takes():
    clean = mixed(900, missing=0.05)
    ids = [i for i in clean.split("train").ids if None not in clean[i].values.values()]
    edit = ecbm.Edit(
        [(i, "colour", "red" if clean[i].values["colour"] != "red" else "blue") for i in ids[:15]]
        + [(i, "severity", 3 if clean[i].values["severity"] < 2 else 0) for i in ids[15:30]]
        + [(i, "size", clean[i].values["size"] + 40) for i in ids[30:45]]
    )
    spoilt = edit.apply_to(clean)
    found = ecbm.suggest(ecbm.train(spoilt), spoilt, least=0.2)
    for concept, part in (("colour", ids[:15]), ("severity", ids[15:30]), ("size", ids[30:45])):
        named = [s for s in found if s.concept == concept]
        assert len({s.id for s in named} & set(part)) >= 8, concept
        assert sum(s.id in part for s in named) >= 0.6 * len(named), concept
    for s in found:
        recorded = spoilt[s.id].values[s.concept] if s.concept else spoilt[s.id].label
        assert s.recorded == pytest.approx(recorded) if isinstance(recorded, float) else s.recorded == recorded
    assert found.to_edit().effective(spoilt) == found.to_edit().resolved(spoilt)


def test_labels_that_are_numbers_are_suggested_by_what_is_expected_of_them():
    base, _ = spoilt_table("none", n=500)
    numbers = 50 + 10 * base.x[:, 0].double() + base.concepts[:, 3].double()
    rows = [row for row, split in enumerate(base.splits) if split == "train"][:5]
    numbers[rows] += 90
    data = ecbm.Dataset(
        base.ids, base.x, base.concepts, numbers, base.concept_names, ["age"], base.splits, target="number",
        target_unit="years",
    )  # fmt: skip
    found = [s for s in ecbm.suggest(ecbm.train(data), data) if s.concept is None]
    assert {s.id for s in found} == {data.ids[row] for row in rows}
    assert all(abs(s.value - (s.recorded - 90)) < 10 for s in found)
    assert "years" in found[0].reasons[0]


@pytest.mark.parametrize("kind", ["continuous alone", "all present", "one class", "hardly any label"])
def test_unusual_tables_are_looked_at_too(kind):
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    concepts, types = (x[:, :3] > 0).float(), None
    labels = (x.sum(1) > 0).long()
    if kind == "continuous alone":
        concepts, types = 10 * x[:, :2], {"c0": "continuous", "c1": "continuous"}
    elif kind == "all present":
        concepts = torch.ones(60, 3)
    elif kind == "one class":
        labels = torch.zeros(60, dtype=torch.long)
    else:
        concepts[1:, 1] = torch.nan
    names, classes = [f"c{j}" for j in range(concepts.shape[1])], ["a", "b"][: 1 + int(labels.max())]
    data = ecbm.Dataset([f"s{i}" for i in range(60)], x, concepts, labels, names, classes, concept_types=types)
    found = ecbm.suggest(ecbm.train(data), data, by={name: "ab"[row % 2] for row, name in enumerate(data.ids)})
    known = int((~concepts.isnan()).sum())
    assert found.labels == {"concept_labels": known, "class_labels": 60}
    assert sum(found.expected_errors.values()) < 0.1 * known


# -- the same gives the same ---------------------------------------------------------------------------------


def test_the_order_of_samples_does_not_matter():
    _, spoilt, model = slips()
    order = torch.randperm(len(spoilt), generator=torch.Generator().manual_seed(4)).tolist()
    assert ecbm.suggest(model, spoilt.select(order)).to_dict() == inspected().suggestions().to_dict()


def test_a_limit_and_a_concept_choose_from_the_same_ranking():
    whole = inspected().suggestions()
    assert inspected().suggestions(limit=7).suggestions == whole.suggestions[:7]
    part = inspected().suggestions(concepts=["c3"])
    assert part.suggestions == tuple(s for s in whole if s.concept == "c3")


def test_validation_labels_can_be_looked_at_and_make_no_edit():
    _, spoilt, model = slips()
    found = ecbm.suggest(model, spoilt, split="val", least=0.3)
    assert {spoilt[s.id].split for s in found} == {"val"}
    with pytest.raises(ecbm.InputError, match="training labels alone"):
        found.to_edit()


# -- as a value ----------------------------------------------------------------------------------------------


def test_an_edit_of_the_suggestions_repairs_what_was_wrong():
    clean, spoilt, model = careless()
    edit = ecbm.suggest(model, spoilt).to_edit()
    after = ecbm.Editor(model, spoilt).apply(edit)
    assert wrong_labels(clean, after.data) < 0.3 * wrong_labels(clean, spoilt)


def test_the_frame_has_a_row_for_each_suggestion():
    found = inspected().suggestions()
    frame = found.to_frame()
    assert list(frame["id"]) == [s.id for s in (*found.suggestions, *found.rare)]
    assert {"score", "model", "neighbours", "class", "other_labels", "validation_loss_change"} <= set(frame.columns)
    empty = inspected().suggestions(concepts=["c3"], limit=1, least=1.0)
    assert len(empty.to_frame()) == len(empty) + len(empty.rare)


# -- answers -------------------------------------------------------------------------------------------------


def answers_from(clean: ecbm.Dataset, suggestions) -> list[Answer]:
    return [
        Answer(s.id, s.concept, clean.concepts[clean.row(s.id), clean.concept_index(s.concept)] != s.recorded,
               s.recorded, s.value)
        for s in suggestions if s.concept is not None
    ]  # fmt: skip


def test_what_was_answered_is_not_asked_again_and_what_was_confirmed_is_in_the_edit():
    clean, spoilt, model = slips()
    inspection = inspected()
    first = inspection.suggestions(limit=20)
    answers = answers_from(clean, first)
    then = inspection.suggestions(answers)
    looked = {(a.id, a.concept) for a in answers}
    assert not looked & {(s.id, s.concept) for s in then}
    confirmed = {(a.id, a.concept) for a in answers if a.wrong}
    assert {(s.id, s.concept) for s in then.confirmed} == confirmed
    assert {item[:2] for item in then.to_edit(confirmed_only=True).correct_concepts} == confirmed
    applied = then.to_edit(confirmed_only=True).apply_to(spoilt)
    assert ecbm.suggest(model, applied, answers=answers).confirmed == ()


def test_answers_move_the_chances_of_labels_of_the_same_kind():
    """A concept that was recorded wrongly in a whole class, which no model can see, until somebody looks."""
    clean, _ = spoilt_table("none", n=800)
    inside = clean.labels == 1
    concepts = clean.concepts.clone()
    concepts[inside, 5] = 1 - concepts[inside, 5]
    spoilt = clean.replace(concepts=concepts)
    inspection = Inspection.of(ecbm.train(spoilt), spoilt)
    ids = [spoilt.ids[row] for row in inside.nonzero().flatten().tolist() if spoilt.splits[row] == "train"]

    def chance(answers) -> float:
        found = {(s.id, s.concept): s.score for s in inspection.suggestions(answers, least=0.0)}
        return sum(found.get((i, "c5"), 0.0) for i in ids[12:]) / len(ids[12:])

    answers = [Answer(i, "c5", True) for i in ids[:12]]
    assert chance(()) < 0.2
    assert chance(answers) > 0.7


def test_ranking_again_computes_no_evidence_again(monkeypatch):
    clean, _, _ = slips()
    inspection = inspected()
    monkeypatch.setattr("ecbm.verify.suggest.inspection.find_wrong", None)
    assert len(inspection.suggestions(answers_from(clean, inspection.suggestions(limit=5)))) > 0


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least": 1.5}, "least=1.5 is not a chance"),
        ({"limit": 0}, "limit=0; give a whole number of at least 1"),
        ({"split": "test"}, "give 'train' or 'val'"),
        ({"concepts": ["c33"]}, "unknown concept 'c33'; did you mean"),
        ({"by": {}}, "0 annotators among the samples; at least two"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(options, message):
    _, spoilt, model = slips()
    with pytest.raises(ecbm.InputError, match=message):
        ecbm.suggest(model, spoilt, **options)


def test_too_few_samples_are_refused():
    x, truth, classes = truths(12)
    data = ecbm.Dataset(
        [str(i) for i in range(12)], x.float(), truth.float(), classes, list("abcdefgh"), list("wxyz")
    )
    with pytest.raises(ecbm.InputError, match="12 training samples are too few"):
        ecbm.suggest(ecbm.train(data), data)
