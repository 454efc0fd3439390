"""Two people, a server that ends, and nothing that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from page_kit import Visitor, served

CHANGES_VERSIONS = True


@pytest.fixture
def jonas(browser: Any, anna: Visitor) -> Iterator[Visitor]:
    visitor = Visitor(browser, anna.served, anna.invite(), "jonas")
    yield visitor
    visitor.context.close()


def _stage(visitor: Visitor, concept: str, answer: str, where: str, count: int) -> list[str]:
    found = visitor.get(f"/api/pictures?split=train&concept={concept}&{where}&limit=50")["items"][:count]
    name = concept.replace("%3D", "=")
    answers = [{"id": one["id"], "concept": name, "answer": answer} for one in found]
    assert visitor.post("/api/answers", {"answers": answers}).ok
    return [one["id"] for one in found]


def test_the_second_person_is_told_who_moved_the_model_on_and_what_that_does(anna: Visitor, jonas: Visitor) -> None:
    ids = _stage(anna, "crest%3Dyes", "present", "value=absent", 6)
    page = anna.go("/preview", ".preview-title")
    version = anna.get("/api/state")["version"]
    # One of Anna's pictures goes away under her hands.
    assert jonas.post("/api/staged", {"item": {"kind": "remove_sample", "id": ids[0]}}).ok
    other = jonas.go("/preview", ".preview-title")
    other.fill("#reason", "photographed twice")
    other.keyboard.press("Control+Enter")
    other.wait_for_selector(".committed")
    said = page.wait_for_selector(".banner .notice").inner_text().replace("\u00a0", " ")
    assert f"jonas made version {version + 1} the current one" in said
    assert "5 of your 6 staged changes still fit and were carried over" in said
    page.click(f"text=Preview on version {version + 1}")
    page.fill("#reason", "second reading")
    page.wait_for_selector(f".commit .button.staged:enabled >> text=Commit version {version + 2}")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")
    assert anna.get("/api/state")["version"] == version + 2


def test_what_one_person_stages_is_not_the_others(anna: Visitor, jonas: Visitor) -> None:
    _stage(anna, "mask%3Dyes", "present", "value=absent", 3)
    assert anna.staged() == 3
    assert jonas.staged() == 0


def test_answers_outlive_a_killed_server_and_a_closed_browser(browser: Any, ward_made: Any, tmp_path: Any) -> None:
    with served(ward_made, tmp_path) as running:
        visitor = Visitor(browser, running)
        page = visitor.go("/queue?concept=crest%3Dyes&at=0", ".answers")
        page.keyboard.press("1")
        visitor.eventually(lambda: visitor.staged() == 1)
        running.kill()
        page.keyboard.press("1")
        page.wait_for_selector(".gone")
        said = " ".join(page.inner_text(".gone").split())
        assert said.startswith(
            "The workbench does not answer. Your labels are stored. Start it again with ecbm serve"
        )
        page.wait_for_selector("text=not stored, trying again")
        page.keyboard.press("1")
        running.start()
        # No new address is opened: the page that waited is known, and goes on by itself.
        page.wait_for_selector(".gone", state="detached", timeout=40_000)
        page.wait_for_selector("text=not stored, trying again", state="detached", timeout=20_000)
        visitor.eventually(lambda: visitor.staged() == 3)
        # Once more, and now the browser is closed, too, before the server is back.
        running.kill()
        page.keyboard.press("1")
        page.wait_for_selector("text=not stored, trying again")
        page.close()
        running.start()
        visitor.page = visitor.context.new_page()
        visitor.page.goto(running.base)
        visitor.eventually(lambda: visitor.staged() == 4, 30)
        visitor.context.close()


def test_a_refused_write_is_said_and_not_tried_for_ever(anna: Visitor) -> None:
    page = anna.go("/queue?concept=crest%3Dyes&at=0", ".answers")
    problem = {"kind": "unknown", "what": "There is no such picture any more.", "todo": "Look it up again."}
    page.route("**/api/answers", lambda route: route.fulfill(status=404, json=problem))
    page.keyboard.press("1")
    page.wait_for_selector(".banner >> text=There is no such picture any more.")
    page.unroute("**/api/answers")
    assert page.evaluate("localStorage.getItem('ecbm.unsent')") == "[]"


def test_a_name_is_kept_for_what_somebody_answers(browser: Any, anna: Visitor) -> None:
    page = anna.go("/", ".overview")
    page.click(".person")
    page.fill(".more-menu input.field", "Anna Weiss")
    page.keyboard.press("Enter")
    anna.eventually(lambda: anna.get("/api/state")["person"] == "Anna Weiss")
    anna.eventually(lambda: page.inner_text(".person") == "AW")
    assert anna.put("/api/person", {"name": "anna"}).ok
