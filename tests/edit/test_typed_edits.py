"""Edits of concepts of every type: types × levels × directions × methods, against dense references."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

import ecbm
from ecbm.edit.files import read_edit, write_edit
from ecbm.verify import fidelity
from types_kit import NAMES, ORDINAL, edits, head_rows, mixed, reference_of

DATA = mixed()
EDITS = edits(DATA)
TRAIN = DATA.split("train")
A, B = TRAIN.ids[:2]
LINEAR = ecbm.Recipe(backbone="linear")
RECIPES = {
    "logits": LINEAR,
    "probabilities": LINEAR.replace(bottleneck="probabilities", pos_weight="balanced"),
    "independent": LINEAR.replace(regime="independent"),
    "independent probabilities": LINEAR.replace(regime="independent", bottleneck="probabilities"),
}


@pytest.fixture(scope="module")
def editors() -> dict[str, ecbm.Editor]:
    return {name: ecbm.Editor(ecbm.train(DATA, recipe), DATA) for name, recipe in RECIPES.items()}


def closure(
    edited: ecbm.ConceptBottleneck, before: ecbm.ConceptBottleneck, wanted: ecbm.ConceptBottleneck
) -> float:
    """Of class probabilities on the test split."""
    x = DATA.split("test").inputs
    return fidelity.closure(*(model.class_probabilities(x) for model in (edited, before, wanted))) or 0.0


@pytest.mark.parametrize("level", EDITS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", ["exact", "auto"])
def test_an_exact_edit_is_retraining(editors: dict[str, ecbm.Editor], level: str, recipe: str, method: str) -> None:
    editor = editors[recipe]
    result, again = editor.apply(EDITS[level], method), editor.apply(EDITS[level], "retrain")
    assert result.data == again.data
    torch.testing.assert_close(head_rows(result.model), head_rows(again.model), rtol=0, atol=1e-9)
    torch.testing.assert_close(result.model.low, again.model.low, rtol=0, atol=1e-8)
    assert closure(result.model, editor.model, again.model) > 0.9999
    certificate = result.report["certificate"]
    assert certificate["class_predictions_that_could_differ"] == 0
    assert certificate["concept_predictions_that_could_differ"] == 0
    assert result.model.concept_types == result.data.concept_types
    distance = (head_rows(result.model) - head_rows(again.model)).norm()
    assert float(distance) <= 2 * certificate["concept_distance"]


@pytest.mark.parametrize("level", EDITS)
def test_an_exact_edit_ends_at_the_dense_optimum(editors: dict[str, ecbm.Editor], level: str) -> None:
    result = editors["logits"].apply(EDITS[level], "exact")
    wanted = reference_of(result.model, result.data).solve()
    torch.testing.assert_close(head_rows(result.model), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("level", [name for name in EDITS if name.startswith("correct")])
def test_the_hessian_step_is_the_dense_influence_step(editors: dict[str, ecbm.Editor], level: str) -> None:
    editor = editors["logits"]
    result = editor.apply(EDITS[level], "hessian", guarded=False)
    before = reference_of(editor.model, DATA)
    after = reference_of(editor.model, result.data)
    start = before.free(head_rows(editor.model))
    change = after.gradient(start) - before.gradient(start)
    wanted = before.rows(start - torch.linalg.solve(before.hessian(start), change))
    torch.testing.assert_close(head_rows(result.model), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("level", EDITS)
@pytest.mark.parametrize("method", ["ekfac", "hessian"])
def test_influence_steps_lower_the_edited_objective_and_keep_slopes_tied(
    editors: dict[str, ecbm.Editor], level: str, method: str
) -> None:
    result = editors["logits"].apply(EDITS[level], method)
    objective, best = result.report["objective"], editors["logits"].preview(EDITS[level], "exact")["objective"]
    assert objective["after"]["concepts"] <= objective["before"]["concepts"] + 1e-12
    gain = objective["before"]["concepts"] - best["after"]["concepts"]
    if gain > 1e-9:
        share = (objective["before"]["concepts"] - objective["after"]["concepts"]) / gain
        assert share > 0.85
    for concept in result.model.layout.of_type("ordinal"):
        slopes = head_rows(result.model)[list(concept.columns), :-1]
        assert bool((slopes == slopes[:1]).all())


@pytest.mark.parametrize("fisher", ["empirical", "exact"])
def test_other_fisher_matrices_know_the_types_too(editors: dict[str, ecbm.Editor], fisher: str) -> None:
    report = editors["logits"].preview(EDITS["correct all types"], "ekfac", fisher=fisher)
    assert report["objective"]["after"]["concepts"] <= report["objective"]["before"]["concepts"]
    assert not report["not_covered"]


@pytest.mark.parametrize("level", EDITS)
def test_an_edit_and_its_inverse_are_nothing(editors: dict[str, ecbm.Editor], level: str) -> None:
    editor = editors["logits"]
    there = editor.apply(EDITS[level], "exact")
    back = editor.follow(there).apply(EDITS[level].inverse(DATA), "exact")
    assert ecbm.Edit.between(DATA, back.data) == ecbm.Edit()
    x = DATA.split("test").inputs
    torch.testing.assert_close(
        back.model.class_probabilities(x), editor.model.class_probabilities(x), rtol=0, atol=1e-8
    )


def test_a_chain_of_edits_is_the_sum_of_its_parts(editors: dict[str, ecbm.Editor]) -> None:
    editor = editors["logits"]
    chain = [EDITS["correct categorical"], EDITS["correct continuous"], EDITS["remove samples"]]
    one = editor.apply(chain, "exact")
    step = editor
    for edit in chain:
        result = step.apply(edit, "exact")
        step = step.follow(result)
    assert result.data == one.data
    torch.testing.assert_close(head_rows(result.model), head_rows(one.model), rtol=0, atol=1e-9)


def test_only_the_concept_that_was_corrected_moves(editors: dict[str, ecbm.Editor]) -> None:
    editor = editors["logits"]
    result = editor.apply(EDITS["correct categorical"], "exact")
    same = head_rows(result.model) == head_rows(editor.model)
    assert bool(same[[0, 4, 5, 6, 7, 8]].all())
    assert not bool(same[[1, 2, 3]].all(1).any())
    assert result.report["changed"]["concepts"] == 1


@pytest.mark.parametrize("method", ["auto", "exact", "ekfac", "hessian", "retrain"])
def test_deep_models_take_every_edit(method: str) -> None:
    recipe = ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=2, patience=None)
    editor = ecbm.Editor(ecbm.train(DATA, recipe), DATA)
    for level in ("correct all types", "add ordinal", "mix"):
        result = editor.apply(EDITS[level], method)
        assert result.model.layout == result.data.layout
        for concept in result.model.layout.of_type("ordinal"):
            slopes = head_rows(result.model)[list(concept.columns), :-1]
            assert bool((slopes == slopes[:1]).all())
        if method in ("auto", "exact"):
            assert result.report["certificate"]["class_predictions_that_could_differ"] == 0


def test_joint_models_are_edited_to_the_nearest_minimum() -> None:
    recipe = LINEAR.replace(regime="joint", bottleneck="probabilities")
    editor = ecbm.Editor(ecbm.train(DATA, recipe), DATA)
    result, again = (editor.apply(EDITS["correct all types"], method) for method in ("exact", "retrain"))
    assert closure(result.model, editor.model, again.model) > 0.999
    slopes = head_rows(result.model)[list(ORDINAL), :-1]
    assert bool((slopes == slopes[:1]).all())


# -- the edit as a value -----------------------------------------------------------------------------------


def labels(data: ecbm.Dataset, sample: str, concept: str) -> list[float]:
    return data.concepts[data.row(sample), list(data.concept(concept).columns)].tolist()


def test_corrections_are_given_by_name_grade_and_unit() -> None:
    edit = ecbm.Edit([(A, "colour", "green"), (A, "severity", 2), (A, "size", 12.5), (B, "severity", "0")])
    after = edit.apply_to(DATA)
    assert labels(after, A, "colour") == [0, 0, 1]
    assert labels(after, A, "severity") == [1, 1, 0]
    assert labels(after, A, "size") == [12.5]
    assert labels(after, B, "severity") == [0, 0, 0]
    assert str(edit.resolved(DATA)) == "correct 4 concept labels of 2 samples"


def test_one_column_of_a_categorical_concept_is_enough_where_it_is_one() -> None:
    after = ecbm.Edit([(A, "colour::blue", 1)]).apply_to(DATA)
    assert labels(after, A, "colour") == [0, 1, 0]
    soft = ecbm.Edit([(A, name, value) for name, value in zip(NAMES[1:4], (0.2, 0.5, 0.3), strict=True)])
    assert labels(soft.apply_to(DATA), A, "colour") == pytest.approx([0.2, 0.5, 0.3])
    gone = ecbm.Edit([(A, "colour", None)]).apply_to(DATA)
    assert all(math.isnan(value) for value in labels(gone, A, "colour"))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (ecbm.Edit([(A, "colour", "purple")]), "unknown value of 'colour' 'purple'"),
        (ecbm.Edit([(A, "colour", 1)]), "give one of its values by name"),
        (ecbm.Edit([(A, "severity", 7)]), "grades are 0 to 3"),
        (ecbm.Edit([(A, "size", "large")]), "'large' is not a number"),
        (ecbm.Edit([(A, "striped", 2)]), r"2 is not in \[0, 1\]"),
        (ecbm.Edit([(A, "striped", "maybe")]), "'maybe' is not a number"),
        (ecbm.Edit([(A, "colour::blue", 0.4)]), "give its value"),
        (ecbm.Edit([(A, "severity::>=3", 1), (A, "severity::>=1", 0)]), "give its value"),
        (ecbm.Edit(remove_concepts=["colour::red"]), "remove 'colour' as a whole"),
        (ecbm.Edit(add_concepts={"colour::purple": {A: 1}}), "'colour' exists already"),
        (ecbm.Edit(add_concepts={"severity": {A: "a", B: "b"}}), "'severity' exists already"),
        (ecbm.Edit(remove_concepts=["colour"], add_concepts={"colour": {A: "a", B: "b"}}), "in an edit before"),
    ],
)
def test_values_that_a_type_does_not_allow_are_refused(edit: ecbm.Edit, words: str) -> None:
    with pytest.raises(ecbm.InputError, match=words) as caught:
        edit.apply_to(DATA)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"add_concepts": {"pain": {A: 1, B: 2.5}}, "concept_types": {"pain": "ordinal"}}, "whole numbers"),
        ({"add_concepts": {"pain": {A: "a"}}}, "two values or more"),
        ({"add_concepts": {"pain": {A: 3}}}, r"3 is not in \[0, 1\]"),
        ({"add_concepts": {"pain": {A: 1}}, "concept_types": {"pain": "graded"}}, "unknown type 'graded'"),
        ({"add_concepts": {"pain": {A: 1}}, "units": {"pain": "mm"}}, "no continuous concept"),
    ],
)
def test_new_concepts_that_their_type_does_not_allow_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ecbm.InputError, match=words):
        ecbm.Edit(**given)  # type: ignore[arg-type]


def test_new_samples_may_lack_values_that_none_of_them_has() -> None:
    more = ecbm.Dataset(
        ["n1"],
        torch.zeros(1, 5),
        torch.tensor([[1.0, 0.0, 1.0]]),
        torch.tensor([0]),
        ["colour::red", "colour::blue", "severity::>=2"],
        ["low"],
        concept_types={"colour": "categorical", "severity": "ordinal"},
    )
    after = ecbm.Edit(add_samples=more).apply_to(DATA)
    assert labels(after, "n1", "colour") == [1, 0, 0]
    assert labels(after, "n1", "severity") == [1, 1, 0]
    assert math.isnan(labels(after, "n1", "size")[0])


def test_new_samples_of_another_type_are_refused() -> None:
    more = mixed(6, prefix="n").replace(concept_types={"size": "continuous", "colour": "categorical"}, units={})
    again = ecbm.Dataset(
        more.ids, more.inputs, more.concepts[:, 1:3].nan_to_num(0.5).round(), more.labels, ["a::x", "a::y"],
        more.class_names, concept_types=None,
    )  # fmt: skip
    assert ecbm.Edit(add_samples=more).apply_to(DATA).concept_types == DATA.concept_types
    with pytest.raises(ecbm.InputError, match="unknown concept"):
        ecbm.Edit(add_samples=again).apply_to(DATA)


def test_typed_edits_are_written_and_read_back(tmp_path: Path) -> None:
    for name, edit in EDITS.items():
        if edit.add_samples is None:
            path = write_edit(edit, tmp_path / f"{name}.json")
            assert read_edit(path, DATA).resolved(DATA) == edit.resolved(DATA), name


def test_a_table_of_corrections_may_hold_values_of_every_type(tmp_path: Path) -> None:
    (tmp_path / "edit.csv").write_text(
        f"id,concept,value\n{A},colour,blue\n{A},severity,2\n{B},size,12.5\n{B},crest,\n"
    )
    wanted = ecbm.Edit([(A, "colour", "blue"), (A, "severity", 2), (B, "size", 12.5), (B, "crest", None)])
    assert read_edit(tmp_path / "edit.csv", DATA) == wanted
    frame = pd.DataFrame({"id": [A, B], "concept": ["colour", "size"], "value": ["blue", 12.5]})
    assert ecbm.Edit.from_frame(frame, DATA) == ecbm.Edit([(A, "colour", "blue"), (B, "size", 12.5)])
    (tmp_path / "bad.csv").write_text(f"id,concept,value\n{A},size,large\n")
    with pytest.raises(ecbm.InputError, match="line 2, column 'value': 'large' is not a number"):
        read_edit(tmp_path / "bad.csv", DATA)


def test_a_table_of_corrections_may_have_decimal_commas_and_words(tmp_path: Path) -> None:
    numbers = next(concept.name for concept in DATA.layout.concepts if concept.type == "continuous")
    text = f"id;concept;value\n{A};striped;ja\n{B};striped;nein\n{A};{numbers};9,25\n"
    (tmp_path / "edit.csv").write_text("\ufeff" + text.replace("\n", "\r\n"))
    wanted = ecbm.Edit([(A, "striped", 1), (B, "striped", 0), (A, numbers, 9.25)])
    assert read_edit(tmp_path / "edit.csv", DATA).apply_to(DATA) == wanted.apply_to(DATA)


def test_yes_and_no_are_values_wherever_one_is_given(tmp_path: Path) -> None:
    wanted = ecbm.Edit([(A, "striped", 0)], add_concepts={"limp": {A: 1, B: 0}}).apply_to(DATA)
    words = ecbm.Edit([(A, "striped", "no")], add_concepts={"limp": {A: "yes", B: "no"}})
    assert words.apply_to(DATA) == wanted
    (tmp_path / "limp.csv").write_text(f"id,limp\n{A},present\n{B},absent\n")
    content = {"correct_concepts": [{"id": A, "concept": "striped", "value": "no"}], "add_concepts": "limp.csv"}
    (tmp_path / "edit.json").write_text(json.dumps(content))
    assert read_edit(tmp_path / "edit.json", DATA).apply_to(DATA) == wanted
    (tmp_path / "limp.csv").write_text(f"id,limp\n{A},left\n{B},absent\n")
    with pytest.raises(ecbm.InputError, match=r"line 2, column 'limp': 'left' is neither yes nor no"):
        read_edit(tmp_path / "edit.json", DATA)


def test_changes_count_labels_and_not_columns() -> None:
    row = next(i for i in TRAIN.ids if not math.isnan(labels(DATA, i, "colour")[0]))
    present = DATA.concept("colour").value_of(labels(DATA, row, "colour"))
    other = next(value for value in ("red", "blue", "green") if value != present)
    changes = ecbm.Edit([(row, "colour", other)]).changes(DATA)
    assert (changes.asked, changes.unchanged) == (1, 0)
    assert ecbm.Edit([(row, "colour", present)]).changes(DATA).unchanged == 1
    assert len(changes.before.correct_concepts) == 3


def test_a_removed_concept_counts_once_whatever_its_columns() -> None:
    assert str(ecbm.Edit(remove_concepts=["colour", "severity"]).resolved(DATA)) == "remove 2 concepts"


def test_changes_outside_training_are_counted_as_labels() -> None:
    held = DATA.split("val").ids[0]
    there = DATA.concept("severity").value_of(labels(DATA, held, "severity"))
    edit = ecbm.Edit([(held, "severity", 0 if there else 3)], remove_concepts=["colour"])
    (note,) = edit.resolved(DATA).changes(DATA).notes()
    assert note == "1 of its 2 changes is in val, on which no training term depends"


# -- real tables -------------------------------------------------------------------------------------------


def wine() -> ecbm.Dataset:
    """Wines: alcohol as measured, ash in grades, hue in three words, magnesium yes or no."""
    from sklearn.datasets import load_wine

    found = load_wine(as_frame=True)
    return measured(found.frame, found.target, list(found.target_names), "alcohol", "ash", "hue", "magnesium")


def tumours() -> ecbm.Dataset:
    """Tumours: radius as measured, texture in grades, smoothness in three words, symmetry yes or no."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    columns = "mean radius", "mean texture", "mean smoothness", "mean symmetry"
    return measured(found.frame, found.target, list(found.target_names), *columns)


