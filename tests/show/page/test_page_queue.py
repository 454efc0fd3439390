"""Working through a queue with one finger."""

from __future__ import annotations

import re
from typing import Any

from page_kit import Visitor

QUEUE = "/queue?concept=crest%3Dyes"


def _place(page: Any) -> int:
    return int(re.match(r"(\d+)", page.inner_text(".strip-place")).group(1))  # type: ignore[union-attr]


def _press(visitor: Visitor, *keys: str) -> None:
    for key in keys:
        visitor.page.keyboard.press(key)
        visitor.page.wait_for_timeout(60)
        visitor.drawn()


def test_one_key_answers_and_goes_on_and_what_is_answered_is_staged_not_applied(anna: Visitor) -> None:
    page = anna.go(QUEUE, ".answers")
    version = anna.get("/api/state")["version"]
    start = _place(page)
    _press(anna, "1", "0", "u")
    anna.eventually(lambda: _place(page) == start + 3)
    page.wait_for_selector(".tray-staged")
    anna.eventually(lambda: anna.get("/api/state")["unsure"] == 1)
    badges = page.locator(".strip-list .tile.staged, .strip-list .tile.kept, .strip-list .tile.unsure")
    assert badges.count() == 3
    assert anna.staged() >= 1
    assert anna.get("/api/state")["version"] == version


