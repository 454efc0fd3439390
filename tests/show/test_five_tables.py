"""Five tables as people have them, each described, put into a workspace, trained and edited as it is.

``tests/tables``: a clinic's export (Windows-1252, semicolons, decimal commas, remarks), a biologist's workbook (two
sheets, dates, empty cells), one-hot columns as pandas writes them, a survey's words (tabs, byte order mark), and a
wide table of a laboratory (percentages, separated thousands, gaps).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ecbm.keep.workspace import Workspace

TABLES = Path(__file__).parents[1] / "tables"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, the options it needs, what it is then taken for, and corrections of its first training sample."""

    file: str
    options: tuple[str, ...]
    types: dict[str, str]
    corrections: dict[str, Any]
    inputs: int


CASES = [
    Table(
        "clinic.csv",
        (
            "--id-column", "Patientennr", "--label-column", "Diagnose", "--features", "Alter,Geschlecht,CRP (mg/l)",
            "--missing", "k.A.", "--type", "Schweregrad=ordinal", "--ignore", "Bemerkung",
        ),
        {"Erguss": "binary", "Schweregrad": "ordinal", "Größe (mm)": "continuous"},
        {"Erguss": 0.5, "Schweregrad": 3, "Größe (mm)": 9.25},
        4,
    ),
    Table(
        "birds.xlsx",
        (
            "--sheet", "field sheet", "--id-column", "Specimen", "--label-column", "Species",
            "--features", "wing (mm),tail (mm),mass (g)", "--type", "fat score=ordinal", "--ignore", "Date",
        ),
        {"colour": "categorical", "crest": "binary", "fat score": "ordinal"},
        {"colour": "white", "fat score": 3, "crest": 0.5},
        3,
    ),
    Table(
        "dummies.csv",
        ("--features", "f*", "--type", "colour=categorical", "--type", "shape=categorical"),
        {"ripe": "binary", "colour": "categorical", "shape": "categorical"},
        {"colour": "green", "ripe": 0.5},
        5,
    ),
    Table(
        "survey.tsv",
        (
            "--id-column", "respondent", "--label-column", "would recommend",
            "--features", "age,household,hours per week",
            "--type", "I feel safe=ordinal", "--type", "how often do you walk=ordinal",
        ),
        {
            "I feel safe": "ordinal", "how often do you walk": "ordinal", "region": "categorical",
            "owns a car": "binary",
        },
        {"I feel safe": 2, "region": "suburb"},
        6,
    ),
    Table(
        "lab.csv",
        (
            "--id-column", "sample_id", "--label-column", "diagnosis", "--split-column", "set",
            "--features", "lab_*", "--type", "CKD stage=ordinal", "--type", "eGFR=continuous:ml/min",
        ),
        {
            "anaemia": "binary", "inflammation": "binary", "CKD stage": "ordinal", "eGFR": "continuous",
            "liver pattern": "categorical",
        },
        {"CKD stage": 0, "eGFR": 88.5, "liver pattern": "cholestatic"},
        24,
    ),
]  # fmt: skip


@pytest.mark.parametrize("table", CASES, ids=lambda table: table.file)
def test_a_table_goes_through_as_it_is(table, tmp_path, machine):
    path, ward = TABLES / table.file, tmp_path / "ward"
    described = machine("describe", path, *table.options)
    assert described["types"] == table.types
    told = {column["name"]: column for column in described["columns"]}
    assert {name: told[name]["type"] for name in table.types if name in told} == table.types
    assert all(column["why"] for column in described["columns"])
    assert described["input_shape"] == [table.inputs]

    made = machine("init", ward, "--data", path, *table.options)
    assert made["fingerprint"] == described["fingerprint"]
    assert made["columns"] == described["columns"]
    machine("train", ward)
    sample = Workspace(ward).data().split("train").ids[0]
    items = [{"id": sample, "concept": name, "value": value} for name, value in table.corrections.items()]
    (tmp_path / "edit.json").write_text(json.dumps({"correct_concepts": items}))
    report = machine("edit", ward, tmp_path / "edit.json")
    assert report["certificate"]["class_predictions_that_could_differ"] == 0
    assert report["certificate"]["concept_predictions_that_could_differ"] == 0
    edited = Workspace(ward).data()
    for name, value in table.corrections.items():
        concept = edited.concept(name)
        labels = edited.concepts[edited.row(sample)][list(concept.columns)].tolist()
        assert concept.value_of(labels) == value


