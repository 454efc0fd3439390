"""The same with fields in place of a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from page_kit import Visitor, served


@pytest.fixture(scope="module")
def clinic(browser: Any, table_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with served(table_made, tmp_path_factory.mktemp("clinic")) as running:
        visitor = Visitor(browser, running)
        yield visitor
        visitor.context.close()
        assert visitor.complaints == []


def test_the_overview_speaks_of_records(clinic: Visitor) -> None:
    page = clinic.go("/", ".overview")
    assert "record" in page.inner_text(".overview")
    assert "picture" not in page.inner_text("#app").lower()


def test_records_are_cards_with_their_first_fields(clinic: Visitor) -> None:
    page = clinic.go("/pictures", ".record-card")
    card = page.locator(".record-card").first
    assert card.locator(".record-fields > span").count() == 3
    card.click()
    page.wait_for_selector(".sample-media .fields dt")
    assert page.locator(".sample-media .fields dt").count() >= 3


def test_a_record_is_tried_corrected_previewed_and_committed(clinic: Visitor) -> None:
    first = clinic.get("/api/pictures?split=train&limit=1")["items"][0]["id"]
    page = clinic.go(f"/sample?id={first}", ".concept-bar")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("t")
    page.wait_for_selector(".class-bar s")
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    clinic.eventually(lambda: clinic.staged() == 1)
    page.keyboard.press("p")
    page.wait_for_selector(".preview-title")
    page.fill("#reason", "typing error")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")


def test_a_question_shows_the_fields(clinic: Visitor) -> None:
    concept = clinic.get("/api/state")["concepts"][0]["name"]
    page = clinic.go(f"/queue?from=pictures&split=train&concept={concept}", ".answers")
    assert page.locator(".stage-fields dt").count() >= 1
    assert "does it apply?" in page.inner_text(".stage-question")
