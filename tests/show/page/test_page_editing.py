"""From what is staged to a version and back; the history of versions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from page_kit import Visitor

CHANGES_VERSIONS = True

REASON = "Second reading of crests"


def _stage_crests(visitor: Visitor, count: int) -> None:
    found = visitor.get("/api/pictures?concept=crest%3Dyes&split=train&value=absent&limit=50")["items"][:count]
    answers = [{"id": one["id"], "concept": "crest=yes", "answer": "present"} for one in found]
    assert visitor.post("/api/answers", {"answers": answers}).ok


def _commit(visitor: Visitor) -> Any:
    page = visitor.go("/preview", ".preview-title")
    page.fill("#reason", REASON)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")
    return page


def _version(visitor: Visitor) -> int:
    version: int = visitor.get("/api/state")["version"]
    return version


def test_the_preview_says_what_would_change_and_changes_nothing(anna: Visitor) -> None:
    before = _version(anna)
    _stage_crests(anna, 30)
    page = anna.go("/preview", ".preview-title")
    assert "validation pictures would change class" in page.inner_text(".preview-title")
    assert page.locator(".staged-grid picture-tile").count() == 30
    page.wait_for_selector(".certificate")
    assert "ertified" in page.inner_text(".certificate")
    assert page.locator(".metric").count() >= 2
    assert _version(anna) == before


def test_what_is_staged_can_be_trimmed_on_the_preview(anna: Visitor) -> None:
    _stage_crests(anna, 5)
    page = anna.go("/preview", ".staged-grid picture-tile")
    page.locator(".staged-grid .tile").first.click()
    anna.eventually(lambda: anna.staged() == 4)
    anna.eventually(lambda: page.locator(".staged-grid .tile").count() == 4)
    page.wait_for_selector(".preview-title")
    for _ in range(4):  # the preview of what is left may be drawn between the focus and the key
        page.locator(".staged-grid .tile").first.focus()
        page.keyboard.press("x")
        page.wait_for_timeout(2000)
        if anna.staged() < 4:
            break
    assert anna.staged() == 3
    page.click("text=Take all back")
    page.wait_for_selector("text=Nothing staged. >> visible=true")


def test_a_commit_needs_a_reason(anna: Visitor) -> None:
    _stage_crests(anna, 3)
    page = anna.go("/preview", ".preview-title")
    button = page.locator(".commit .button.staged")
    assert button.is_disabled()
    page.fill("#reason", "   ")
    assert button.is_disabled()
    page.fill("#reason", REASON)
    anna.eventually(button.is_enabled)


def test_a_commit_shows_the_difference_and_one_key_takes_it_back_and_brings_it_again(anna: Visitor) -> None:
    before = _version(anna)
    _stage_crests(anna, 30)
    page = _commit(anna)
    after = _version(anna)
    assert after > before
    assert f"Version {after} is the current one." in page.inner_text(".committed-notice")
    assert page.locator(".committed .metric").count() >= 2
    assert anna.staged() == 0
    page.keyboard.press("Control+z")
    anna.eventually(lambda: f"Version {before}" in page.inner_text(".head .version"))
    assert _version(anna) == before
    page.keyboard.press("Control+y")
    anna.eventually(lambda: f"Version {after}" in page.inner_text(".head .version"))
    page.click("[aria-label='Undo the last version']")
    anna.eventually(lambda: _version(anna) == before)


def test_the_history_tells_who_why_and_what_and_compares_two_versions(anna: Visitor) -> None:
    _stage_crests(anna, 20)
    _commit(anna)
    page = anna.go("/history", ".compare .metric")
    row = page.locator(".version-row.current")
    assert REASON in row.inner_text()
    assert "anna" in row.inner_text()
    assert "Crest" in page.inner_text(".corrected")
    page.locator(".version-row >> text=Version 1").wait_for()
    assert page.locator(".chip.outlined").count() == 2


def test_any_version_has_a_report_and_an_export(anna: Visitor) -> None:
    page = anna.go("/history", ".version-row.current")
    page.click(".version-row.current >> text=Export")
    link = page.wait_for_selector("text=Save zip")
    content = anna.context.request.get(anna.served.base + link.get_attribute("href"))
    assert content.body()[:2] == b"PK"
    page.click(".version-row.current >> text=Report")
    frame = page.wait_for_selector("iframe:not(.unready)").content_frame()
    frame.wait_for_selector("h1, h2")


def test_a_training_that_is_previewed_can_be_cancelled(anna: Visitor) -> None:
    _stage_crests(anna, 3)
    page = anna.go("/preview", ".preview-title")
    page.click(".method .segments >> text=Retrain")
    page.wait_for_selector(".working")
    page.locator(".working .button").click(timeout=10_000)
    page.wait_for_selector(".working", state="detached")
    assert anna.staged() == 3


def test_a_full_disk_is_said_and_nothing_is_lost(anna: Visitor) -> None:
    """The server's words come from its own tests; here the page must show them and keep what is staged."""
    _stage_crests(anna, 4)
    page = anna.go("/preview", ".preview-title")
    version = _version(anna)
    problem = {"kind": "full_disk", "what": "The disk is full.", "todo": "Free 20 MB, then try again."}
    page.route("**/api/commits*", lambda route: route.fulfill(status=507, json=problem))
    page.fill("#reason", REASON)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".preview [role=alert]")
    said = " ".join(page.inner_text(".preview [role=alert]").split())
    page.unroute("**/api/commits*")
    assert said.startswith("Not committed: the disk is full.")
    assert re.search(rf"still version {version}; your 4 staged changes are safe", said.replace("\u00a0", " "))
    page.click("button:has-text('Try again')")
    page.wait_for_selector(".committed")


@pytest.mark.parametrize("path", ["/preview", "/pictures?status=staged"])
def test_nothing_staged_says_where_to_begin(anna: Visitor, path: str) -> None:
    page = anna.go(path, ".notice")
    said = " ".join(page.inner_text(".notice").split())
    assert said.startswith("Nothing staged. Answer a question in the queue, or correct a label on a picture.")
