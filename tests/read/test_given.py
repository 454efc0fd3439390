"""What is given for a dataset is taken as it is meant, or refused in one line at once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ecbm
from kit import tabular

DATA = tabular(20, 4)


def dataset(**other: Any) -> ecbm.Dataset:
    given: dict[str, Any] = {
        "ids": ["a", "b", "c"],
        "inputs": np.arange(6.0).reshape(3, 2),
        "concepts": np.array([[1.0], [0.0], [np.nan]]),
        "labels": [0, 1, 0],
        "concept_names": ["striped"],
        "class_names": ["finch", "wren"],
    }
    return ecbm.Dataset(**(given | other))


def test_arrays_are_taken_for_what_they_hold():
    data = dataset()
    assert torch.equal(data.x, torch.tensor([[0.0, 1], [2, 3], [4, 5]]))
    assert data == dataset(inputs=torch.arange(6.0).view(3, 2)) == dataset(inputs=[[0, 1], [2, 3], [4, 5]])
    assert ecbm.train(data).class_probabilities(data).shape == (3, 2)


def test_arrays_of_bytes_are_pictures():
    data = dataset(inputs=np.full((3, 3, 4, 4), 255, np.uint8))
    assert data.inputs.raw([0]).dtype == torch.uint8
    assert float(data.x.max()) == 1.0


def test_classes_may_be_given_by_name():
    assert dataset(labels=["finch", "wren", "finch"]) == dataset() == dataset(labels=np.array([0, 1, 0]))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"inputs": None}, "inputs: expected a tensor or an array"),
        ({"inputs": DATA}, "got Dataset"),
        ({"inputs": [["x", "y"]] * 3}, "give real numbers"),
        ({"inputs": [[1, 2], [3], [4]]}, "one row a sample"),
        ({"inputs": np.array([[1.0], [np.nan], [2.0]])}, "row 2"),
        ({"concepts": [["yes"], ["no"], ["yes"]]}, "concepts: expected numbers"),
        ({"labels": ["finch", "wern", "finch"]}, "labels, row 2: unknown class 'wern'; did you mean 'wren'?"),
        ({"labels": [0.5, 1, 0]}, "whole numbers"),
        ({"labels": None}, "labels: expected one class a sample"),
        ({"splits": ["train", "trian", "val"]}, "splits, row 2: unknown split 'trian'; did you mean 'train'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(other, words):
    with pytest.raises(ecbm.InputError) as caught:
        dataset(**other)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, pd.Series])
def test_a_mask_chooses_the_samples_it_marks(kind):
    wanted = [row for row in range(20) if row % 3 == 0]
    mask = kind([row % 3 == 0 for row in range(20)])
    assert DATA.select(mask).ids == DATA.select(wanted).ids == tuple(f"s{row}" for row in wanted)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([True, False], "one True or False for each of 20 samples"),
        ([True] * 19 + [3], "one True or False"),
        ([20], "there is no row 20"),
        (["s1"], "not a row number"),
        (3, "got int"),
        ("abc", "got str"),
    ],
)
def test_rows_that_are_none_are_refused(rows, words):
    with pytest.raises(ecbm.InputError, match=words):
        DATA.select(rows)


def test_unknown_splits_in_a_written_table_are_refused(tmp_path):
    ecbm.write_dataset(DATA, tmp_path / "copy")
    table = tmp_path / "copy" / "samples.csv"
    table.write_text(table.read_text().replace(",val,", ",vall,"))
    with pytest.raises(ecbm.InputError, match="unknown split 'vall'; did you mean 'val'"):
        ecbm.read_dataset(tmp_path / "copy")


def test_arrays_that_may_not_be_written_to_are_taken_without_a_remark():
    labels = np.array([0, 1, 0])
    labels.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = dataset(labels=labels)
    assert data.labels.tolist() == [0, 1, 0]
