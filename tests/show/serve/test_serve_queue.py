"""The queue: suspicious labels, most likely wrong first, with reasons; answered ones keep their place."""

from __future__ import annotations

import time

import httpx
import pytest

from ecbm.show.serve import learning, queue
from ecbm.show.serve.snapshot import Snapshot
from serve_kit import Workbench, answer, opposite


def _get(client: httpx.Client, path: str, **params: object) -> dict:  # type: ignore[type-arg]
    reply = client.get(path, params=params)  # type: ignore[arg-type]
    assert reply.status_code == 200, reply.text
    return reply.json()


def _queue(client: httpx.Client, **params: object) -> dict:  # type: ignore[type-arg]
    for _ in range(300):
        found = _get(client, "/api/queue", **params)
        if found["ready"]:
            return found
        time.sleep(0.1)
    raise AssertionError("the queue never became ready")


def test_the_queue_asks_about_suspicious_labels_with_reasons(table: Workbench) -> None:
    anna = table.browser("anna")
    queue = _queue(anna, limit=5)
    assert queue["total"] > 0
    scores = [one["score"] for one in queue["items"]]
    assert scores == sorted(scores, reverse=True)
    first = queue["items"][0]
    detail = _get(anna, "/api/question", id=first["id"], concept=first["concept"])
    assert detail["question"]["id"] == first["id"]
    assert detail["reasons"]
    assert all(one["words"] for one in detail["reasons"])
    assert first["why"].casefold() in [one["words"].casefold() for one in detail["reasons"]]
    near = [one for one in detail["reasons"] if one["kind"] == "neighbours"]
    assert near
    assert len(near[0]["examples"]) == 6
    assert detail["looks_like"]["present_count"] > 0


def test_an_answered_question_keeps_its_place_in_the_queue(table: Workbench) -> None:
    client = table.browser("ida")
    first = _queue(client, limit=2)["items"][0]
    answer(client, first["id"], first["concept"], "unsure")
    after = _queue(client, limit=2)
    assert (after["items"][0]["id"], after["items"][0]["status"]) == (first["id"], "unsure")
    assert after["answered"] == 1
    assert _queue(client, status="open")["total"] == after["total"] - 1
    assert _get(client, "/api/overview")["waiting"]["unsure"] >= 1


def test_the_queue_finds_labels_that_were_turned_round(table: Workbench) -> None:
    client = table.browser("anna")
    found = _queue(client, limit=500)["items"]
    assert sum(one["concept"] == "size=big" for one in found[:8]) >= 6
    only = _queue(client, concept="size=big", limit=500)
    assert {one["concept"] for one in only["items"]} == {"size=big"}
    assert only["concepts"][0]["name"] == "size=big"


def test_an_empty_queue_says_what_to_do(table: Workbench) -> None:
    found = _queue(table.browser("anna"), find="nobody")
    assert found["words"] == "Nothing suspicious is left here. Look at what you have staged."


def test_a_question_about_the_class_is_answered_with_a_class(table: Workbench) -> None:
    client = table.browser("anna")
    asked = next(one for one in _queue(client, limit=500)["items"] if one["concept"] is None)
    detail = _get(client, "/api/question", id=asked["id"])
    assert detail["label"] is None
    assert detail["reasons"]
    reply = answer(client, asked["id"], None, "value", asked["label_words"])
    assert reply["items"][0]["status"] == "kept"
    other = next(name for name in ("finch", "wren") if name != asked["label_words"])
    reply = answer(client, asked["id"], None, "value", other)
    assert (reply["items"][0]["status"], reply["staged"]["labels"]) == ("staged", 1)
    assert answer(client, asked["id"], None, "unsure")["unsure"] == 1
    place = _queue(client, limit=500)["items"]
    assert next(one["status"] for one in place if one["id"] == asked["id"] and one["concept"] is None) == "unsure"


def test_a_staged_answer_comes_back_with_the_question(table: Workbench) -> None:
    client = table.browser("anna")
    first = next(one for one in _queue(client, limit=20)["items"] if one["concept"] is not None)
    assert first["staged"] is None
    said = opposite(client, first["id"], first["concept"])
    answer(client, first["id"], first["concept"], said)
    again = next(one for one in _queue(client, limit=20)["items"] if one["id"] == first["id"])
    assert (again["status"], again["staged"]) == ("staged", float(said == "present"))


def _learnt(client: httpx.Client, seen: list[dict]) -> dict:  # type: ignore[type-arg]
    """Ask for a new order until it is there."""
    body = {"version": 1, "seen": [{"id": one["id"], "concept": one["concept"]} for one in seen]}
    for _ in range(300):
        reply = client.post("/api/queue/learn", json=body)
        assert reply.status_code == 200, reply.text
        if reply.json()["ready"]:
            return reply.json()
        assert reply.json()["job"]
        time.sleep(0.1)
    raise AssertionError("nothing was learnt")


def _keys(found: dict) -> list[tuple[str, str | None]]:  # type: ignore[type-arg]
    return [(one["id"], one["concept"]) for one in found["items"]]


def test_answers_put_what_follows_in_a_new_order_and_leave_what_was_seen(
    table: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = table.browser("mona")
    before = _queue(client, limit=500)

    # Three answers rarely change the ranking itself (tests/verify/suggest); here they turn it around.
    def turned(snapshot: Snapshot, annotators: object, answers: list[object]) -> list[queue.Suspicion]:
        assert len(answers) == 3
        return queue.find(snapshot, table.bench.annotators, [])[::-1]

    monkeypatch.setattr(learning, "find", turned)
    seen = before["items"][:4]
    for one in seen[:3]:
        answer(client, one["id"], one["concept"], *_kept(one))
    learnt = _learnt(client, seen)
    assert learnt["answers"] == 3
    after = _queue(client, limit=500, ranking=learnt["ranking"])
    assert _keys(after)[:4] == _keys(before)[:4]
    assert set(_keys(before)) <= set(_keys(after))
    assert _keys(after)[4:] != _keys(before)[4:]
    assert len(set(_keys(after))) == after["total"]
    soon = set(_keys(before)[4:14])
    assert learnt["moved"] == sum(key not in soon for key in _keys(after)[4:14])
    # Only where it was asked for, and only for who answered.
    assert _keys(_queue(client, limit=500)) == _keys(before)
    assert _keys(_queue(table.browser("nils"), limit=500, ranking=learnt["ranking"])) == _keys(before)


def _kept(asked: dict) -> tuple[str, str | None]:  # type: ignore[type-arg]
    """The answer that agrees with the label."""
    label = asked["label_words"]
    return (label, None) if label in ("present", "absent") else ("value", label)


def test_nothing_is_learnt_before_anything_was_answered(table: Workbench) -> None:
    client = table.browser("otto")
    _queue(client)
    reply = client.post("/api/queue/learn", json={"version": 1, "seen": []}).json()
    assert (reply["ready"], reply["job"], reply["ranking"]) == (False, None, 0)
