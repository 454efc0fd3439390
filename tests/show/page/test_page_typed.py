"""Grades, values and numbers: concepts that are not yes or no, and labels that are a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ecbm
from number_kit import numbered
from page_kit import LAPTOP, Visitor, served
from types_kit import mixed


def _visited(browser: Any, data: ecbm.Dataset, folder: Path) -> Iterator[Visitor]:
    made = folder / "made" / "clinic"
    ecbm.Workspace.create(made, data, ecbm.Recipe(backbone="linear")).train(author="marta")
    with served(made, folder) as running:
        visitor = Visitor(browser, running)
        yield visitor
        visitor.context.close()
        assert visitor.complaints == []


@pytest.fixture(scope="module")
def clinic(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    yield from _visited(browser, mixed(120), tmp_path_factory.mktemp("typed"))


@pytest.fixture(scope="module")
def market(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    yield from _visited(browser, numbered(120), tmp_path_factory.mktemp("prices"))


def _first(visitor: Visitor, concept: str) -> dict[str, Any]:
    """The first training record that has a label of a concept."""
    found = visitor.get(f"/api/pictures?split=train&concept={concept}&limit=50")["items"]
    return next(one for one in found if one["concept"]["label_words"] != "missing")


def _asked(visitor: Visitor, concept: str) -> tuple[Any, dict[str, Any]]:
    """The queue about a concept, at a record that has a label of it."""
    visitor.nothing_staged()
    found = visitor.get(f"/api/pictures?split=train&concept={concept}&limit=50")["items"]
    place = next(i for i, one in enumerate(found) if one["concept"]["label_words"] != "missing")
    page = visitor.go(f"/queue?from=pictures&split=train&concept={concept}&at={place}", ".answers")
    return page, found[place]


def test_a_grade_is_answered_by_its_own_digit_and_the_label_is_marked_as_kept(clinic: Visitor) -> None:
    page, asked = _asked(clinic, "severity")
    grade = int(asked["concept"]["label"])
    assert page.locator(".answer b").all_inner_texts() == ["Grade 0", "Grade 1", "Grade 2", "Grade 3", "Unsure"]
    assert page.locator(".answer kbd").all_inner_texts() == ["0", "1", "2", "3", "U"]
    keeps = page.locator(".answer:has(.answer-words:text-is('keeps the label')) b").all_inner_texts()
    assert keeps == [f"Grade {grade}"]
    page.keyboard.press(str(grade))
    clinic.eventually(lambda: page.locator(".strip-list .tile.kept").count() == 1)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press(str((grade + 1) % 4))
    clinic.eventually(lambda: clinic.staged() == 1)
    clinic.go(f"/sample?id={asked['id']}&concept=severity", ".concept-bar.is-staged")
    staged = page.locator(".concept-bar.is-staged .bar-label").all_inner_texts()
    assert any("present" in text for text in staged)


def test_the_reasons_of_a_grade_stay_inside_their_panel_and_name_grades(clinic: Visitor) -> None:
    page, _ = _asked(clinic, "severity")
    page.wait_for_selector(".reason-examples")
    wide = page.evaluate(
        "[...document.querySelectorAll('.reasons .bar-fill')].map((e) => parseFloat(e.style.width))"
    )
    assert wide
    assert all(0 <= one <= 100 for one in wide)
    under = page.locator(".reason-examples .meta").all_inner_texts()
    assert under
    assert all(text.startswith("grade ") for text in under)
    assert page.locator(".reason-examples .dot").count() == 0


def test_a_sample_shows_the_grade_that_it_is_labelled_with(clinic: Visitor) -> None:
    first = _first(clinic, "severity")
    page = clinic.go(f"/sample?id={first['id']}", ".concept-bar")
    group = page.locator(".concept-group", has=page.locator("h3", has_text="Severity"))
    present = group.locator(".concept-bar:has(.bar-word:text-is('present')) .bar-name").all_inner_texts()
    assert str(int(first["concept"]["label"])) in present


def test_a_value_is_answered_by_its_place(clinic: Visitor) -> None:
    page, asked = _asked(clinic, "colour")
    values = ["red", "blue", "green"]
    other = next(value for value in values if value != asked["concept"]["label"])
    page.keyboard.press(str(values.index(other) + 1))
    clinic.eventually(lambda: clinic.staged() == 1)
    page.keyboard.press("ArrowLeft")
    clinic.eventually(lambda: page.locator(".answer.given b").all_inner_texts() == [other])
    assert page.locator(".tray-keys kbd").all_inner_texts()[:4] == ["1", "2", "3", "U"]


def test_a_number_is_typed_with_its_unit(clinic: Visitor) -> None:
    page, asked = _asked(clinic, "size")
    assert "in mm" in page.inner_text(".number-answer")
    assert page.inner_text(".stage-label") == f"Label now: {asked['concept']['label_words']}"
    assert "most similar records are labelled" in page.inner_text(".reasons")
    page.fill(".number-answer input", "12,5")
    page.keyboard.press("Enter")
    clinic.eventually(lambda: clinic.staged() == 1)
    page.locator(".strip-list .tile.staged").click()
    page.wait_for_selector("text=staged as 12.5 mm")


def test_a_number_is_tried_and_corrected_on_the_sample(clinic: Visitor) -> None:
    clinic.nothing_staged()
    first = _first(clinic, "size")
    page = clinic.go(f"/sample?id={first['id']}", ".continuous-row")
    page.click(".continuous-row >> text=change")
    page.fill(".continuous-form input", "44")
    page.click(".continuous-form >> text=Try")
    page.wait_for_selector(".continuous-row.tried >> text=44 mm")
    assert clinic.staged() == 0
    page.click("text=Correct the label")
    clinic.eventually(lambda: clinic.staged() == 1)
    page.wait_for_selector(".continuous-row.is-staged >> text=44 mm")


def test_a_typed_concept_has_no_present_and_absent(clinic: Visitor) -> None:
    for concept in ("colour", "severity", "size"):
        page = clinic.go(f"/concepts?concept={concept}", ".panel-foot")
        text = page.inner_text(".concept-panel").lower()
        assert "labelled present" not in text
        assert "labelled in" in text
        assert "picture" not in text


def test_a_staged_grade_is_previewed_and_committed(clinic: Visitor) -> None:
    page, asked = _asked(clinic, "severity")
    page.keyboard.press(str((int(asked["concept"]["label"]) + 2) % 4))
    clinic.eventually(lambda: clinic.staged() == 1)
    page.keyboard.press("p")
    page.wait_for_selector(".preview-title")
    page.wait_for_selector(".certificate")
    ends = page.locator(".preview-decision *").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().right)"
    )
    assert max(ends) <= LAPTOP["width"]
    page.fill("#reason", "second reading")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")


def test_a_model_of_a_number_speaks_of_it_with_its_unit(market: Visitor) -> None:
    page = market.go("/", ".overview")
    assert "EUR" in page.inner_text(".overview-top")
    first = _first(market, "striped")
    page = market.go(f"/sample?id={first['id']}", ".score-line.sum")
    assert "Sum: the price, in EUR" in page.inner_text(".score-chart")
    page = market.go("/concepts", ".concept-table")
    assert "Class hangs" not in page.inner_text(".concept-table")


def test_a_number_label_is_corrected_and_its_preview_says_how_far_predictions_move(market: Visitor) -> None:
    first = market.get("/api/pictures?split=train&limit=1")["items"][0]["id"]
    body = {"answers": [{"id": first, "concept": None, "answer": "value", "value": 2500}]}
    assert market.post("/api/answers", body).ok
    page = market.go("/preview", ".certificate")
    assert "validation records would move by at most" in page.inner_text(".preview-title")
    assert "e-" not in page.inner_text(".certificate")
    page.fill("#reason", "typing error")
    page.wait_for_selector(".commit .button.staged:enabled")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")