@pytest.mark.parametrize("table", CASES, ids=lambda table: table.file)
def test_without_its_options_it_is_refused_in_one_line_that_names_them(table, run):
    options = list(table.options)
    doubtful = [place for place, word in enumerate(options) if word in ("--type", "--ignore")]
    if table.file == "dummies.csv":
        status, out, _ = run("describe", TABLES / table.file, "--features", "f*")
        assert status == 0
        assert "--type colour=categorical" in out
        return
    for place in reversed(doubtful):
        del options[place : place + 2]
    status, out, err = run("describe", TABLES / table.file, *options)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    for place in doubtful:
        column = table.options[place + 1].partition("=")[0]
        assert f"column '{column}'" in err or column == "eGFR"
    assert "--type" in err


def test_people_see_what_each_column_was_taken_for_and_how_to_say_otherwise(run, tmp_path):
    clinic = CASES[0]
    status, out, err = run("init", tmp_path / "ward", "--data", TABLES / clinic.file, *clinic.options)
    assert (status, err) == (0, "")
    for words in ("Windows-1252", "'Größe'", "semicolons", "concept: ordinal", "grades 0 to 3", "'nein' and 'ja'"):
        assert words in out
    assert "--splits" in out


def test_new_rows_are_predicted_from_a_table(run, machine, tmp_path):
    clinic, ward = CASES[0], tmp_path / "ward"
    machine("init", ward, "--data", TABLES / clinic.file, *clinic.options)
    machine("train", ward)
    (tmp_path / "new.csv").write_text("CRP (mg/l);Alter;Geschlecht\n12,5;61;w\n;40;m\n")
    found = machine("predict", ward, tmp_path / "new.csv")["predictions"]
    assert [one["id"] for one in found] == ["1", "2"]
    (tmp_path / "new.csv").write_text("CRP (mg/l);Alter;Geschlecht\n12,5;61;d\n")
    status, _, err = run("predict", ward, tmp_path / "new.csv")
    assert (status, "line 2, column 'Geschlecht': 'd' is no value of this feature" in err) == (2, True)


def test_new_rows_keep_the_names_and_habits_of_the_clinic(run, machine, tmp_path):
    clinic, ward, new = CASES[0], tmp_path / "ward", tmp_path / "new.csv"
    machine("init", ward, "--data", TABLES / clinic.file, *clinic.options)
    machine("train", ward)
    new.write_text("Patientennr;CRP (mg/l);Alter;Geschlecht\n0815;12,5;61;w\n0816;k.A.;40;m\n")
    status, _, err = run("predict", ward, new)
    assert (status, "--missing k.A." in err) == (2, True)
    found = machine("predict", ward, new, "--id-column", "Patientennr", "--missing", "k.A.")["predictions"]
    assert [one["id"] for one in found] == ["0815", "0816"]
    status, _, err = run("predict", ward, new, "--id-column", "Nummer", "--missing", "k.A.")
    assert (status, "no column 'Nummer'" in err) == (2, True)


def test_a_column_whose_name_has_a_comma_can_be_named(run, machine, tmp_path):
    rows = [f"s{i},{'ab'[i % 2]},{i % 2},{i},{i % 7},free {i}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(['id,label,crest,age,"CRP, mg/l","note, free"', *rows]) + "\n")
    table = ("describe", tmp_path / "t.csv", "--features", "age")
    status, _, err = run(*table, "--features", "CRP, mg/l")
    assert (status, """stands in quotation marks: --features '"CRP, mg/l"'""" in err) == (2, True)
    features = (*table, "--features", '"CRP, mg/l"')
    status, _, err = run(*features)
    assert (status, """--ignore '"note, free"'""" in err) == (2, True)
    status, _, err = run(*features, "--ignore", "note, free")
    assert (status, """stands in quotation marks: --ignore '"note, free"'""" in err) == (2, True)
    found = machine(*features, "--ignore", '"note, free"')
    assert [c["name"] for c in found["columns"] if c["role"] == "feature"] == ["age", "CRP, mg/l"]


def test_features_are_a_file_or_columns(run, files):
    status, _, err = run(
        "describe", files / "samples.csv", "--features", files / "features.npy", "--features", "round"
    )
    assert (status, "is a file; give it alone" in err) == (2, True)


def test_options_of_reading_are_refused_where_they_cannot_be(run, tmp_path):
    lab = (TABLES / "lab.csv", "--features", "lab_*", "--label-column", "diagnosis", "--id-column", "sample_id")
    for options, words in (
        (("--splits", "a,b"), "--splits a,b: give three shares"),
        (("--type", "severity"), "--type severity: write COLUMN=TYPE"),
        (("--type", "eGFR=ordnial"), "did you mean 'ordinal'"),
        (("--decimal", "'"), "give '.' or ','"),
        (("--sheet", "one"), "--sheet is for .xlsx"),
        (("--delimiter", "ab"), "--delimiter ab: give one character"),
        (("--ignore", "nothing"), "unknown column to ignore 'nothing'"),
    ):
        status, _, err = run("describe", *lab, *options)
        assert (status, err.count("\n")) == (2, 1)
        assert words in err
