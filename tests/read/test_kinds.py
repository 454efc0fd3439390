"""What a concept column is taken for where its cells leave no doubt, and what is asked where they do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import ecbm
from ecbm.errors import InputError
from ecbm.read.reading import Asked, read_and_tell
from ecbm.read.said_types import types_from_flags

N = 24


def frame(**columns) -> pd.DataFrame:
    cells = {name: (list(values) * N)[:N] for name, values in columns.items()}
    return pd.DataFrame({"id": [f"s{n}" for n in range(N)], "label": ["x", "y"] * (N // 2), **cells})


def read(types=None, **columns) -> ecbm.Dataset:
    return ecbm.read_dataset(frame(**columns), features=np.zeros((N, 1)), types=types)


def refused(types=None, **columns) -> str:
    with pytest.raises(InputError) as caught:
        read(types, **columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "pair",
    [
        ("no", "yes"),
        ("N", "Y"),
        ("absent", "present"),
        ("negative", "positive"),
        ("-", "+"),
        ("nein", "ja"),
        ("F", "T"),
    ],
)
def test_yes_and_no_in_their_usual_forms_are_binary(pair):
    data = read(c=[*pair, "?", None])
    assert data.concept_types == {"c": "binary"}
    assert data.concepts[:2, 0].tolist() == [0, 1]
    assert data.concepts[2:4, 0].isnan().all()


def test_one_letter_alone_is_no_yes_or_no():
    assert "only 'f' or empty" in refused(sex=["f", None])
    assert read(sex=["f", "m"]).concept_types == {"sex": "categorical"}
    assert read(crest=["yes", None]).concepts[0, 0] == 1


def test_two_ways_of_saying_yes_in_one_column_are_no_yes_or_no():
    assert read(c=["yes", "present"]).concept_types == {"c": "categorical"}


def test_a_few_words_are_one_categorical_concept():
    data = read(colour=["red", "blue", None, "green"])
    assert data.concept_names == ("colour::blue", "colour::green", "colour::red")
    assert data.concept_types == {"colour": "categorical"}
    assert data.concepts[0].tolist() == [0, 0, 1]
    assert data.concepts[2].isnan().all()


def test_numbers_with_decimals_are_continuous_and_soft_labels_binary():
    values = np.random.default_rng(0).normal(50, 10, N).round(1)
    data = read(size=values, soft=values / 100)
    assert data.concept_types == {"size": "continuous", "soft": "binary"}
    assert data.concepts[:, 0].numpy() == pytest.approx(values)


def test_percentages_are_soft_labels():
    data = read(agreed=["35 %", "100 %"])
    assert data.concepts[:2, 0].tolist() == pytest.approx([0.35, 1.0])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([0, 1, 2, 3], "types={'c': 'ordinal'}"),
        ([34, 51, 19, 77], "types={'c': 'continuous'}"),
        ([0, 1, 0, 1.5], "types={'c': 'continuous'}"),
        (["mild", "severe", "moderate"], "types={'c': 'ordinal'}"),
        (["none", "left", "right"], "types={'c': 'categorical:none,left,right'}"),
        (["x", None], "ignore=['c']"),
        ([f"patient {n}" for n in range(N)], "id_column='c'"),
        (range(100, 100 + N), "id_column='c'"),
        (["low", "1"], "ignore=['c']"),
    ],
)
def test_what_could_be_several_things_is_asked_for_with_the_option_that_says_it(cells, said):
    message = refused(c=cells)
    assert "column 'c'" in message
    assert said in message


def test_all_doubts_are_named_at_once():
    message = refused(grade=[0, 1, 2], pain=["mild", "severe"], crest=[0, 1])
    assert "column 'grade'" in message
    assert "likewise column 'pain'" in message
    assert "crest" not in message


def test_grades_become_thresholds():
    data = read({"severity": "ordinal"}, severity=[0, 1, None, 3])
    assert data.concept_names == ("severity::>=1", "severity::>=2", "severity::>=3")
    assert data.concept_types == {"severity": "ordinal"}
    assert data.concepts[[0, 1, 3]].tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 1]]
    assert data.concepts[2].isnan().all()
    # Answers from 1 to 5: the lowest grade is 1.
    assert read({"q": "ordinal"}, q=[1, 5, 3]).concept_names == ("q::>=2", "q::>=3", "q::>=4", "q::>=5")


def test_words_with_an_order():
    expected = [[0, 0], [1, 0], [1, 1]]
    assert read({"c": "ordinal"}, c=["mild", "Moderate", "severe"]).concepts[:3].tolist() == expected
    said = {"c": "ordinal:calm,nervous,wild"}
    assert read(said, c=["calm", "nervous", "wild"]).concepts[:3].tolist() == expected
    assert read({"c": "ordinal:none,mild,severe"}, c=["none", "mild", "severe"]).concepts[:3].tolist() == expected
    assert read({"c": "ordinal:3,2,1"}, c=[3, 2, 1]).concepts[:3].tolist() == expected
    assert "say it, lowest first" in refused({"c": "ordinal"}, c=["calm", "wild"])
    assert "'tame' is none of calm, wild" in refused({"c": "ordinal:calm,wild"}, c=["calm", "tame"])


def test_two_words_of_which_one_is_said_to_be_one():
    assert read({"side": "binary:left,right"}, side=["right", "left"]).concepts[:2, 0].tolist() == [1, 0]
    assert "binary:left,right" in refused({"side": "binary"}, side=["left", "right"])


def test_codes_units_and_measurements_said():
    assert read({"ward": "categorical"}, ward=[4, 7, 9]).concept_names == ("ward::4", "ward::7", "ward::9")
    data = read({"size": "continuous:mm"}, size=[3, 4, 5])
    assert (data.concept_types, data.units) == ({"size": "continuous"}, {"size": "mm"})


@pytest.mark.parametrize("name", ["colour={}", "colour::{}", "colour_{}"])
def test_one_hot_columns_are_one_concept_where_that_is_said(name):
    columns = {name.format("red"): [1, 0, None], name.format("blue"): [0, 1, None]}
    assert set(read(**columns).concept_types.values()) == {"binary"}
    data = read({"colour": "categorical"}, **columns)
    assert data.concept_types == {"colour": "categorical"}
    assert data.concept("colour").values == ("red", "blue")
    assert torch.equal(data.concepts[:2], torch.tensor([[1.0, 0], [0, 1]]))
    columns[name.format("blue")] = [0, 0, None]
    assert "no value is present" in refused({"colour": "categorical"}, **columns)
    columns[name.format("blue")] = [0, None, None]
    assert "in some of its columns only" in refused({"colour": "categorical"}, **columns)


def test_what_was_understood_is_said_for_every_column():
    table = frame(wing_red=[1, 0], wing_blue=[0, 1], colour=["red", "blue", "green"], soft=[0.5, 1])
    reading = read_and_tell(table.drop(columns="id"), Asked(features=np.zeros((N, 1))))
    told = {column.name: (column.role, column.kind) for column in reading.columns}
    assert told == {
        "label": ("label", "class, one of 2"),
        "wing_red": ("concept", "binary"),
        "wing_blue": ("concept", "binary"),
        "colour": ("concept", "categorical"),
        "soft": ("concept", "binary"),
    }
    otherwise = {column.name: column.otherwise for column in reading.columns}
    assert "types={'soft': 'continuous'}" in otherwise["soft"]
    assert "ordinal:" in otherwise["colour"]
    assert any("types={'wing': 'categorical'}" in remark for remark in reading.remarks)
    assert any("row-1 to row-24" in remark for remark in reading.remarks)
    assert reading.data.ids[0] == "row-1"


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"c": "ordnial"}, "did you mean 'ordinal'"),
        ({"d": "ordinal"}, "unknown column 'd'"),
        ({"c": "ordinal:a"}, "one value only"),
        ({"c": 3}, "expected a type"),
        ({"c": "binary:a,b,c"}, "name the word for 0"),
        ({"c": "categorical:a,a"}, "named twice"),
    ],
)
def test_a_type_that_cannot_be(types, words):
    assert words in refused(types, c=[0, 1])


def test_types_of_the_command_line():
    given = ["a=b=ordinal", "pain=ordinal:x=1,y", "size=continuous:mm"]
    assert types_from_flags(given) == {"a=b": "ordinal", "pain": "ordinal:x=1,y", "size": "continuous:mm"}
    for wrong in (["severity"], ["=ordinal"], ["a=ordinal", "a=binary"]):
        with pytest.raises(InputError):
            types_from_flags(wrong)


def test_columns_of_one_group_are_not_taken_for_pandas_dummies_of_its_first_word():
    shapes = ["round", "band"] * 20
    columns = {f"nucleus_shape={name}": [int(one == name) for one in shapes] for name in ("round", "band")}
    table = pd.DataFrame({"label": ["a", "b"] * 20, **columns})
    remarks = " ".join(ecbm.describe(table, features=np.zeros((40, 2))).remarks)
    assert "'nucleus_shape': every row has exactly one of its 2 columns" in remarks
    assert "'nucleus':" not in remarks
