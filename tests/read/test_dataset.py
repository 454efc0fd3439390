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


def test_the_fingerprint_of_a_dataset_never_changes() -> None:
    """Workspaces keep fingerprints; what an earlier ecbm wrote must stay valid."""
    data = ecbm.Dataset(
        ["a", "b é", "c"],
        torch.tensor([[0.0, 1.5], [-2.0, 3.0], [0.25, -0.125]]),
        torch.tensor([[1.0, 0.0], [torch.nan, 0.5], [0.0, 1.0]]),
        torch.tensor([0, 1, 1]),
        ["wing=blue", "crest"],
        ["finch", "wren"],
        ["train", "train", "val"],
    )
    assert data.fingerprint == "3137ece3c14ea2d0ec1b964a33355b9cad7a041e"
    assert data.split("train").fingerprint == "17c44b24dd1464ea45bd0a67135d59149231e6f6"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_features_that_are_not_finite_are_found_wherever_they_are(bad: float) -> None:
    for row in (0, 31, 59):
        x = DATA.x.clone()
        x[row, -1] = bad
        with pytest.raises(ecbm.InputError, match=rf"row {row + 1} \(id 's{row}'\).*NaN or infinity"):
            ecbm.Dataset(DATA.ids, x, DATA.concepts, DATA.labels, DATA.concept_names, DATA.class_names)
