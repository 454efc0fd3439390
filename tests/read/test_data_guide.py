"""The guide to bringing data shows errors and tables as they are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ecbm.errors import InputError
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
