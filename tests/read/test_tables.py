"""Tables of labels with features or pictures: what is read, exactly."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from ecbm.read.splits import split_by_id
from ecbm.read.tables import read_dataset


def test_columns_that_are_not_id_split_label_or_image_are_concepts(table):
    path, features = table("id,split,label,wing=red,crest\na,train,wren,1,0.25\nb,test,finch,,0\n")
    data = read_dataset(path, features=features)
    assert data.ids == ("a", "b")
    assert data.splits == ("train", "test")
    assert data.class_names == ("finch", "wren")
    assert data.labels.tolist() == [1, 0]
    assert data.concept_names == ("wing=red", "crest")
    assert torch.equal(data.concepts, torch.tensor([[1, 0.25], [torch.nan, 0]])) or data.concepts[1, 0].isnan()
    assert torch.equal(data.x, torch.arange(6.0).view(2, 3))


def test_ids_and_labels_are_text_exactly_as_written(table):
    path, features = table('id,label,c\n007,NA,1\n"a,""b""",nan,0\n7.0, x ,1\n', rows=3)
    data = read_dataset(path, features=features)
    assert data.ids == ("007", 'a,"b"', "7.0")
    assert data.class_names == (" x ", "NA", "nan")


def test_integer_labels_are_ordered_by_number(table):
    path, features = table("id,label,c\na,10,1\nb,9,0\n")
    assert read_dataset(path, features=features).class_names == ("9", "10")


@pytest.mark.parametrize("cell", ["", "NaN", "nan", "NA", "n/a", "null", "None", " "])
def test_these_cells_are_missing_labels(table, cell):
    path, features = table(f"id,label,c\na,x,1\nb,y,{cell}\n")
    assert read_dataset(path, features=features).concepts[:, 0].isnan().tolist() == [False, True]


@pytest.mark.parametrize(("cell", "value"), [("True", 1), ("false", 0), ("1.0", 1), ("1e-1", 0.1), (" 1", 1)])
def test_these_cells_are_numbers(table, cell, value):
    path, features = table(f"id,label,c\na,x,1\nb,y,{cell}\n")
    assert read_dataset(path, features=features).concepts[1, 0] == torch.tensor(value, dtype=torch.float32)


def test_a_byte_order_mark_windows_lines_and_blank_lines_change_nothing(table):
    text = "id,label,c\na,x,1\nb,y,0\n"
    plain = read_dataset(table(text)[0], features=table(text)[1])
    windows = table("\ufeff" + text.replace("\n", "\r\n") + "\r\n\r\n")
    assert read_dataset(windows[0], features=windows[1]) == plain


def test_without_a_split_column_the_split_is_a_hash_of_the_id(table):
    ids = [f"s{number}" for number in range(2000)]
    path, features = table("id,label,c\n" + "".join(f"{name},x,1\n" for name in ids), rows=2000)
    data = read_dataset(path, features=features)
    assert list(data.splits) == split_by_id(ids)
    assert data.splits[17] == split_by_id(["s17"])[0]
    sizes = data.split_sizes
    assert sizes["train"] == pytest.approx(1400, abs=80)
    assert sizes["val"] == pytest.approx(200, abs=50)
    assert set(read_dataset(path, features=features, splits=(0.5, 0, 0.5)).splits) == {"train", "test"}


def test_columns_may_have_other_names_and_be_ignored(table):
    path, features = table("name,species,part,note,c\na,x,val,hello,1\nb,y,train,,0\n")
    data = read_dataset(
        path,
        features=features,
        id_column="name",
        label_column="species",
        split_column="part",
        ignore=["note"],
    )
    assert (data.ids, data.splits, data.concept_names) == (("a", "b"), ("val", "train"), ("c",))


def test_parquet_reads_like_csv(tmp_path, table):
    path, features = table("id,split,label,c,d\n1,train,5,1,0.5\n2,test,6,,0\n")
    frame = pd.read_csv(path)
    frame["c"] = frame["c"].astype("boolean")
    frame["label"] = frame["label"].astype("category")
    frame.index = [4, 9]
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_dataset(tmp_path / "t.parquet", features=features) == read_dataset(path, features=features)


