"""Parts of a dataset: the same as datasets made from scratch, and cheap to make again when only labels differ."""

from __future__ import annotations

import pytest
import torch

import ecbm
from kit import tabular

DATA = tabular(60, missing=0.1)


def made_anew(part: ecbm.Dataset) -> ecbm.Dataset:
    return ecbm.Dataset(
        part.ids, part.x, part.concepts, part.labels, part.concept_names, part.class_names, part.splits
    )


@pytest.mark.parametrize("digested", [False, True])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_is_a_dataset_like_any_other(split: str, digested: bool) -> None:
    data = DATA.select(range(len(DATA)))
    if digested:
        assert data.fingerprint == DATA.fingerprint
    part = data.split(split)
    assert set(part.splits) == {split}
    assert part == made_anew(part)


def test_datasets_that_differ_in_labels_share_the_rest_of_their_splits() -> None:
    concepts = 1 - DATA.concepts
    other = DATA.replace(concepts=concepts)
    train, flipped = DATA.split("train"), other.split("train")
    assert flipped.inputs is train.inputs
    assert flipped.ids is train.ids
    torch.testing.assert_close(flipped.concepts, 1 - train.concepts, equal_nan=True)
    assert flipped == made_anew(flipped)


def test_other_splits_are_not_taken_over() -> None:
    assert len(DATA.split("train")) < len(DATA)
    other = DATA.replace(splits=["train"] * len(DATA))
    assert len(other.split("train")) == len(DATA)


def test_a_sample_cannot_be_selected_twice() -> None:
    with pytest.raises(ecbm.InputError, match=r"duplicate id .* \(rows 1 and 3\)"):
        DATA.select([4, 1, 4])
