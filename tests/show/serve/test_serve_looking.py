"""Looking around: the overview, grids and filters, one picture, trying values, concepts, the queue."""

from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
from PIL import Image

from serve_kit import Workbench


def _get(client: httpx.Client, path: str, **params: object) -> dict:  # type: ignore[type-arg]
    reply = client.get(path, params=params)  # type: ignore[arg-type]
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_every_figure_of_the_overview_leads_to_as_many_pictures(anna: httpx.Client) -> None:
    shown = _get(anna, "/api/overview")
    assert shown["split"] == "val"
    figures = [shown["classes_right"]["figure"], *(one["figure"] for one in shown["classes"])]
    figures += [one["figure"] for one in shown["worst_classes"]]
    figures += [one["figure"] for one in shown["worst_concepts"]]
    assert len(figures) > 10
    for figure in figures:
        behind = anna.get(f"/api/pictures?{figure['query']}").json()
        assert behind["total"] == figure["of"] - figure["right"], figure
        assert anna.get(f"/api/pictures?{figure['query_all']}").json()["total"] >= figure["of"]


def test_classes_come_with_an_example_of_their_own(anna: httpx.Client) -> None:
    for one in _get(anna, "/api/overview")["classes"]:
        assert one["example"]["label"] == one["name"]


def test_windows_of_a_grid_follow_one_another(anna: httpx.Client, birds: Workbench) -> None:
    whole = _get(anna, "/api/pictures", limit=500)
    parts = [_get(anna, "/api/pictures", limit=37, offset=at)["items"] for at in range(0, whole["total"], 37)]
    assert [one["id"] for part in parts for one in part] == list(birds.bench.current().data.ids)


def test_filters_agree_with_the_data(anna: httpx.Client, birds: Workbench) -> None:
    snapshot = birds.bench.current()
    data = snapshot.data
    concept = data.concept_names[0]
    expected = {
        "split=train&label=Moss+Piper": lambda r: data.splits[r] == "train" and data.label_of(r) == "Moss Piper",
        "wrong=class": lambda r: data.label_of(r) != snapshot.predicted_text(r),
        f"concept={concept}&value=present".replace("=blue", "%3Dblue"): lambda r: float(data.concepts[r, 0]) == 1,
        "find=-0001": lambda r: "-0001" in data.ids[r],
        "ids=bird-00003,bird-00001": lambda r: data.ids[r] in ("bird-00003", "bird-00001"),
    }
    for query, fits in expected.items():
        found = anna.get(f"/api/pictures?{query}&limit=500").json()
        assert [one["id"] for one in found["items"]] == [data.ids[r] for r in range(len(data)) if fits(r)], query


def test_a_filter_that_finds_nothing_says_what_to_do(anna: httpx.Client) -> None:
    found = _get(anna, "/api/pictures", split="val", label="Moss Piper", find="nobody")
    assert found["total"] == 0
    assert found["words"] == "No picture fits all 3 filters. Take one away."


def test_sorting_by_similarity_begins_with_the_picture_itself(anna: httpx.Client) -> None:
    found = _get(anna, "/api/pictures", near="bird-00007", limit=50)["items"]
    assert found[0]["id"] == "bird-00007"
    alike = [one["similarity"] for one in found]
    assert alike == sorted(alike, reverse=True)


def test_a_place_knows_its_neighbours(anna: httpx.Client) -> None:
    items = _get(anna, "/api/pictures", split="train", limit=3)["items"]
    place = _get(anna, "/api/place", id=items[1]["id"], split="train")
    assert (place["place"], place["previous"], place["next"]) == (1, items[0]["id"], items[2]["id"])
    assert _get(anna, "/api/place", id=items[1]["id"], split="test")["place"] is None


@pytest.mark.parametrize(
    ("query", "status"),
    [("split=nowhere", 422), ("label=Dodo", 404), ("concept=crest%3Dyes&value=blue", 404), ("value=present", 422),
     ("sort=similar", 422), ("limit=501", 422), ("near=nobody", 404), ("splitt=val", 422)],
)  # fmt: skip
def test_a_wrong_filter_is_refused_with_words(anna: httpx.Client, query: str, status: int) -> None:
    reply = anna.get(f"/api/pictures?{query}")
    assert reply.status_code == status
    assert reply.json()["what"]