@pytest.mark.parametrize("kind", ["npy", "npz", "npz with keys", "float16", "big endian", "integers"])
def test_features_of_any_plain_array(tmp_path, table, kind):
    path, features = table("id,label,c\na,x,1\nb,y,0\n")
    array = np.load(features)
    if kind == "npz":
        np.savez(features := tmp_path / "x.npz", whatever=array)
    elif kind == "npz with keys":
        np.savez(features := tmp_path / "x.npz", array, other=array[:1])
    elif kind != "npy":
        np.save(features, array.astype({"float16": "f2", "big endian": ">f8", "integers": "u1"}[kind]))
    assert torch.equal(read_dataset(path, features=features).x, torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize("zipped", [False, True])
def test_pictures_from_a_folder_or_a_zip(tmp_path, table, picture, zipped):
    files = [picture(tmp_path / "p" / name, seed) for seed, name in enumerate(["a.png", "deep/b.png"])]
    path, _ = table("id,image,label,c\na,a.png,x,1\nb,deep/b.png,y,0\n")
    source = tmp_path / "p"
    if zipped:
        with zipfile.ZipFile(source := tmp_path / "p.zip", "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(tmp_path / "p").as_posix())
    data = read_dataset(path, images=source)
    assert data.inputs.shape == (3, 9, 7)
    expected = np.random.default_rng(1).integers(0, 256, (9, 7, 3), dtype=np.uint8).transpose(2, 0, 1)
    assert torch.equal(data.x[1], torch.from_numpy(expected) / 255)
    assert read_dataset(path, images=source, image_size=4).inputs.shape == (3, 4, 4)
    assert read_dataset(path, images=source, image_size=(5, 4)).x.shape == (2, 3, 5, 4)


def test_pictures_are_decoded_when_needed_and_only_once(tmp_path, table, picture):
    rows = 40
    for number in range(rows):
        picture(tmp_path / "p" / f"{number}.png", number)
    text = "id,image,label,c\n" + "".join(f"{n},{n}.png,x,1\n" for n in range(rows))
    data = read_dataset(table(text)[0], images=tmp_path / "p")
    for number in range(20):
        (tmp_path / "p" / f"{number}.png").rename(tmp_path / f"{number}.bak")
    last = data.inputs.raw(range(20, rows))
    for number in range(20, rows):
        (tmp_path / "p" / f"{number}.png").unlink()
    assert torch.equal(data.select(range(20, rows)).inputs.raw(range(20)), last)


def test_a_dataset_with_pictures_goes_to_a_worker_process(tmp_path, table, picture):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.write(picture(tmp_path / "a.png"), "a.png")
    path, _ = table("id,image,label,c\na,a.png,x,1\n")
    data = read_dataset(path, images=tmp_path / "p.zip")
    assert pickle.loads(pickle.dumps(data)) == data


def test_sixteen_bit_grey_pictures_keep_their_contrast(tmp_path, table):
    from PIL import Image

    Image.fromarray(np.array([[0, 256 * 128], [256 * 255, 65535]], np.uint16)).save(tmp_path / "a.png")
    path, _ = table("id,image,label,c\na,a.png,x,1\n")
    assert read_dataset(path, images=tmp_path).inputs.raw([0])[0, 0].tolist() == [[0, 128], [255, 255]]


def test_a_folder_with_samples_and_features_is_a_dataset(tmp_path, table):
    path, features = table("id,label,c\na,x,1\nb,y,0\n")
    features.rename(tmp_path / "features.npy")
    assert read_dataset(tmp_path) == read_dataset(path, features=tmp_path / "features.npy")


def test_a_wide_and_long_table_is_read_cell_by_cell(tmp_path):
    rows, concepts = 40_000, 100
    values = np.random.default_rng(0).integers(0, 2, (rows, concepts))
    frame = pd.DataFrame(values, columns=[f"c{number}" for number in range(concepts)])
    frame.insert(0, "label", "x")
    frame.insert(0, "id", [f"{number:06d}" for number in range(rows)])
    frame.to_csv(tmp_path / "t.csv", index=False)
    np.save(tmp_path / "x.npy", np.zeros((rows, 1), np.float32))
    data = read_dataset(tmp_path / "t.csv", features=tmp_path / "x.npy")
    assert np.array_equal(data.concepts.numpy(), values)