def test_arrows_and_backspace_only_move(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=0", ".answers")
    _press(anna, "ArrowRight", "ArrowRight", "Backspace")
    anna.eventually(lambda: _place(page) == 2)
    _press(anna, "Backspace", "Backspace", "ArrowLeft")
    anna.eventually(lambda: _place(page) == 1)
    assert anna.staged() == 0
    assert page.url.startswith(anna.served.base + "/queue")


def test_the_place_survives_a_reload_and_a_visit_elsewhere(anna: Visitor) -> None:
    page = anna.go(QUEUE, ".answers")
    _press(anna, *["ArrowRight"] * 7)
    place, picture = _place(page), page.get_attribute(".stage-img", "alt")

    def same() -> bool:
        return (_place(page), page.get_attribute(".stage-img", "alt")) == (place, picture)

    page.reload()
    page.wait_for_selector(".answers")
    anna.eventually(same)
    anna.go("/history", ".version-line")
    anna.go(QUEUE, ".answers")
    anna.eventually(same)


def test_an_answer_shows_its_reasons_and_what_the_concept_looks_like(anna: Visitor) -> None:
    page = anna.go(QUEUE, ".reason")
    assert page.locator(".reason").count() >= 2
    assert page.locator(".looks-like picture-tile").count() >= 4


def test_reading_blind_hides_model_label_and_reasons_until_answered(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=0", ".reason")
    _press(anna, "b")
    page.wait_for_selector("text=Label and model are hidden until you answer")
    assert page.locator(".reason, .answer-words.staged-word").count() == 0
    _press(anna, "1", "ArrowLeft")
    page.wait_for_selector(".reason")
    _press(anna, "b")


def test_no_answer_is_preselected_or_focused(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=3", ".answers")
    assert page.locator(".answer[aria-pressed=true]").count() == 0
    assert page.evaluate("document.activeElement.closest('.answers') === null")


def test_the_next_question_is_announced_and_the_focus_stays(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=0", ".answers")
    page.locator(".answer").nth(1).focus()
    page.keyboard.press("Enter")
    anna.eventually(lambda: "do you see it" in page.inner_text("#live"))
    assert page.evaluate("document.activeElement.className").startswith("answer")


def test_only_pictures_in_sight_are_in_the_strip(anna: Visitor) -> None:
    page = anna.go("/queue", ".answers")
    total = int(re.search(r"of ([\d,]+)", page.inner_text(".strip-place")).group(1).replace(",", ""))  # type: ignore[union-attr]
    assert total > 60
    assert page.locator(".strip-list picture-tile").count() < 40
    last = anna.go(f"/queue?at={total - 1}", ".answers")
    assert _place(last) == total
    last.wait_for_selector(".strip-list .tile.here")


def test_an_empty_queue_says_what_to_do_next(anna: Visitor) -> None:
    page = anna.go("/queue?concept=wing_color%3Dblue&label=Moss+Piper&split=test", ".notice")
    assert "Nothing suspicious is left here." in page.inner_text(".notice")
    assert "Choose another concept, or look at what you have staged." in page.inner_text(".notice")


def test_any_filter_about_a_concept_can_be_asked(anna: Visitor) -> None:
    page = anna.go("/pictures?concept=mask%3Dyes&split=train&value=absent", "picture-tile")
    page.keyboard.press("q")
    page.wait_for_selector(".answers")
    assert "Mask: do you see it?" in page.inner_text(".stage-question")
    _press(anna, "1")
    anna.eventually(lambda: anna.staged() == 1)


def test_an_answer_shows_as_given_after_a_reload(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=0", ".answers")
    label = anna.get("/api/queue?concept=crest%3Dyes&limit=1")["items"][0]["label_words"]
    _press(anna, "0" if label == "present" else "1")
    anna.eventually(lambda: anna.staged() == 1)
    page = anna.go(QUEUE + "&at=0", ".answer.given")
    assert page.locator(".answer.given b").all_inner_texts() == ["Absent" if label == "present" else "Present"]


def _slow(page: Any, path: str) -> list[Any]:
    """Hold back answers to a path until they are let go."""
    held: list[Any] = []
    page.route(path, lambda route: held.append(route))
    return held


def test_a_list_that_comes_late_neither_moves_the_place_nor_forgets_an_answer(anna: Visitor) -> None:
    page = anna.go(QUEUE + "&at=0", ".answers")
    held = _slow(page, "**/api/queue?*")
    # Somebody else's answer makes the page ask again; before the reply comes, two questions are answered.
    anna.post("/api/answers", {"answers": [{"id": "bird-00001", "concept": "mask=yes", "answer": "unsure"}]})
    anna.eventually(lambda: len(held) == 1)
    early = held[0].fetch()
    _press(anna, "1", "1")
    anna.eventually(lambda: anna.get("/api/queue?concept=crest%3Dyes")["answered"] == 2)
    page.wait_for_timeout(200)
    held[0].fulfill(response=early)
    page.unroute("**/api/queue?*")
    page.wait_for_timeout(200)
    anna.drawn()
    assert _place(page) == 3
    assert page.locator(".strip-list .tile.staged, .strip-list .tile.kept").count() == 2


def test_after_ten_answers_what_follows_is_in_a_new_order_and_nothing_that_was_seen_moves(anna: Visitor) -> None:
    page = anna.go("/queue?at=0", ".answers")
    before = [(one["id"], one["concept"]) for one in anna.get("/api/queue?limit=100")["items"]]

    # Ten answers seldom say enough for another order; the server's reply is turned around behind what was seen.
    def learnt(route: Any) -> None:
        reply = route.fetch()
        found = reply.json()
        route.fulfill(response=reply, json=found | {"moved": 6} if found["ready"] else found)

    def turned(route: Any) -> None:
        reply = route.fetch()
        found = reply.json()
        found["items"][12:] = found["items"][:11:-1]
        route.fulfill(response=reply, json=found)

    page.route("**/api/queue/learn", learnt)
    page.route(re.compile(r"/api/queue\?.*ranking="), turned)
    for _ in range(10):
        _press(anna, "1" if "present" in page.inner_text(".stage-label") else "0")
    page.wait_for_selector(".queue-order >> text=your answers moved", timeout=60_000)
    assert _place(page) == 11
    shown = page.get_attribute(".stage-img", "alt")
    assert shown == before[10][0]
    _press(anna, *["ArrowLeft"] * 10)
    for place in range(12):
        assert _place(page) == place + 1
        assert page.get_attribute(".stage-img", "alt") == before[place][0]
        _press(anna, "ArrowRight")
    after = []
    for _ in range(6):
        after.append(page.get_attribute(".stage-img", "alt"))
        _press(anna, "ArrowRight")
    assert after != [key[0] for key in before[12:18]]
