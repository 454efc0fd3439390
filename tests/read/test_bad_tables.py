"""Bad input: one line that names file, line and column, and says what to do."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from ecbm.errors import InputError
from ecbm.read.tables import read_dataset


def refusal(*arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_dataset(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("id,label,c\na,x,1\na,y,0\n", ["line 3, column 'id'", "duplicate id 'a', first on line 2"]),
        ("id,label,c\na,x,1\nb,y,1.5\n", ["line 3, column 'c'", "1.5 is not in [0, 1]"]),
        ("id,label,c\na,x,-1\nb,y,0\n", ["line 2, column 'c'", "-1 is not in [0, 1]"]),
        ("id,label,c\na,x,inf\nb,y,0\n", ["line 2, column 'c'", "inf is not in [0, 1]"]),
        ("id,label,c\na,x,1\nb,y,yes\n", ["line 3, column 'c'", "'yes' is not a number", "ignore="]),
        ('id,label,c\n"a\nb",x,1\n\nc,y,yes\n', ["line 5, column 'c'"]),
        ("id,label,c\na,x,1\nb,,0\n", ["line 3, column 'label'", "every row needs a class label"]),
        ("id,label,c\na,x,1\n,y,0\n", ["line 3, column 'id'", "every row needs an id"]),
        ("id,label,c,split\na,x,1,train\nb,y,0,trian\n", ["line 3, column 'split'", "did you mean 'train'"]),
        ("id,label,c,split\na,x,1,train\nb,y,0,\n", ["line 3, column 'split'", "train, val, test"]),
        ("id,label\na,x\nb,y\n", ["no concept column"]),
        ("id,labels,c\na,x,1\nb,y,0\n", ["no column 'label'", "did you mean 'labels'", "label_column="]),
        ("ID,label,c\na,x,1\nb,y,0\n", ["no column 'id'", "did you mean 'ID'", "id_column="]),
        ("id,label,c,c\na,x,1,1\nb,y,0,0\n", ["two columns are called 'c'"]),
        (",id,label,c\nq,a,x,1\nr,b,y,0\n", ["column 1 has no name", "index=False"]),
        ("id,label,c\na,x,1\nb,y,0,1\n", ["line 3", "4 cells but the header has 3 columns"]),
        ("id,label,c\na,x\nb,y,0\n", ["line 2", "2 cells but the header has 3 columns"]),
        ('id,label,c\na,x,1\nb,"y,0\n', ["line 3"]),
        ("id;label,c\na;x,1\nb;y,0\n", ["line 1", "commas or semicolons", "delimiter="]),
        ("id;label;c\na;x;1\nb;y\n", ["line 3", "2 cells but the header has 3 columns; check semicolons"]),
        ("id,label,c\n", ["no rows"]),
        ("", ["empty"]),
    ],
)
def test_a_table_with(table, text, parts):
    path, features = table(text)
    message = refusal(path, features=features)
    assert message.startswith(str(path))
    for part in parts:
        assert part in message


def test_text_of_no_known_encoding(table):
    path, features = table("id,label,c\na,x,1\nb,?,0\n")
    path.write_bytes(path.read_bytes().replace(b"?", b"\x81"))
    assert "line 3: neither UTF-8 nor Windows-1252" in refusal(path, features=features)
    assert "unknown; for example utf-8" in refusal(path, features=features, encoding="klingon")
    assert "not ascii text" in refusal(path, features=features, encoding="ascii")


def test_a_missing_table_or_another_kind_of_file(tmp_path, table):
    _, features = table("")
    assert "no such file" in refusal(tmp_path / "none.csv", features=features)
    assert "unknown kind of table '.ods'" in refusal(tmp_path / "t.ods", features=features)
    assert "old Excel workbook" in refusal(tmp_path / "t.xls", features=features)
    (tmp_path / "empty").mkdir()
    assert "no samples.csv or samples.parquet" in refusal(tmp_path / "empty", features=features)


def test_a_damaged_parquet_file(tmp_path, table):
    _, features = table("")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    assert "not a readable Parquet file" in refusal(tmp_path / "t.parquet", features=features)


def test_parquet_counts_rows_and_refuses_fractions_as_ids(tmp_path, table):
    import pandas as pd

    _, features = table("")
    frame = pd.DataFrame({"id": ["a", "b"], "label": ["x", "y"], "c": [0.0, 7.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    assert "t.parquet, row 2, column 'c': 7 is not in [0, 1]" in refusal(tmp_path / "t.parquet", features=features)
    frame.assign(id=[1.5, 2.5]).to_parquet(tmp_path / "t.parquet")
    assert "column 'id': double cannot be read as an id" in refusal(tmp_path / "t.parquet", features=features)


GOOD = "id,label,c\na,x,1\nb,y,0\n"


def test_both_kinds_of_input_or_none(tmp_path, table):
    path, features = table(GOOD)
    assert "one kind of input" in refusal(path, features=features, images=tmp_path)
    assert "pass features=" in refusal(path)


def test_features_with_another_row_count(table):
    path, features = table(GOOD, rows=3)
    message = refusal(path, features=features)
    assert str(features) in message
    assert "3 rows of features" in message
    assert "2 samples" in message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite(table, value):
    path, features = table(GOOD)
    array = np.load(features)
    array[1, 2] = value
    np.save(features, array)
    assert f"{features}, row 2, column 3: {value:g} is not a finite number" in refusal(path, features=features)


def test_features_that_cannot_be_read(tmp_path, table):
    path, features = table(GOOD)
    assert "no such file" in refusal(path, features=tmp_path / "none.npy")
    np.save(features, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    assert "pickled objects, which are never opened" in refusal(path, features=features)
    features.write_bytes(features.read_bytes()[:40])
    assert "not a readable array" in refusal(path, features=features)
    np.savez(tmp_path / "x.npz", one=np.zeros(2), two=np.zeros(2))
    assert "unknown array 'arr_0'; known: 'one', 'two'" in refusal(path, features=tmp_path / "x.npz")
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:50])
    assert "not a readable array" in refusal(path, features=tmp_path / "x.npz")
    np.save(features, np.array(["a", "b"]))
    assert "give real numbers" in refusal(path, features=features)
    np.save(features, np.zeros((2, 8, 8, 3), np.uint8))
    assert "transpose them" in refusal(path, features=features)


PICTURES = "id,image,label,c\na,a.jpg,x,1\nb,b.jpg,y,0\n"


def test_a_missing_picture(tmp_path, table, picture):
    path, _ = table(PICTURES)
    picture(tmp_path / "p" / "a.jpg")
    message = refusal(path, images=tmp_path / "p")
    assert f"picture 'b.jpg' ({path}, line 3): no such picture" in message
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.write(tmp_path / "p" / "a.jpg", "a.jpg")
    assert "picture 'b.jpg'" in refusal(path, images=tmp_path / "p.zip")
    assert "no such folder or zip" in refusal(path, images=tmp_path / "q")
    (tmp_path / "bad.zip").write_bytes(b"PK nonsense")
    assert "not a readable zip archive" in refusal(path, images=tmp_path / "bad.zip")
    assert "no picture for the id 'b'" in refusal(table(GOOD)[0], images=tmp_path / "p")
    (tmp_path / "none").mkdir()
    assert "no column 'image'" in refusal(table(GOOD)[0], images=tmp_path / "none")


def test_a_truncated_jpeg_is_named_when_it_is_decoded(tmp_path, table, picture):
    path, _ = table(PICTURES)
    picture(tmp_path / "p" / "a.jpg")
    whole = picture(tmp_path / "p" / "b.jpg", size=(64, 64))
    whole.write_bytes(whole.read_bytes()[:900])
    data = read_dataset(path, images=tmp_path / "p", image_size=8)
    with pytest.raises(InputError, match=r"picture 'b.jpg' \(.*samples.csv, line 3\): cannot be decoded"):
        _ = data.x
    assert data.inputs.take([0]).shape == (1, 3, 8, 8)


def test_pictures_of_different_sizes_ask_for_image_size(tmp_path, table, picture):
    path, _ = table(PICTURES)
    picture(tmp_path / "p" / "a.jpg", size=(9, 7))
    picture(tmp_path / "p" / "b.jpg", size=(9, 8))
    with pytest.raises(InputError, match=r"b.jpg.*8x9 but the first picture is 7x9; pass image_size="):
        _ = read_dataset(path, images=tmp_path / "p").x


def test_split_fractions_that_do_not_sum_to_one(table):
    path, features = table(GOOD)
    assert "sum to 1" in refusal(path, features=features, splits=(0.5, 0.5, 0.5))


def test_a_column_to_ignore_that_does_not_exist(table):
    path, features = table(GOOD)
    assert "unknown column to ignore 'd'" in refusal(path, features=features, ignore=["d"])


def test_a_missing_table_is_named_before_missing_inputs(tmp_path):
    with pytest.raises(InputError, match=r"nofile\.csv: no such file or folder"):
        read_dataset(tmp_path / "nofile.csv")