def measured(
    frame: pd.DataFrame, target: pd.Series, classes: list[str], size: str, grade: str, word: str, binary: str
) -> ecbm.Dataset:
    """Four columns of a table as concepts of the four types; all others are features."""
    cuts = frame[grade].quantile([0.3, 0.6, 0.9]).tolist()
    words = pd.qcut(frame[word], 3, labels=False)
    columns = {f"{grade}::>={step}": (frame[grade] > cut) for step, cut in enumerate(cuts, 1)}
    columns |= {f"{word}::{name}": words == place for place, name in enumerate(("low", "middle", "high"))}
    columns |= {size: frame[size], binary: frame[binary] > frame[binary].median()}
    features = frame.drop(columns=[size, grade, word, binary, "target"])
    splits = (["train"] * 3 + ["val", "test"]) * (len(frame) // 5 + 1)
    return ecbm.Dataset(
        [f"row{number}" for number in range(len(frame))],
        features.to_numpy("float32"),
        pd.DataFrame(columns).to_numpy("float32"),
        target.to_numpy(),
        list(columns),
        classes,
        splits[: len(frame)],
        {grade: "ordinal", word: "categorical", size: "continuous"},
    )


@pytest.mark.parametrize("table", [wine, tumours])
def test_exact_edits_of_real_tables_are_retraining(table) -> None:  # type: ignore[no-untyped-def]
    data = table()
    editor = ecbm.Editor(ecbm.train(data, LINEAR), data)
    ids = data.split("train").ids
    grade, word, size = (
        next(name for name, kind in data.concept_types.items() if kind == wanted)
        for wanted in ("ordinal", "categorical", "continuous")
    )
    x = data.split("test").inputs
    for edit in (
        ecbm.Edit([(i, grade, 0) for i in ids[:9]] + [(i, word, "low") for i in ids[5:20]]),
        ecbm.Edit([(i, size, 30.0) for i in ids[:9]], remove_samples=ids[20:30]),
        ecbm.Edit(remove_concepts=[grade, size]),
    ):
        result, again = editor.apply(edit, "exact"), editor.apply(edit, "retrain")
        a, b, c = (m.class_probabilities(x) for m in (result.model, editor.model, again.model))
        assert 1 - float((a - c).norm()) / float((b - c).norm()) > 0.9999
        assert result.report["certificate"]["class_predictions_that_could_differ"] == 0
        torch.testing.assert_close(head_rows(result.model), head_rows(again.model), rtol=0, atol=1e-8)
