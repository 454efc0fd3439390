"""Text tables as programs save them: separators, encodings, decimal signs, marks for missing."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ecbm
from ecbm.errors import InputError
from ecbm.options import named_as_flags
from ecbm.read.numbers import numbers_in
from ecbm.read.reading import Asked, read_and_tell

PLAIN = "id,label,crest,size\na,wren,1,1.5\nb,finch,0,12.25\n"
SIZE = {"size": "continuous"}


def test_separators_byte_order_marks_and_encodings_change_nothing(table):
    path, features = table(PLAIN)
    expected = ecbm.read_dataset(path, features=features, types=SIZE)
    for mark in (";", "\t", "|"):
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            path, features = table(PLAIN.replace(",", mark), encoding=encoding)
            assert ecbm.read_dataset(path, features=features, types=SIZE) == expected
    path, features = table("sep=;\n" + PLAIN.replace(",", ";").replace(".", ","))
    assert ecbm.read_dataset(path, features=features, types=SIZE) == expected
    path, features = table(PLAIN.replace("\n", ",\n"))
    assert ecbm.read_dataset(path, features=features, types=SIZE) == expected


def test_the_index_that_pandas_writes_is_no_column(table):
    path, features = table(PLAIN)
    expected = ecbm.read_dataset(path, features=features, types=SIZE)
    path, features = table(",id,label,crest,size\n0,a,wren,1,1.5\n1,b,finch,0,12.25\n")
    reading = read_and_tell(path, Asked(features=features, types=SIZE))
    assert reading.data == expected
    assert any("index of pandas" in remark for remark in reading.remarks)


def test_windows_text_is_read_and_said(table):
    path, features = table("id,label,crest\na,Bläßhuhn,1\nb,Star,0\n", encoding="windows-1252")
    reading = read_and_tell(path, Asked(features=features))
    assert reading.data.class_names == ("Bläßhuhn", "Star")
    assert any("Windows-1252 (line 2: 'Bläßhuhn')" in remark for remark in reading.remarks)
    path, features = table("id,label,crest\na,Žluva,1\nb,Star,0\n", encoding="iso-8859-2")
    assert ecbm.read_dataset(path, features=features, encoding="iso-8859-2").class_names == ("Star", "Žluva")


def test_a_separator_within_names_does_not_count_where_only_one_divides_all_lines(table):
    path, features = table("id;label;crest, raised\na;x;1\nb;y;0\n")
    assert ecbm.read_dataset(path, features=features).concept_names == ("crest, raised",)


def test_lines_are_counted_as_in_the_file_in_every_dialect(table):
    path, features = table("sep=;\nid;label;c\n\na;x;1\nb;y;shy\n")
    with pytest.raises(InputError, match=r"line 5, column 'c': 'shy'"):
        ecbm.read_dataset(path, features=features)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1,5", "2"], [1.5, 2]),
        (["1.234,5", "1.234"], [1234.5, 1234]),
        (["1,234.5", "1,234"], [1234.5, 1234]),
        (["1,234,567"], [1234567]),
        (["0,123"], [0.123]),
        ([",5"], [0.5]),
        (["1,5e-3"], [0.0015]),
        (["1\u00a0234,5"], [1234.5]),
        (["\u22121"], [-1]),
        (["35 %", "12,5%"], [0.35, 0.125]),
        (["?", "n/a", " NaN ", "1"], [np.nan, np.nan, np.nan, 1]),
    ],
)
def test_these_are_numbers(texts, values):
    found = numbers_in(texts)
    np.testing.assert_allclose(found.values, values, rtol=1e-15)
    assert found.doubtful is None


@pytest.mark.parametrize(
    "texts", [["1,5", "1.5"], ["<0.5"], ["1_000"], ["12 mm"], ["1,5", "1,2,3"], ["35 %", "0.5x"]]
)
def test_these_are_not(texts):
    assert not numbers_in(texts).all_numbers


def test_a_number_that_could_be_two_is_asked_for(table):
    path, features = table("id;label;dose\na;x;1,234\nb;y;0\n")
    with pytest.raises(InputError, match=r"line 2, column 'dose': '1,234' may have .*decimal=',' or decimal='\.'"):
        ecbm.read_dataset(path, features=features, types={"dose": "continuous"})
    for decimal, value in ((",", 1.234), (".", 1234.0)):
        data = ecbm.read_dataset(path, features=features, types={"dose": "continuous"}, decimal=decimal)
        assert float(data.concepts[0, 0]) == pytest.approx(value)
    # Another column of the file leaves no doubt.
    path, features = table("id;label;dose;size\na;x;1,234;1,5\nb;y;0;2,25\n")
    data = ecbm.read_dataset(path, features=features, types={"dose": "continuous", "size": "continuous"})
    assert data.concepts.tolist() == pytest.approx(np.array([[1.234, 1.5], [0, 2.25]]))
    path, features = table("id;label;dose;size\na;x;1.234;1,5\nb;y;0;2,25\n")
    with pytest.raises(InputError, match=r"'1\.234' may have"):
        ecbm.read_dataset(path, features=features, types={"dose": "continuous", "size": "continuous"})


def test_marks_of_the_user_for_missing(table):
    path, features = table("id,label,c,d\na,x,1,-9\nb,y,k.A.,1\n")
    data = ecbm.read_dataset(path, features=features, missing=["k.A.", "-9"])
    assert data.concepts.isnan().tolist() == [[False, True], [True, False]]
    path, features = table("id,label,c\na,x,1\nb,y,-9\n")
    assert ecbm.read_dataset(path, features=features, missing=["-9"]).concepts[1, 0].isnan()


def test_on_the_command_line_errors_name_its_options(table):
    path, features = table("id,species,c\na,x,1\nb,y,2\n")
    with named_as_flags():
        with pytest.raises(InputError, match="pass --label-column 'its name'"):
            ecbm.read_dataset(path, features=features)
        with pytest.raises(InputError, match="grades: --type c=ordinal"):
            ecbm.read_dataset(path, features=features, label_column="species")
    with pytest.raises(InputError, match="pass label_column='its name'"):
        ecbm.read_dataset(path, features=features)


# A table with every type of concept, as it would be said by a program that writes plainly.
CELLS = st.fixed_dictionaries(
    {
        "label": st.sampled_from(["wren", "Bläßhuhn", "finch"]),
        "crest": st.sampled_from([0, 1, None]),
        "grade": st.sampled_from([0, 1, 2, 3, None]),
        "size": st.one_of(st.none(), st.integers(-2000, 2000).map(lambda n: n + 0.25)),
        "colour": st.sampled_from(["rot", "grün", "weiß, matt", None]),
    }
)
TYPES = {"grade": "ordinal", "size": "continuous:mm", "colour": "categorical"}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(CELLS, min_size=6, max_size=20),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "windows-1252"]),
    comma=st.booleans(),
    gap=st.sampled_from(["", "?", "NA"]),
    words=st.sampled_from([("0", "1"), ("nein", "ja"), ("absent", "present")]),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_one_table_in_any_dialect_is_one_dataset(tmp_path, rows, delimiter, encoding, comma, gap, words, ending):
    # All grades and two colours for certain; the numbers leave no doubt about the decimal sign.
    rows = [*rows, {"label": "wren", "crest": 1, "grade": 3, "size": 1.25, "colour": "rot"}]
    rows += [{"label": "finch", "crest": 0, "grade": 0, "size": -1999.75, "colour": "grün"}]
    frame = pd.DataFrame(rows)
    frame.insert(0, "id", [f"s{number}" for number in range(len(rows))])
    features = np.zeros((len(rows), 1))
    expected = ecbm.read_dataset(frame, features=features, types=TYPES)

    def cell(name, value) -> str:
        if value is None or value != value:
            return gap
        if name == "crest":
            return words[int(value)]
        if name == "size":
            return f"{value:.2f}".replace(".", ",") if comma else f"{value:.2f}"
        return f"{value:g}" if name == "grade" else str(value)

    path = tmp_path / "t.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=ending)
        writer.writerow(frame.columns)
        writer.writerows([cell(name, row[name]) for name in frame.columns] for row in frame.to_dict("records"))
    assert ecbm.read_dataset(path, features=features, types=TYPES) == expected