def test_pictures_are_the_datas_own_and_may_be_kept_by_the_browser(anna: httpx.Client, birds: Workbench) -> None:
    tile = _get(anna, "/api/pictures", limit=1)["items"][0]
    small = anna.get(tile["thumb"])
    assert small.headers["content-type"] == "image/webp"
    assert "max-age=86400" in small.headers["cache-control"]
    again = anna.get(tile["thumb"], headers={"if-none-match": small.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    full = anna.get("/picture", params={"id": tile["id"]})
    shown = np.asarray(Image.open(io.BytesIO(full.content)).convert("RGB"))
    assert np.array_equal(shown, birds.bench.current().data.inputs.raw([0])[0].numpy().transpose(1, 2, 0))


def test_parts_of_a_score_add_up_to_it(anna: httpx.Client, birds: Workbench) -> None:
    view = _get(anna, "/api/sample", id="bird-00012")
    with_parts = [one for one in view["classes"] if one["parts"]]
    assert len(with_parts) >= 2
    for one in with_parts:
        assert one["start"] + sum(part["adds"] for part in one["parts"]) == pytest.approx(one["score"], abs=1e-9)
    odds = np.exp([one["score"] for one in view["classes"]])
    assert [one["probability"] for one in view["classes"]] == pytest.approx(list(odds / odds.sum()))
    assert view["predicted"] == view["classes"][0]["name"]
    assert sum(len(group["labels"]) for group in view["groups"]) == len(birds.bench.current().infos)


def test_similar_pictures_are_of_the_training_split(anna: httpx.Client) -> None:
    view = _get(anna, "/api/sample", id="bird-00012")
    assert len(view["similar"]) == 8
    assert {one["split"] for one in view["similar"]} == {"train"}
    assert "bird-00012" not in [one["id"] for one in view["similar"]]


def test_trying_a_value_gives_what_an_intervention_gives_and_keeps_nothing(
    anna: httpx.Client, birds: Workbench
) -> None:
    snapshot = birds.bench.current()
    row = snapshot.data.rows_by_id["bird-00012"]
    before = birds.bench.staged.revision()
    for values in ({"crest=yes": 1.0}, {"wing_color": "red"}, {"crest=yes": 0.0, "mask=yes": 1.0}):
        reply = anna.post("/api/try", json={"id": "bird-00012", "values": values})
        assert reply.status_code == 200, reply.text
        expected = snapshot.model.intervene(snapshot.data.select([row]), values)[0]
        found = {one["name"]: one["probability"] for one in reply.json()["classes"]}
        # The network computes in single precision, and in other batches here.
        assert [found[name] for name in snapshot.data.class_names] == pytest.approx(expected.tolist(), abs=1e-5)
    assert birds.bench.staged.revision() == before
    assert anna.post("/api/try", json={"id": "bird-00012", "values": {"crset": 1}}).status_code == 404


def test_the_table_of_concepts_knows_quality_rarity_and_importance(anna: httpx.Client, birds: Workbench) -> None:
    snapshot = birds.bench.current()
    rows = _get(anna, "/api/concepts")["rows"]
    assert [one["concept"]["name"] for one in rows] == [one.name for one in snapshot.data.layout.concepts]
    for one in rows:
        assert anna.get(f"/api/pictures?{one['present_query']}").json()["total"] == one["present"]
    detail = _get(anna, "/api/concept", name="crest=yes")
    assert detail["row"]["concept"]["title"] == "Crest"
    weights = [one["weight"] for one in detail["pushes"]]
    assert len(weights) == len(snapshot.data.class_names)
    assert weights == sorted(weights, reverse=True)


def test_the_state_carries_version_revision_and_person(anna: httpx.Client) -> None:
    state = _get(anna, "/api/state")
    assert state["ready"]
    assert (state["version"], state["person"], state["author"], state["kind"]) == (1, "anna", "marta", "pictures")
    assert not state["can_undo"]


def test_labels_behind_a_prediction_are_traced_on_first_need(anna: httpx.Client, birds: Workbench) -> None:
    from ecbm.verify.influence.asking import Influence

    snapshot = birds.bench.current()
    name = snapshot.data.class_names[2]
    found = _get(anna, "/api/behind", id="bird-00012", class_name=name, wait=30)
    assert (found["available"], found["class_name"]) == (True, name)
    table = Influence(snapshot.open_editor()[0]).table("labels", "bird-00012", loss="class", label=name, top=3)
    best = table.iloc[-1]
    assert (found["labels"][0]["id"], found["labels"][0]["concept"]) == (best["id"], best["concept"])
    assert found["labels"][0]["adds"] == pytest.approx(best["change"])


def test_the_report_of_a_version_runs_no_script_and_loads_nothing(anna: httpx.Client) -> None:
    reply = anna.get("/api/report", params={"version": 1})
    assert reply.status_code == 200
    assert "<h1>" in reply.text
    assert "<script" not in reply.text
    assert "script-src" not in reply.headers["content-security-policy"]
    assert anna.get("/api/report", params={"version": 7}).status_code == 404
