"""The guide to bringing data shows errors and tables as they are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ecbm.errors import InputError
from ecbm.options import named_as_flags
from ecbm.read.reading import Asked, read_and_tell
from ecbm.read.tables import read_dataset

GUIDE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_table_of_the_guide_can_be_read(tmp_path, picture):
    (tmp_path / "samples.csv").write_text(re.search(r"```csv\n(.*?)```", GUIDE, re.DOTALL)[1])
    for number in (1, 2, 3):
        picture(tmp_path / "birds" / f"{number:03d}.jpg", number)
    data = read_dataset(tmp_path)
    assert data.groups == {"wing": ("wing=blue", "wing=red"), "crest": ("crest",)}
    assert data.concepts[1, 2].isnan()
    assert data.split_sizes == {"train": 2, "val": 1}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("id,label,crest\na,x,1\na,y,0\n", 2),
        ("id,label,crest\na,x,1\nb,y,1.5\n", 2),
        ("id,label,note\na,x,1\nb,y,shy\n", 2),
        ("id,label,crest\na,x,1\nb,y,0,1\n", 2),
        ("id,labels,crest\na,x,1\nb,y,0\n", 2),
        ("id,label,crest\na,x,1\nb,y,0\n", 3),
        ("id,label,crest\na,x,1\nb,y,0\n", None),
    ],
)
def test_the_errors_of_the_guide_are_those_of_the_program(tmp_path, monkeypatch, text, rows):
    monkeypatch.chdir(tmp_path)
    Path("samples.csv").write_text(text)
    features = np.zeros((rows or 2, 3))
    if rows is None:
        features[1, 2] = np.nan
    np.save("features.npy", features)
    with pytest.raises(InputError) as caught:
        read_dataset("samples.csv", features="features.npy")
    assert str(caught.value) in GUIDE.split("\n")


DESK = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
CLINIC = Path(__file__).parents[1] / "tables" / "clinic.csv"


def test_the_guide_that_starts_from_a_table_says_what_the_program_says(monkeypatch):
    """Its table, the question, the remarks and the reasons are those of the file in the tests."""
    monkeypatch.chdir(CLINIC.parent)
    assert "\n".join(CLINIC.read_bytes().decode("windows-1252").splitlines()[:5]) in DESK
    options = {
        "features": ["Alter", "Geschlecht", "CRP (mg/l)"],
        "id_column": "Patientennr",
        "label_column": "Diagnose",
        "missing": ["k.A."],
    }
    with named_as_flags():
        with pytest.raises(InputError) as asked:
            read_and_tell("clinic.csv", Asked(**options))
        assert str(asked.value) in DESK.split("\n")
        reading = read_and_tell(
            "clinic.csv", Asked(**options, types={"Schweregrad": "ordinal"}, ignore=["Bemerkung"])
        )
    assert "\n".join(reading.remarks) in DESK
    for column in reading.columns:
        if column.role in ("feature", "concept"):
            assert f"| `{column.name}` | {column.role}: {column.kind} | {column.why} |" in DESK
