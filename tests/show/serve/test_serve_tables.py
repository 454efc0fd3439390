"""Tables instead of pictures, concepts of every type, and numbers instead of classes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_kit import Workbench, answer, committed, done, workbench


@pytest.fixture
def typed(typed_made: Path, tmp_path: Path) -> Iterator[Workbench]:
    with workbench(Path(shutil.copytree(typed_made, tmp_path / "typed"))) as found:
        yield found


@pytest.fixture
def number(number_made: Path, tmp_path: Path) -> Iterator[Workbench]:
    with workbench(Path(shutil.copytree(number_made, tmp_path / "number"))) as found:
        yield found


def test_rows_of_a_table_have_fields_in_place_of_a_picture(table: Workbench) -> None:
    client = table.browser("anna")
    assert client.get("/api/state").json()["kind"] == "table"
    view = client.get("/api/sample", params={"id": "s3"}).json()
    assert (view["picture"], view["thumb"]) == (None, None)
    values = table.bench.current().data.x[3].tolist()
    assert [one["value"] for one in view["fields"]] == pytest.approx(values, rel=1e-5)
    tile = client.get("/api/pictures").json()["items"][0]
    assert tile["thumb"] is None
    assert len(tile["fields"]) == 6
    assert client.get("/picture", params={"id": "s3"}).status_code == 404


def test_concepts_of_every_type_are_shown_by_their_values(typed: Workbench) -> None:
    client = typed.browser("anna")
    view = client.get("/api/sample", params={"id": "s004"}).json()
    labels = {one["concept"]: one for group in view["groups"] for one in group["labels"]}
    assert set(labels) == {"striped", "colour", "severity", "size", "crest"}
    assert set(labels["colour"]["probabilities"]) == {"red", "blue", "green"}
    assert sum(labels["severity"]["probabilities"].values()) == pytest.approx(1)
    assert labels["size"]["label_words"].endswith("mm")
    for one in view["classes"]:
        if one["parts"]:
            assert one["start"] + sum(p["adds"] for p in one["parts"]) == pytest.approx(one["score"], abs=1e-9)


def test_typed_labels_are_corrected_by_value_and_committed(typed: Workbench) -> None:
    client = typed.browser("anna")
    data = typed.bench.current().data
    rows = [r for r in range(len(data)) if data.splits[r] == "train" and not bool(data.concepts[r].isnan().any())]
    first, second = data.ids[rows[0]], data.ids[rows[1]]
    other = "blue" if data[first].values["colour"] != "blue" else "red"
    answer(client, first, "colour", "value", other)
    answer(client, first, "size", "value", 44.5)
    grade = 0.0 if data[second].values["severity"] != 0 else 1.0
    answer(client, second, "severity", "value", grade)
    refused = client.post(
        "/api/answers", json={"answers": [{"id": first, "concept": "colour", "answer": "present"}]}
    )
    assert refused.status_code == 422
    unknown = {"id": first, "concept": "colour", "answer": "value", "value": "pink"}
    assert client.post("/api/answers", json={"answers": [unknown]}).status_code in (404, 422)
    committed(client, 1)
    after = typed.bench.current().data
    assert after[first].values["colour"] == other
    assert after[first].values["size"] == pytest.approx(44.5)
    assert after[second].values["severity"] == grade


def test_a_categorical_concept_can_be_renamed_and_removed(typed: Workbench) -> None:
    client = typed.browser("anna")
    before = typed.bench.current().data
    rename = {"kind": "rename_concept", "concept": "colour", "name": "plumage"}
    assert client.post("/api/staged", json={"item": rename}).status_code == 200
    assert (
        client.post("/api/staged", json={"item": {"kind": "remove_concept", "concept": "severity"}}).status_code
        == 200
    )
    committed(client, 1)
    after = typed.bench.current().data
    assert set(after.layout.by_name) == {"striped", "plumage", "size", "crest"}
    assert [after[name].values["plumage"] for name in after.ids] == [
        before[name].values["colour"] for name in after.ids
    ]


def test_a_model_that_predicts_a_number_is_shown_corrected_and_previewed(number: Workbench) -> None:
    client = number.browser("anna")
    state = client.get("/api/state").json()
    assert (state["target"], state["target_name"], state["unit"]) == ("number", "price", "EUR")
    overview = client.get("/api/overview").json()
    assert overview["classes_right"]["error"] > 0
    assert overview["classes"] == []
    view = client.get("/api/sample", params={"id": "s000"}).json()
    (score,) = view["classes"]
    assert score["start"] + sum(part["adds"] for part in score["parts"]) == pytest.approx(view["number"])
    item = {"kind": "class", "id": number.bench.current().data.split("train").ids[0], "label": "2500.25"}
    assert client.post("/api/staged", json={"item": item}).status_code == 200
    job = done(client, "/api/previews", {"version": 1})
    preview = client.get(job["result"]).json()
    assert preview["largest_change"] > 0
    assert preview["certificate"]["bound"] is not None
    committed(client, 1)
    assert number.bench.current().data[item["id"]].label == 2500.25
