"""A pandas table is read as a file is, and what is wrong in it is named by row and column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ecbm

FRAME = pd.DataFrame(
    {"id": [7, 8, 9], "label": ["wren", "finch", "wren"], "crest": [1, None, 0], "wing=red": [True, False, True]}
)
X = np.zeros((3, 2))


def test_a_frame_is_read_like_a_table(tmp_path):
    data = ecbm.read_dataset(FRAME, features=X)
    FRAME.to_csv(tmp_path / "samples.csv", index=False)
    assert data == ecbm.read_dataset(tmp_path / "samples.csv", features=X)
    assert data.ids == ("7", "8", "9")
    assert data.concept_names == ("crest", "wing=red")
    assert bool(data.concepts[1, 0].isnan())


def test_the_index_is_left_out_and_columns_can_be_ignored():
    indexed = FRAME.assign(comment="shy").set_index(np.array([5, 6, 7]))
    assert ecbm.read_dataset(indexed, features=X, ignore=["comment"]) == ecbm.read_dataset(FRAME, features=X)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.rename(columns={"id": "bird_id"}), "DataFrame: no column 'id'; did you mean 'bird_id'? Rename the"),
        (FRAME.drop(columns="label"), "DataFrame: no column 'label'; known: 'id', 'crest', 'wing=red'."),
        (FRAME.assign(picture=[b"1", b"2", b"3"]), "column 'picture': holds pictures or other objects"),
        (FRAME.assign(id="a"), "DataFrame, row 2, column 'id': duplicate id 'a'"),
        (FRAME.assign(crest=[1, 2, 0]), "DataFrame, row 2, column 'crest': 2 is not in [0, 1]"),
        (FRAME.assign(crest=[1, "shy", 0]), "DataFrame, row 2, column 'crest': 'shy' is not a number"),
        (FRAME.assign(label=[None, "a", "b"]), "DataFrame, row 1, column 'label': empty"),
        (FRAME.iloc[:0], "DataFrame: the table has no rows"),
        (pd.concat([FRAME, FRAME[["crest"]]], axis=1), "two columns are called 'crest'"),
        (FRAME["crest"], "expected the path of a table or folder, or a pandas DataFrame, got Series"),
        ([1, 2], "got list"),
        (None, "got NoneType"),
    ],
)
def test_what_is_wrong_is_named(frame, words):
    with pytest.raises(ecbm.InputError) as caught:
        ecbm.read_dataset(frame, features=X)
    assert words in str(caught.value)


def test_inputs_are_needed_and_must_fit():
    with pytest.raises(ecbm.InputError, match="DataFrame: no inputs"):
        ecbm.read_dataset(FRAME)
    with pytest.raises(ecbm.InputError, match="2 rows of features but DataFrame has 3 samples"):
        ecbm.read_dataset(FRAME, features=X[:2])


class Stored:
    """What Hugging Face ``datasets`` offers of a table: its features by name, and itself as a frame."""

    def __init__(self, frame, classes):
        self.frame, self.features = frame, dict.fromkeys(frame) | {"label": self}
        self.names = classes

    def to_pandas(self):
        return self.frame.copy()


def test_a_hugging_face_table_is_read_with_the_names_of_its_classes():
    stored = Stored(FRAME.assign(label=[1, 0, 1]), ["finch", "wren"])
    assert ecbm.read_dataset(stored, features=X) == ecbm.read_dataset(FRAME, features=X)


def test_hugging_face_tables_by_split_are_one_dataset():
    stored = Stored(FRAME.assign(label=[1, 0, 1]), ["finch", "wren"])
    both = {"train": stored, "validation": Stored(FRAME.assign(id=[1, 2, 3], label=[1, 0, 0]), stored.names)}
    data = ecbm.read_dataset(both, features=np.zeros((6, 2)))
    assert data.split_sizes == {"train": 3, "val": 3}
    assert data.ids == ("7", "8", "9", "1", "2", "3")
