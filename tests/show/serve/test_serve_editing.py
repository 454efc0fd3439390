"""From an answer to a version: staging, trimming, previews, commits, undo, history, export; two people."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from pathlib import Path

import httpx
import pytest

import ecbm
from ecbm.show.serve.jobs import Task
from ecbm.train.heads import newton
from serve_kit import Workbench, answer, committed, done, opposite

CONCEPT = "round"


def _train(table: Workbench, count: int) -> list[str]:
    return list(table.bench.current().data.split("train").ids[:count])


def _stage(client: httpx.Client, table: Workbench, count: int) -> list[str]:
    ids = _train(table, count)
    for sample in ids:
        answer(client, sample, CONCEPT, opposite(client, sample, CONCEPT))
    return ids


def test_an_answer_that_differs_is_staged_and_one_that_agrees_keeps_the_label(table: Workbench) -> None:
    client = table.browser("anna")
    first, second, third = _train(table, 3)
    said = opposite(client, first, CONCEPT)
    reply = answer(client, first, CONCEPT, said)
    assert (reply["items"][0]["status"], reply["staged"]["total"], reply["revision"]) == ("staged", 1, 1)
    kept = "present" if opposite(client, second, CONCEPT) == "absent" else "absent"
    assert answer(client, second, CONCEPT, kept)["items"][0]["status"] == "kept"
    reply = answer(client, third, CONCEPT, "unsure")
    assert (reply["items"][0]["status"], reply["staged"]["total"], reply["unsure"]) == ("unsure", 1, 1)
    tile = client.get("/api/pictures", params={"ids": first, "concept": CONCEPT}).json()["items"][0]
    assert (tile["status"], tile["concept"]["staged"]) == ("staged", 1.0 if said == "present" else 0.0)
    assert table.version == 1, "nothing is applied"


def test_a_later_answer_replaces_the_earlier_one(table: Workbench) -> None:
    client = table.browser("anna")
    (sample,) = _train(table, 1)
    said = opposite(client, sample, CONCEPT)
    answer(client, sample, CONCEPT, said)
    reply = answer(client, sample, CONCEPT, "absent" if said == "present" else "present")
    assert reply["staged"]["total"] == 0
    assert reply["items"][0]["status"] == "kept"


def test_staged_items_can_be_read_trimmed_and_taken_back(table: Workbench) -> None:
    client = table.browser("anna")
    ids = _stage(client, table, 4)
    client.post("/api/staged", json={"item": {"kind": "remove_sample", "id": _train(table, 9)[8]}})
    shown = client.get("/api/staged").json()
    assert shown["counts"]["words"] == "4 labels of 4 rows, 1 row removed"
    items = [item for group in shown["groups"] for item in group["items"]]
    assert {item["id"] for item in items} == {*ids, _train(table, 9)[8]}
    after = client.post("/api/staged/take-back", json={"items": [items[0]["item"]]}).json()
    assert after["counts"]["total"] == 4
    question = {"id": next(i["id"] for i in items[1:] if i["kind"] == "label"), "concept": CONCEPT}
    assert client.post("/api/staged/take-back", json={"questions": [question]}).json()["counts"]["total"] == 3
    assert client.post("/api/staged/take-back", json={"everything": True}).json()["counts"]["total"] == 0


def test_what_is_staged_can_be_saved_as_an_edit_file(table: Workbench, tmp_path: Path) -> None:
    from ecbm.edit.files import read_edit

    client = table.browser("anna")
    ids = _stage(client, table, 3)
    path = tmp_path / "edit.json"
    path.write_bytes(client.get("/api/staged/file").content)
    edit = read_edit(path, table.bench.current().data)
    assert [sample for sample, _, _ in edit.correct_concepts] == sorted(ids)


def test_a_preview_says_what_the_edit_would_do_and_keeps_nothing(table: Workbench) -> None:
    client = table.browser("anna")
    _stage(client, table, 12)
    client.post("/api/staged", json={"item": {"kind": "remove_concept", "concept": "color::red"}})
    job = done(client, "/api/previews", {"version": 1})
    preview = client.get(job["result"]).json()
    snapshot = table.bench.current()
    edit = ecbm.Edit(
        [(i, CONCEPT, 1 - float(snapshot.data[i].concepts[CONCEPT])) for i in _train(table, 12)],
        remove_concepts=["color::red"],
    )
    result = ecbm.Editor(snapshot.workspace.model(), snapshot.data).apply(edit, "exact")
    before, after = (
        ecbm.evaluate(model, data.split("val"))
        for model, data in ((snapshot.model, snapshot.data), (result.model, result.data))
    )
    classes = preview["metrics"][0]
    assert (classes["before"], classes["after"]) == (before["class_accuracy"], after["class_accuracy"])
    assert preview["flips_total"] == result.report["drift"]["class_predictions_changed"]
    assert len(preview["flips"]) == preview["flips_total"]
    assert preview["certificate"]["state"] == "none_differ"
    assert preview["current"]
    assert [one["method"] for one in preview["methods"]] == ["exact", "auto", "retrain"]
    assert table.version == 1
    answer(client, _train(table, 20)[19], CONCEPT, "unsure")
    assert client.get(job["result"]).json()["current"], "an unsure answer does not change the edit"
    answer(client, _train(table, 20)[18], CONCEPT, opposite(client, _train(table, 20)[18], CONCEPT))
    assert not client.get(job["result"]).json()["current"]


def test_a_commit_makes_what_was_previewed_and_replays_to_the_bit(table: Workbench) -> None:
    client = table.browser("anna")
    ids = _stage(client, table, 5)
    done(client, "/api/previews", {"version": 1})
    job = committed(client, 1)
    assert job["version"] == 2
    shown = client.get(job["result"]).json()
    assert sum(one["count"] for one in shown["labels"]) == 5
    state = client.get("/api/state").json()
    assert (state["version"], state["author"], state["reason"], state["staged"]["total"]) == (
        2,
        "anna",
        "second reading",
        0,
    )
    _stage(client, table, 2)  # taken back to what they were
    committed(client, 2, "third reading")
    folder = table.bench.folder
    found = ecbm.Workspace(folder).check(replay=True)
    assert found["ok"], found["problems"]
    assert [one["same"] for one in found["replayed"]] == [None, True, True, True]
    assert client.get("/api/pictures", params={"changed": 2}).json()["total"] == len(ids)


@pytest.mark.parametrize("reason", ["", "   "])
def test_a_commit_needs_a_reason(table: Workbench, reason: str) -> None:
    client = table.browser("anna")
    _stage(client, table, 1)
    assert client.post("/api/commits", json={"version": 1, "reason": reason}).status_code == 422
    assert client.post("/api/commits", json={"version": 1}).status_code == 422


def test_nothing_staged_is_nothing_to_preview_or_commit(table: Workbench) -> None:
    client = table.browser("anna")
    for path, body in (("/api/previews", {"version": 1}), ("/api/commits", {"version": 1, "reason": "x"})):
        reply = client.post(path, json=body)
        assert reply.status_code == 422
        assert reply.json()["what"] == "Nothing is staged"


def test_undo_and_redo_move_between_versions(table: Workbench) -> None:
    client = table.browser("anna")
    _stage(client, table, 2)
    committed(client, 1)
    assert client.post("/api/undo", json={"version": 2}).json()["version"] == 1
    assert client.get("/api/state").json()["can_redo"]
    rows = {one["version"]: one for one in client.get("/api/history").json()["rows"]}
    assert (rows[1]["state"], rows[2]["state"], rows[2]["undone_by"]) == ("current", "undone", "anna")
    assert client.post("/api/redo", json={"version": 1}).json()["version"] == 2
    assert client.post("/api/redo", json={"version": 2}).status_code == 422


def test_history_compares_reports_and_exports(table: Workbench, tmp_path: Path) -> None:
    client = table.browser("anna")
    _stage(client, table, 3)
    committed(client, 1)
    rows = client.get("/api/history").json()["rows"]
    assert [one["version"] for one in rows] == [2, 1, 0]
    assert rows[0]["certified"]["state"] == "none_differ"
    assert client.get("/api/compare", params={"first": 1, "second": 2}).json()["edits"] == 1
    assert client.get("/api/compare", params={"first": 0, "second": 2}).status_code == 422, "no model in version 0"
    report = client.get("/api/report", params={"version": 2})
    assert "second reading" in report.text
    assert "sandbox" in report.headers["content-security-policy"]
    job = done(client, "/api/exports", {"version": 1})
    archive = zipfile.ZipFile(io.BytesIO(client.get(job["result"]).content))
    archive.extractall(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir() and "version" in path.name)
    assert ecbm.load(folder).fingerprint == ecbm.Workspace(table.bench.folder).model(1).fingerprint


def test_concepts_are_renamed_merged_and_added_in_one_edit(table: Workbench) -> None:
    client = table.browser("anna")
    before = table.bench.current().data
    items = [
        {"kind": "rename_concept", "concept": "round", "name": "globular"},
        {"kind": "merge_concepts", "concept": "color::red", "other": "color::blue", "name": "coloured"},
        {"kind": "add_concept", "concept": "calm"},
    ]
    for item in items:
        assert client.post("/api/staged", json={"item": item}).status_code == 200
    for number, sample in enumerate(before.ids[:40]):
        answer(client, sample, "calm", "present" if number % 2 else "absent")
    committed(client, 1)
    after = table.bench.current().data
    assert set(after.concept_names) == {"size=big", "size=small", "globular", "coloured", "calm"}
    for name in before.ids:
        old, new = before[name].concepts, after[name].concepts
        assert new["globular"] == old["round"]
        assert new["coloured"] == max(old["color::red"], old["color::blue"])  # type: ignore[type-var]
    assert after[before.ids[1]].concepts["calm"] == 1


def test_merging_under_the_name_of_one_corrects_it_and_removes_the_other(table: Workbench) -> None:
    client = table.browser("anna")
    before = table.bench.current().data
    merge = {"kind": "merge_concepts", "concept": "size=big", "other": "round", "name": "size=big"}
    assert client.post("/api/staged", json={"item": merge}).status_code == 200
    committed(client, 1)
    after = table.bench.current().data
    assert "round" not in after.concept_names
    for name in before.ids:
        old = before[name].concepts
        assert after[name].concepts["size=big"] == max(old["size=big"], old["round"])  # type: ignore[type-var]


def test_a_new_concept_is_suggested_from_a_few_labels_and_read_from_a_csv(table: Workbench) -> None:
    client = table.browser("anna")
    data = table.bench.current().data
    truth = {name: float(data.x[row, 0] > 0) for row, name in enumerate(data.ids)}
    assert client.get("/api/concept/suggested", params={"name": "right"}).status_code == 422
    client.post("/api/staged", json={"item": {"kind": "add_concept", "concept": "right"}})
    for _ in range(4):
        shown = client.get("/api/concept/suggested", params={"name": "right"}).json()
        for tile in shown["question"][:8]:
            answer(client, tile["id"], "right", "present" if truth[tile["id"]] else "absent")
    shown = client.get("/api/concept/suggested", params={"name": "right"}).json()
    assert shown["ready"]
    assert shown["agreement"] > 0.7
    likely = [truth[tile["id"]] for tile in shown["likely_present"][:10]]
    assert sum(likely) >= 8
    lines = "id,left\n" + "".join(f"{name},{1 - int(value)}\n" for name, value in truth.items()) + "nobody,1\n"
    reply = client.post("/api/staged/upload", content=lines, headers={"content-type": "text/csv"}).json()
    assert (reply["concepts"][0]["count"], reply["unknown_ids"]) == (len(truth), ["nobody"])
    for wrong in ("", "name,left\na,1", "id,left\ns1,maybe", "id,round\ns1,1", "id,left\ns1,1\ns1,0", "\xff"):
        content = wrong.encode("latin-1")
        assert (
            client.post("/api/staged/upload", content=content, headers={"content-type": "text/csv"}).status_code
            == 422
        )


def test_a_job_can_be_cancelled_until_it_writes(table: Workbench) -> None:
    client = table.browser("anna")
    _stage(client, table, 1)
    gate, reached = threading.Event(), threading.Event()

    def hold(task: Task) -> str:
        reached.set()
        gate.wait(20)
        task.at("still here")
        return "/"

    blocker = table.bench.jobs.start("preview", "anna", hold)
    waiting = client.post("/api/commits", json={"version": 1, "reason": "x"}).json()
    assert waiting["state"] == "waiting"
    assert reached.wait(10)
    assert client.post(f"/api/jobs/{waiting['id']}/cancel").status_code == 200
    client.post(f"/api/jobs/{blocker.id}/cancel")
    gate.set()
    task = table.bench.jobs.get(waiting["id"])
    assert task is not None
    assert task.finished.wait(10)
    assert client.get(f"/api/jobs/{waiting['id']}").json()["state"] == "cancelled"
    assert client.get(f"/api/jobs/{blocker.id}").json()["state"] == "cancelled"
    assert table.version == 1
    assert client.get("/api/state").json()["staged"]["total"] == 1


def test_an_exact_solve_is_cancelled_between_two_iterations(
    table: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = table.browser("anna")
    _stage(client, table, 3)
    iterations: list[str] = []
    breathe = newton.breathe

    def somebody_cancels_at_the_second() -> None:
        if threading.current_thread().name == "work":
            iterations.append("")
            if len(iterations) == 2:
                running = [task for task in table.bench.jobs.all() if task.kind == "preview"]
                assert client.post(f"/api/jobs/{running[-1].id}/cancel").status_code == 200
        breathe()

    monkeypatch.setattr(newton, "breathe", somebody_cancels_at_the_second)
    job = done(client, "/api/previews", {"version": 1})
    assert job["state"] == "cancelled"
    assert job["progress"]["step"] == "Cancelled; nothing was changed"
    assert len(iterations) == 2
    # Nothing half done is left behind: the next one goes through.
    again = done(client, "/api/previews", {"version": 1})
    assert again["state"] == "done"
    assert len(iterations) > 4
    assert client.get(again["result"]).json()["certificate"]["state"] == "none_differ"


def test_the_second_of_two_people_is_told_and_the_staged_edit_is_rebased(table: Workbench) -> None:
    anna, jonas = table.browser("anna"), table.browser("jonas")
    ids = _train(table, 3)
    for sample in ids[:2]:
        answer(jonas, sample, CONCEPT, opposite(jonas, sample, CONCEPT))
    # Anna corrects the first as Jonas did, and removes the second.
    answer(anna, ids[0], CONCEPT, opposite(anna, ids[0], CONCEPT))
    anna.post("/api/staged", json={"item": {"kind": "remove_sample", "id": ids[1]}})
    answer(jonas, ids[2], CONCEPT, opposite(jonas, ids[2], CONCEPT))
    committed(anna, 1, "twice in the data")
    for path, body in (("/api/previews", {"version": 1}), ("/api/commits", {"version": 1, "reason": "mine"})):
        reply = jonas.post(path, json=body)
        assert reply.status_code == 409
        told = reply.json()
        assert (told["version"], told["author"], told["reason"]) == (2, "anna", "twice in the data")
        assert (told["fits"], told["of"]) == (1, 2), "one agrees with Anna's, one is about a row that is gone"
        assert told["dropped"][0]["id"] == ids[1]
        assert told["what"].startswith("anna committed version 2 at ")
    committed(jonas, 2, "what is left of it")
    assert table.version == 3


def test_somebody_elses_answers_are_not_committed_with_mine(table: Workbench) -> None:
    anna, jonas = table.browser("anna"), table.browser("jonas")
    first, second = _train(table, 2)
    answer(anna, first, CONCEPT, opposite(anna, first, CONCEPT))
    answer(jonas, second, CONCEPT, opposite(jonas, second, CONCEPT))
    committed(anna, 1)
    assert anna.get("/api/pictures", params={"changed": 2}).json()["total"] == 1
    assert jonas.get("/api/state").json()["staged"]["total"] == 1


def test_a_version_made_on_the_command_line_is_noticed_and_told(table: Workbench) -> None:
    client = table.browser("anna")
    sent = []
    table.bench.events.send = sent.append  # type: ignore[method-assign]
    other = ecbm.Workspace(table.bench.folder)
    other.edit(ecbm.Edit(remove_samples=[_train(table, 1)[0]]), reason="by hand", author="otto")
    for _ in range(100):
        if any(event.kind == "version" for event in sent):
            break
        threading.Event().wait(0.1)
    (event,) = (event for event in sent if event.kind == "version")
    assert (event.version, event.by) == (2, "otto")
    assert client.get("/api/state").json()["version"] == 2


def test_events_begin_with_a_greeting_and_tell_of_answers(table: Workbench) -> None:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from ecbm.show.serve.changes import Event

    client = table.browser("anna")

    async def listen() -> list[str]:
        stream = table.bench.events.stream(Event(kind="hello", version=1, revision=0))
        found = [await anext(stream)]
        sample = _train(table, 1)[0]
        await asyncio.to_thread(answer, client, sample, CONCEPT, "unsure")
        found.append(await asyncio.wait_for(anext(stream), 10))
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    # In a thread of its own: a browser of another test may hold this one's event loop.
    with ThreadPoolExecutor(1) as thread:
        hello, staged = thread.submit(lambda: asyncio.run(listen())).result()
    assert hello.startswith("event: hello\ndata: ")
    assert staged.startswith("event: staged\ndata: ")
    assert json.loads(staged.partition("data: ")[2])["by"] == "anna"
