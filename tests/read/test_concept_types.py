"""Types of concepts: which columns a concept owns, which labels it may have, and how values are said."""

from __future__ import annotations

import pytest
import torch

from ecbm.errors import InputError
from ecbm.read.concept_types import layout_of
from ecbm.read.dataset import Dataset
from ecbm.read.tables import read_dataset
from ecbm.read.write import write_dataset

NAMES = ["striped", "colour::red", "colour::blue", "severity::>=1", "severity::>=2", "size"]
TYPES = {"colour": "categorical", "severity": "ordinal", "size": "continuous"}
NAN = float("nan")


def mixed(**changes: object) -> Dataset:
    given: dict[str, object] = {
        "ids": ["a", "b", "c"],
        "inputs": torch.arange(6.0).reshape(3, 2),
        "concepts": torch.tensor(
            [[1, 1, 0, 1, 0, 12.5], [0, 0.25, 0.75, 1, 1, -3], [NAN, NAN, NAN, NAN, NAN, NAN]]
        ),
        "labels": torch.tensor([0, 1, 0]),
        "concept_names": NAMES,
        "class_names": ["wren", "owl"],
        "concept_types": TYPES,
        "units": {"size": "mm"},
    }
    return Dataset(**(given | changes))  # type: ignore[arg-type]


def test_concepts_are_binary_unless_said_otherwise() -> None:
    plain = mixed(concepts=torch.zeros(3, 6), concept_types=None, units=None)
    assert set(plain.concept_types.values()) == {"binary"}
    assert plain.layout.plain
    assert mixed().concept_types == {"striped": "binary", **TYPES}


def test_types_and_units_are_part_of_the_fingerprint() -> None:
    values = torch.tensor([[1.0, 0.0]] * 3)
    one = mixed(concepts=values, concept_names=["a::x", "a::y"], concept_types=None, units=None)
    other = mixed(concepts=values, concept_names=["a::x", "a::y"], concept_types={"a": "categorical"}, units=None)
    assert one != other
    assert mixed() != mixed(units=None)


@pytest.mark.parametrize("table", ["csv", "parquet"])
def test_a_written_dataset_of_mixed_types_reads_back_equal(tmp_path, table) -> None:  # type: ignore[no-untyped-def]
    data = mixed()
    again = read_dataset(write_dataset(data, tmp_path / "copy", table=table))
    assert again == data
    assert again.concept_types == data.concept_types
    assert again.units == {"size": "mm"}


def test_parts_and_replaced_labels_keep_their_types() -> None:
    data = mixed(splits=["train", "val", "train"])
    for part in (data.split("train"), data.select([1]), data.replace(labels=torch.tensor([1, 1, 1]))):
        assert part.concept_types == data.concept_types


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1, 0.5, 0.2, 1, 0, 1], "sum to 0.7"),
        ([1, 1, 0, 0, 1, 1], "reaches every threshold below"),
        ([1, 1, NAN, 1, 0, 1], "missing together"),
        ([1, 1, 0, 1, 0, float("inf")], "not finite"),
        ([2, 1, 0, 1, 0, 1], r"2 is not in \[0, 1\]"),
    ],
)
def test_labels_that_a_type_does_not_allow_are_refused(row, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words):
        mixed(concepts=torch.tensor([row] * 3))


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"color": "categorical"}, "there are none"),
        ({"size": "categorical"}, "one column 'size'"),
        ({"colour": "ordinal"}, "one threshold after the other"),
        ({"colour": "nominal"}, "unknown type 'nominal'"),
        ({"colours": "continuous"}, "unknown concept 'colours'"),
    ],
)
def test_types_that_fit_no_column_are_refused(types, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words):
        layout_of(NAMES, types)


def test_values_by_name_grade_and_number_become_labels_and_back() -> None:
    data = mixed()
    assert data.concept("colour").labels_of("blue") == (0.0, 1.0)
    assert data.concept("severity").labels_of(2) == (1.0, 1.0)
    assert data.concept("severity").labels_of("0") == (0.0, 0.0)
    assert data.concept("size").labels_of(12.5) == (12.5,)
    assert data.concept("severity").value_of((1.0, 0.0)) == 1
    assert data.concept("colour").value_of((0.3, 0.7)) == "blue"
    assert data.concept("size").said(12.5) == "12.5 mm"
    with pytest.raises(InputError, match="grades are 0 to 2"):
        data.concept("severity").labels_of(3)
    with pytest.raises(InputError, match="did you mean 'blue'"):
        data.concept("colour").labels_of("bleu")


def test_grades_need_not_start_at_zero() -> None:
    layout = layout_of(["pain::>=2", "pain::>=3"], {"pain": "ordinal"})
    assert layout.by_name["pain"].values == ("1", "2", "3")
    assert layout.by_name["pain"].labels_of(2) == (1.0, 0.0)


def test_columns_of_a_concept_go_together() -> None:
    layout = layout_of(NAMES, TYPES)
    assert layout.closed(torch.tensor([0, 2])).tolist() == [0, 1, 2]
    part = layout.select(torch.tensor([1, 2, 5]))
    assert part.types == {"colour": "categorical", "size": "continuous"}
    assert part.by_name["size"].columns == (2,)
