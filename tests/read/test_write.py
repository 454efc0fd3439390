"""Writing a dataset: what is read back is equal to the bit, and nothing half-written is left behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import ImageInputs
from ecbm.read.tables import read_dataset
from ecbm.read.write import write_dataset

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
AWKWARD = st.sampled_from(
    ["id", "label", "split", "image", "a,b", '"', "007", " x ", "a\nb", "\r", "é", "nan", "NA"]
)


def unique(count: int) -> st.SearchStrategy[list[str]]:
    return st.lists(NAMES | AWKWARD, min_size=count, max_size=count, unique=True)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    rows, concepts, classes = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    cells = st.floats(0, 1, width=32) | st.sampled_from([0.0, 1.0, 0.1, float("nan")])
    values = draw(st.lists(cells, min_size=rows * concepts, max_size=rows * concepts))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    seed = draw(st.integers(0, 9))
    kind = draw(st.sampled_from(["float", "deep", "colour", "grey"]))
    generator = torch.Generator().manual_seed(seed)
    if kind in ("colour", "grey"):
        shape = (rows, 3 if kind == "colour" else 1, 3, 2)
        inputs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    else:
        inputs = torch.randn((rows, 4) if kind == "float" else (rows, 3, 2, 2), generator=generator)
    return Dataset(
        draw(unique(rows)),
        inputs,
        torch.tensor(values).view(rows, concepts),
        torch.tensor(labels),
        draw(unique(concepts)),
        draw(unique(classes)),
        draw(st.lists(st.sampled_from(["train", "val", "test"]), min_size=rows, max_size=rows)),
    )


@settings(deadline=None, max_examples=150)
@given(datasets(), st.sampled_from(["csv", "parquet"]))
def test_any_dataset_reads_back_equal(data, table):
    folder = Path(tempfile.mkdtemp())
    try:
        copy = read_dataset(write_dataset(data, folder / "copy", table=table))
        assert copy == data
        assert copy.ids == data.ids
        assert copy.class_names == data.class_names
        assert torch.equal(copy.x, data.x)
    finally:
        shutil.rmtree(folder)


def small() -> Dataset:
    concepts = torch.tensor([[1.0, 0.1], [torch.nan, 0.0]])
    return Dataset(["007", "b"], torch.eye(2), concepts, torch.tensor([2, 0]), ["p", "q"], ["x", "y", "z"])


def test_the_table_is_one_a_person_can_read(tmp_path):
    folder = write_dataset(small(), tmp_path / "new" / "copy")
    assert sorted(path.name for path in folder.iterdir()) == ["dataset.json", "features.npy", "samples.csv"]
    assert (folder / "samples.csv").read_text() == "id,split,label,p,q\n007,train,z,1,0.1\nb,train,x,,0\n"
    assert json.loads((folder / "dataset.json").read_text())["fingerprint"] == small().fingerprint


def test_pictures_keep_their_original_bytes(tmp_path, picture):
    files = [picture(tmp_path / "p" / f"{n}.jpg", n, quality=80) for n in range(20)]
    inputs = ImageInputs(tmp_path / "p", [file.name for file in files])
    data = Dataset([str(n) for n in range(20)], inputs, torch.ones(20, 1), torch.zeros(20), ["c"], ["x"])
    part = data.select([5, 3])
    folder = write_dataset(part, tmp_path / "copy")
    assert (folder / "images" / "0001.jpg").read_bytes() == files[5].read_bytes()
    assert read_dataset(folder) == part


def test_resized_pictures_are_kept_as_their_pixels(tmp_path, picture):
    picture(tmp_path / "p" / "a.jpg", size=(40, 30))
    data = Dataset(
        ["a"], ImageInputs(tmp_path / "p", ["a.jpg"], (8, 8)), torch.ones(1, 1), torch.zeros(1), ["c"], ["x"]
    )
    folder = write_dataset(data, tmp_path / "copy")
    assert (folder / "images" / "0001.png").is_file()
    assert read_dataset(folder) == data


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path):
    folder = write_dataset(small(), tmp_path / "copy")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match="not empty; give a new folder"):
        write_dataset(small(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    assert read_dataset(write_dataset(small(), tmp_path / "empty")) == small()


def test_a_failure_leaves_nothing_behind(tmp_path, picture):
    broken = picture(tmp_path / "p" / "a.jpg", size=(64, 64))
    data = Dataset(
        ["a"], ImageInputs(broken.parent, ["a.jpg"], (8, 8)), torch.ones(1, 1), torch.zeros(1), ["c"], ["x"]
    )
    broken.write_bytes(broken.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be decoded"):
        write_dataset(data, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=2), "format version 2, this program reads 1"),
        (lambda c: c.update(format="x"), "not a dataset of this program"),
        (lambda c: c.pop("columns"), "damaged"),
        (lambda c: c.update(class_names=["x", 3]), "damaged"),
        (
            lambda c: c.update(class_names=["x", "y"]),
            "samples.csv, line 2, column 'label': unknown class 'z'",
        ),
    ],
)
def test_a_damaged_description_is_refused(tmp_path, change, message):
    folder = write_dataset(small(), tmp_path / "copy")
    content = json.loads((folder / "dataset.json").read_text())
    change(content)
    (folder / "dataset.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_dataset(folder)


def test_labels_edited_by_hand_are_read_as_edited(tmp_path):
    folder = write_dataset(small(), tmp_path / "copy")
    table = folder / "samples.csv"
    table.write_text(table.read_text().replace("b,train,x,,0", "b,val,y,1,0"))
    data = read_dataset(folder)
    assert data.splits == ("train", "val")
    assert data.labels.tolist() == [2, 1]
    assert np.allclose(data.concepts[1], [1, 0])
