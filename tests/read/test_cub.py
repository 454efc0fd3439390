"""CUB-200-2011: the voting rule, odd lines, and the archive's own text files where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ecbm.errors import InputError
from ecbm.read.cub import cub, read_cub_index, vote_by_class
from ecbm.read.tables import read_dataset

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "cub"
needs_shared = pytest.mark.skipif(
    not (SHARED / "official").is_dir(), reason="the archive's own text files are not in ../shared/data"
)

# picture attribute present certainty time; pictures 1, 2 and 4, 5 are for training, 3 and 6 for testing
LINES = [
    *("1 1 1 4 1.5", "1 2 0 4 1.5", "1 3 0 1 1.5", "1 4 1 3 1.5"),
    *("2 1 1 3 2.0", "2 2 0 3 2.0", "2 3 1 4 2.0", "2 4 0 4 2.0"),
    *("3 1 0 4 2.0", "3 2 1 4 2.0", "3 3 0 4 2.0", "3 4 0 1 2.0"),
    *("4 1 0 4 0 7.0", "4 2 1 2 1 0 9.3", "4 3 0 4 1", "4 4 0  4 1"),  # more fields, and two spaces
    *("5 1 0 4 1", "5 2 1 4 1", "5 3 0 1 1", "5 4 0 4"),  # and no time
    *("6 1 1 4 1", "6 2 1 4 1", "6 3 1 4 1"),  # no line for the last attribute
]


def test_class_level_concepts_are_voted_by_the_training_pictures(cub_archive):
    data = cub(cub_archive(LINES), validation=0.0, min_classes=0)
    assert data.concept_names == ("has_bill::long", "has_bill::short", "has_wing::red", "has_wing::blue")
    # Class 1: red has one vote, since the invisible 0 does not count; blue is a tie.
    assert data.concepts[:3].tolist() == [[1, 0, 1, 1]] * 3
    assert data.concepts[3:].tolist() == [[0, 1, 0, 0]] * 3
    assert data.splits == ("train", "train", "test", "train", "train", "test")
    assert data.class_names == ("001.Bird_1", "002.Bird_2")
    assert data.ids == ("1", "2", "3", "4", "5", "6")
    assert data.groups["has_bill"] == ("has_bill::long", "has_bill::short")


def test_attributes_are_kept_if_they_hold_in_enough_classes(cub_archive):
    lines = [*LINES, "4 1 1 4 1", "5 1 1 4 1"]  # a later line replaces an earlier one
    root = cub_archive(lines)
    assert cub(root, validation=0.0, min_classes=2).concept_names == ("has_bill::long",)
    with pytest.raises(InputError, match="no attribute holds in 10 classes; lower min_classes"):
        cub(root)


def test_instance_level_concepts_are_those_of_the_picture(cub_archive):
    root = cub_archive(LINES)
    data = cub(root, level="instance", validation=0.0, min_classes=0)
    nan = torch.nan
    expected = torch.tensor(
        [[1, 0, nan, 1], [1, 0, 1, 0], [0, 1, 0, nan], [0, 1, 0, 0], [0, 1, nan, 0], [1, 1, 1, nan]]
    )
    assert torch.equal(data.concepts.nan_to_num(-1), expected.nan_to_num(-1))
    zeros = cub(root, level="instance", validation=0.0, min_classes=0, not_visible="zero")
    assert zeros.concepts[0, 2] == 0
    assert zeros.concepts[5, 3].isnan()


def test_the_archives_class_table_is_another_source(cub_archive):
    data = cub(cub_archive(None), level="table", min_classes=1)
    assert data.concept_names == ("has_bill::long", "has_bill::short", "has_wing::red")
    assert data.concepts[0].tolist() == [1, 0, 0]
    assert data.concepts[5].tolist() == [0, 1, 1]


def test_held_out_pictures_do_not_vote(cub_archive):
    data = cub(cub_archive(LINES), validation=["2"], min_classes=0)
    assert data.splits == ("train", "val", "test", "train", "train", "test")
    assert data.concepts[0].tolist() == [1, 0, 1, 1]  # red: no votes at all, which is a tie


def test_the_validation_draw_is_seeded_and_within_the_official_training_set(cub_archive):
    root = cub_archive(LINES)
    drawn = {seed: cub(root, validation=0.5, seed=seed, min_classes=0).splits for seed in range(8)}
    assert drawn[0] == cub(root, validation=0.5, seed=0, min_classes=0).splits
    assert len(set(drawn.values())) > 1
    assert all(splits[2] == splits[5] == "test" and splits.count("val") == 2 for splits in drawn.values())


def test_pictures_are_resized_and_may_be_replaced_by_features(cub_archive):
    root = cub_archive(LINES)
    assert cub(root, image_size=8, min_classes=0).x.shape == (6, 3, 8, 8)
    assert cub(root, features=np.ones((6, 5)), min_classes=0).x.shape == (6, 5)
    with pytest.raises(InputError, match=r"5 rows of features but .* has 6 samples"):
        cub(root, features=np.ones((5, 5)), min_classes=0)


def test_attributes_txt_may_lie_inside_and_the_inner_folder_may_be_given(cub_archive):
    root = cub_archive(LINES, attributes_inside=True)
    assert len(read_cub_index(root).attribute_names) == 4
    assert read_cub_index(root / "CUB_200_2011").paths == read_cub_index(root).paths


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "2 3 1", "line 7: '2 3 1' does not hold 4"),
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "2 x 1 4 2.0", "line 7"),
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "2 3 2 4 2.0", "line 7: present 2"),
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "2 5 1 4 2.0", "line 7: attribute 5"),
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "9 3 1 4 2.0", "line 7: picture 9"),
        ("attributes/image_attribute_labels.txt", "2 3 1 4 2.0", "2 3 1 5 2.0", "line 7: certainty 5"),
        ("images.txt", "3 001", "x 001", "line 3: .* is not 'number picture'"),
        ("images.txt", "3 001", "2 001", "line 3: number 2 stands twice"),
        ("image_class_labels.txt", "3 1\n", "3 7\n", "picture 3 has class 7"),
        ("image_class_labels.txt", "3 1\n", "", "no line for picture 3"),
        ("train_test_split.txt", "3 0\n", "3 2\n", "picture 3 has '2'; 1 is training, 0 is test"),
    ],
)
def test_a_broken_archive_names_the_line(cub_archive, file, old, new, message):
    root = cub_archive(LINES, pictures=False)
    path = root / "CUB_200_2011" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        cub(root, features=np.ones((6, 2)), min_classes=0)


def test_an_incomplete_archive_says_what_is_missing(cub_archive, tmp_path):
    with pytest.raises(InputError, match=r"no images.txt in"):
        cub(tmp_path)
    root = cub_archive(None, pictures=False)
    with pytest.raises(InputError, match="pass level='table'"):
        cub(root)
    with pytest.raises(InputError, match="no such folder or zip of pictures"):
        cub(root, level="table", min_classes=1)


def test_votes_agree_with_counting_one_by_one():
    generator = np.random.default_rng(0)
    present = generator.integers(-1, 2, (60, 7)).astype(np.int8)
    certainty = generator.integers(1, 5, (60, 7)).astype(np.int8)
    labels = generator.integers(0, 5, 60)
    for label in range(5):
        for attribute in range(7):
            yes = no = 0
            for row in np.flatnonzero(labels == label):
                yes += present[row, attribute] == 1
                no += present[row, attribute] == 0 and certainty[row, attribute] != 1
            assert vote_by_class(present, certainty, labels, 5)[label, attribute] == (yes >= no)


@needs_shared
def test_the_official_text_files_give_the_official_split_and_names():
    index = read_cub_index(SHARED / "official")
    assert len(index.ids) == 11_788
    assert int(index.training.sum()) == 5_994
    assert len(index.class_names) == 200
    assert index.class_names[0] == "001.Black_footed_Albatross"
    assert len(index.attribute_names) == 312
    assert index.attribute_names[1] == "has_bill_shape::dagger"
    samples = read_dataset(SHARED)
    assert index.ids == samples.ids
    assert [index.class_names[label] for label in index.labels] == [
        samples.class_names[label] for label in samples.labels.tolist()
    ]
    official_test = [split == "test" for split in samples.splits]
    assert (~index.training).tolist() == official_test


@needs_shared
def test_the_official_class_table_selects_nearly_the_fields_attributes():
    data = cub(SHARED / "official", level="table", features=np.zeros((11_788, 1), np.float32))
    assert data.split_sizes == {"test": 5_794, "train": 4_796, "val": 1_198}
    field = set(read_dataset(SHARED).concept_names)
    assert len(data.concept_names) == 108
    assert len(field & set(data.concept_names)) == 104
