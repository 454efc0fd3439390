"""Tables and datasets whose label is a number: said, never guessed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import ecbm
from ecbm.read.overview import overview
from ecbm.read.tables import describe
from number_kit import numbered
from types_kit import mixed

N = 40
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
PRICES = np.round(np.random.default_rng(1).normal(100, 30, N), 2)


def table(labels: object, name: str = "price") -> pd.DataFrame:
    return pd.DataFrame({"id": [f"s{i}" for i in range(N)], name: labels, "crest": [i % 2 for i in range(N)]})


def read(frame: pd.DataFrame, **options: object) -> ecbm.Dataset:
    return ecbm.read_dataset(frame, features=X, **{"label_column": "price", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [{"label_type": "number"}, {"types": {"price": "continuous"}}])
def test_a_label_that_is_said_to_be_a_number_is_one(said: dict[str, object]) -> None:
    data = read(table(PRICES), **said)
    assert (data.target, data.class_names, data.concept_names) == ("number", ("price",), ("crest",))
    assert data.labels.dtype == torch.float64
    assert data.labels.tolist() == PRICES.tolist()
    assert data["s3"].label == PRICES[3]
    assert data.to_frame()["label"].tolist() == PRICES.tolist()


def test_a_unit_comes_with_the_type() -> None:
    assert read(table(PRICES), types={"price": "continuous:EUR"}).target_unit == "EUR"


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        (PRICES, "numbers with decimals"),
        (np.arange(N) + 7, "whole numbers"),
        ([str(p) for p in PRICES], "decimals"),
    ],
)
def test_many_different_numbers_are_asked_about(labels: object, what: str) -> None:
    with pytest.raises(ecbm.InputError, match=what) as refused:
        read(table(labels))
    assert "types={'price': 'continuous'}" in str(refused.value)
    assert "types={'price': 'categorical'}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_that_are_said_to_be_classes_are_classes() -> None:
    for said in ({"label_type": "class"}, {"types": {"price": "categorical"}}):
        data = read(table(np.arange(N) + 7), **said)
        assert (data.target, len(data.class_names)) == ("class", N)


def test_few_whole_numbers_are_classes_as_ever() -> None:
    data = read(table(np.arange(N) % 5))
    assert (data.target, data.class_names) == ("class", ("0", "1", "2", "3", "4"))


def test_numbers_as_people_write_them_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id;price;crest\n" + "".join(f"s{i};{i},5;{i % 2}\n" for i in range(N)))
    data = ecbm.read_dataset(path, features=X, label_column="price", label_type="number")
    assert data.labels.tolist() == [i + 0.5 for i in range(N)]


def test_a_label_column_is_described_as_a_number() -> None:
    found = describe(table(PRICES), features=X, label_column="price", types={"price": "continuous:EUR"})
    (column,) = [one for one in found.columns if one.role == "label"]
    assert column.taken_for == f"label: number, {PRICES.min():g} to {PRICES.max():g} EUR"


def test_what_cannot_be_a_number_is_refused_with_its_row() -> None:
    prices = [str(price) for price in PRICES]
    with pytest.raises(ecbm.InputError, match="column 'price': 'cheap' is not a number"):
        read(table([*prices[:-1], "cheap"]), label_type="number")
    with pytest.raises(ecbm.InputError, match="row 40, column 'price': empty; every row needs a number"):
        read(table([*prices[:-1], None]), label_type="number")
    with pytest.raises(ecbm.InputError, match="not a finite number"):
        read(table([*PRICES[:-1], math.inf]), label_type="number")


def test_folders_are_no_numbers(tmp_path: Path) -> None:
    from PIL import Image

    for number, name in enumerate(("jay", "wren")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / f"{number}.png")
    (tmp_path / "t.csv").write_text("id,image,crest\na,jay/0.png,1\nb,wren/1.png,0\n")
    assert ecbm.read_dataset(tmp_path / "t.csv", images=tmp_path).class_names == ("jay", "wren")
    with pytest.raises(ecbm.InputError, match="no column 'label'"):
        ecbm.read_dataset(tmp_path / "t.csv", images=tmp_path, label_type="number")


def test_what_is_said_of_a_label_must_be_one_thing() -> None:
    with pytest.raises(ecbm.InputError, match=r"class .* or a number"):
        read(table(PRICES), types={"price": "ordinal"})
    with pytest.raises(ecbm.InputError, match="say two things"):
        read(table(PRICES), types={"price": "continuous"}, label_type="class")
    with pytest.raises(ecbm.InputError, match="unknown label type 'numbr'"):
        read(table(PRICES), label_type="numbr")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_written_dataset_reads_back_to_the_bit(tmp_path: Path, kind: str) -> None:
    data = numbered(30)
    again = ecbm.read_dataset(ecbm.write_dataset(data, tmp_path / "copy", table=kind))  # type: ignore[arg-type]
    assert again == data
    assert (again.target, again.target_unit) == ("number", "EUR")


def test_a_dataset_of_numbers_keeps_its_target_in_every_part() -> None:
    data = numbered(30)
    for part in (data.split("train"), data[:5], data.replace(labels=2 * data.labels)):
        assert (part.target, part.target_unit, part.labels.dtype) == ("number", "EUR", torch.float64)
    assert data.fingerprint != data.replace(labels=data.labels + 1e-9).fingerprint
    assert overview(data)["target"]["mean"] == pytest.approx(float(data.labels.mean()))
    assert overview(data)["classes"] == {}
    assert "the number 'price'" in repr(data)
    assert "price" in data._repr_html_()


def test_the_fingerprint_of_classes_is_what_it_was() -> None:
    # A dataset of classes is hashed as it was before there were numbers.
    assert mixed(12).fingerprint == "e1c075eb2f674370d36e48b780d25ae75ac338af"


def test_impossible_targets_are_refused() -> None:
    parts = ["a", "b"], torch.zeros(2, 1), torch.zeros(2, 1)
    with pytest.raises(ecbm.InputError, match="2 names for a target that is a number"):
        ecbm.Dataset(*parts, [1.0, 2.0], ["c"], ["x", "y"], target="number")
    with pytest.raises(ecbm.InputError, match=r"row 2 .*not a finite number"):
        ecbm.Dataset(*parts, [1.0, math.nan], ["c"], ["x"], target="number")
    with pytest.raises(ecbm.InputError, match="expected one number a sample"):
        ecbm.Dataset(*parts, ["cheap", "dear"], ["c"], ["x"], target="number")
    with pytest.raises(ecbm.InputError, match="unknown target 'numbers'"):
        ecbm.Dataset(*parts, [1.0, 2.0], ["c"], ["x"], target="numbers")
    with pytest.raises(ecbm.InputError, match="classes have no unit"):
        ecbm.Dataset(*parts, [0, 0], ["c"], ["x"], target_unit="mm")
