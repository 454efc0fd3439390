"""A dataset is a collection: samples by id or row, parts by slice or mask, a table, a view for PyTorch."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

import ecbm
from ecbm.read.samples import Sample
from kit import pictures, tabular

DATA = tabular(20, 4, missing=0.2)


def test_a_sample_is_found_by_id_and_by_row():
    sample = DATA["s7"]
    assert isinstance(sample, Sample)
    assert (sample.id, sample.split, sample.label) == ("s7", DATA.splits[7], DATA.class_names[int(DATA.labels[7])])
    assert torch.equal(sample.x, DATA.x[7])
    for name, value in sample.concepts.items():
        stored = DATA.concepts[7, DATA.concept_index(name)]
        assert bool(stored.isnan()) if value is None else float(stored) == value
    assert DATA[7].id == DATA[-13].id == "s7"
    assert repr(sample).startswith("Sample('s7', ")
    for name in sample.present:
        assert name in repr(sample)


def test_parts_are_datasets():
    assert DATA[2:5].ids == ("s2", "s3", "s4")
    assert DATA[["s4", "s2"]].ids == ("s4", "s2")
    assert DATA[[4, 2]].ids == ("s4", "s2")
    assert DATA[DATA.labels == 1].labels.unique().tolist() == [1]
    assert len(DATA[[]]) == 0


def test_it_can_be_looped_over_and_asked_for_an_id():
    assert [sample.id for sample in DATA] == list(DATA.ids)
    assert "s3" in DATA
    assert "nobody" not in DATA


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("s100", "unknown sample id 's100'"),
        ("train", r"data\.split\('train'\)"),
        (["s1", "nobody"], "unknown sample id 'nobody'"),
        ((1, 2), "takes one key"),
        (None, "expected row numbers or a mask"),
    ],
)
def test_keys_that_mean_nothing_are_refused(key, words):
    with pytest.raises(ecbm.InputError, match=words):
        DATA[key]
    with pytest.raises(IndexError):
        DATA[20]


def test_a_frame_has_the_labels_and_reads_back_equal():
    frame = DATA.to_frame()
    assert list(frame.columns) == ["id", "split", "label", *DATA.concept_names]
    assert int(frame["round"].isna().sum()) == int(DATA.concepts[:, DATA.concept_index("round")].isnan().sum()) > 0
    again = ecbm.read_dataset(frame, features=DATA.x)
    assert again.replace(class_names=DATA.class_names, labels=frame["label"].tolist()) == DATA
    clash = DATA.replace(concept_names=["id", *DATA.concept_names[1:]])
    with pytest.raises(ecbm.InputError, match="a concept is called 'id'"):
        clash.to_frame()


@pytest.mark.parametrize("data", [DATA, pictures()], ids=["features", "pictures"])
def test_pytorch_loads_it_in_batches(data):
    view = data.to_torch()
    assert isinstance(view, torch.utils.data.Dataset)
    x, concepts, label = view[3]
    assert torch.equal(x, data.x[3])
    assert torch.equal(concepts.nan_to_num(-1), data.concepts[3].nan_to_num(-1))
    assert int(label) == int(data.labels[3])
    seen = list(DataLoader(view, batch_size=8))
    assert torch.equal(torch.cat([batch[0] for batch in seen]), data.x)
    assert torch.equal(torch.cat([batch[2] for batch in seen]), data.labels)
    assert torch.equal(pickle.loads(pickle.dumps(view))[3][0], x)  # as worker processes get it
    with pytest.raises(IndexError):
        view[len(data)]


def test_it_says_what_it_is_in_a_notebook():
    markup = tabular(20, 4, classes=["<b>bold</b>", "wren", "crow"])._repr_html_()
    assert "20 samples" in markup
    assert "&lt;b&gt;bold&lt;/b&gt;" in markup
    assert "size (2)" in markup
