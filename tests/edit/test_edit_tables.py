"""Corrections as a table: one row a label, in a file or a pandas table."""

from __future__ import annotations

import pandas as pd
import pytest

import ecbm
from ecbm.edit.files import read_edit

FRAME = pd.DataFrame({"id": ["a", "b", "c"], "concept": ["crest", "crest", "tail"], "value": [1, None, 0.5]})
EDIT = ecbm.Edit(correct_concepts=[("a", "crest", 1), ("b", "crest", None), ("c", "tail", 0.5)])


def test_a_frame_of_corrections_is_an_edit():
    assert ecbm.Edit.from_frame(FRAME) == EDIT
    labels = pd.DataFrame({"id": [1, 2], "label": ["wren", "finch"]})
    assert ecbm.Edit.from_frame(labels) == ecbm.Edit(correct_labels=[("1", "wren"), ("2", "finch")])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_of_corrections_is_an_edit_file(tmp_path, kind):
    path = tmp_path / f"edit.{kind}"
    FRAME.to_csv(path, index=False) if kind == "csv" else FRAME.to_parquet(path)
    assert read_edit(path) == EDIT


@pytest.mark.parametrize("kind", ["csv", "tsv", "xlsx"])
def test_yes_and_no_are_values_of_a_correction(tmp_path, kind):
    path = tmp_path / f"edit.{kind}"
    frame = FRAME.assign(value=["Yes", None, "no"])
    if kind == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    assert read_edit(path) == ecbm.Edit([("a", "crest", 1), ("b", "crest", None), ("c", "tail", 0)])


def test_concepts_and_classes_may_stand_in_one_table(tmp_path):
    both = ecbm.Edit(correct_concepts=EDIT.correct_concepts, correct_labels=[("a", "wren"), ("d", "NA")])
    assert ecbm.Edit.from_frame(both.to_frame()) == both
    both.to_frame().to_csv(tmp_path / "edit.csv", index=False)
    assert read_edit(tmp_path / "edit.csv") == both
    (tmp_path / "row.csv").write_text("id,concept,value,label\na,crest,1,wren\n")
    assert read_edit(tmp_path / "row.csv") == ecbm.Edit([("a", "crest", 1)], [("a", "wren")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,concept,value\na,crest,2\n", "edit.csv, line 2, column 'value': 2 is not in [0, 1]"),
        ("id,concept,value\na,crest,maybe\n", "edit.csv, line 2, column 'value': 'maybe' is neither yes nor no"),
        (
            "id,concept,value\na,crest,1\na,crest,0\n",
            "edit.csv: correct_concepts: concept 'crest' of sample 'a' is corr",
        ),
        ("id,concept,value\n,crest,1\n", "edit.csv, line 2, column 'id': empty"),
        ("id,concept,value\na,,1\n", "edit.csv, line 2, column 'concept': empty, but there is a value (1)"),
        ("id,concept,value,label\na,,,\n", "edit.csv, line 2: nothing to correct"),
        ("id,concept\na,crest\n", "edit.csv: no column 'value'"),
        ("ident,concept,value\na,crest,1\n", "edit.csv: column 'ident' is none of id, concept, value, label"),
        ("concept,value\ncrest,1\n", "edit.csv: no column 'id'"),
        ("id\na\n", "edit.csv: nothing to correct; give columns concept and value, or label"),
        ("id,crest,tail\na,1,0\n", "one row a label"),
        ("", "edit.csv: the file is empty"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edit.csv").write_text(text)
    with pytest.raises(ecbm.InputError) as caught:
        read_edit("edit.csv")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_no_frame_is_refused():
    with pytest.raises(ecbm.InputError, match="expected a pandas DataFrame with id, concept and value, got list"):
        ecbm.Edit.from_frame([("a", "crest", 1)])
