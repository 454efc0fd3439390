"""Everybody can use it: axe, keys, zoom, small screens, dark colours, no motion."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from page_kit import LAPTOP, SMALL, Visitor

PAGES = {
    "/": ".worst",
    "/queue": ".reason",
    "/pictures?concept=crest%3Dyes": ".picture-grid picture-tile",
    "/sample?id=bird-00012&concept=crest%3Dyes": ".concept-bar.here",
    "/concepts?concept=crest%3Dyes": ".panel-foot",
    "/concepts?add=": "#new-concept",
    "/preview": ".preview-title",
    "/history": ".version-line",
    "/forget?ids=bird-00003": ".destroyed li",
    "/audit": "iframe:not(.unready)",
    "/components": ".sheet-page",
}


@pytest.fixture(scope="module")
def axe() -> Axe:
    return Axe()


def _serious(axe: Axe, page: Any) -> list[str]:
    found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).response
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def _stage_some(anna: Visitor) -> None:
    found = anna.get("/api/pictures?concept=crest%3Dyes&split=train&value=absent&limit=12")["items"]
    anna.post(
        "/api/answers",
        {"answers": [{"id": one["id"], "concept": "crest=yes", "answer": "present"} for one in found]},
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(anna: Visitor, axe: Axe, scheme: str) -> None:
    anna.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    _stage_some(anna)
    problems = {}
    for path, wait in PAGES.items():
        page = anna.go(path, wait)
        page.wait_for_timeout(120)
        if found := _serious(axe, page):
            problems[path] = found
    anna.page.emulate_media(color_scheme="light")
    assert problems == {}


def test_axe_finds_nothing_serious_on_a_small_screen_or_in_the_overlays(anna: Visitor, axe: Axe) -> None:
    _stage_some(anna)
    problems = {}
    page = anna.go("/", ".worst")
    for key in ("help", "menu"):
        page.click(".person")
        if key == "help":
            page.click(".more-menu >> text=All keys")
            page.wait_for_selector(".help-groups")
        if found := _serious(axe, page):
            problems[key] = found
        page.keyboard.press("Escape")
    page.set_viewport_size(SMALL)
    for path in ("/queue", "/sample?id=bird-00012&concept=crest%3Dyes", "/preview"):
        page = anna.go(path, PAGES[path])
        if found := _serious(axe, page):
            problems[path] = found
    page.set_viewport_size(LAPTOP)
    assert problems == {}


@pytest.mark.parametrize("size", [SMALL, {"width": 720, "height": 450}], ids=["390 px", "200 % zoom"])
def test_nothing_is_cut_off_on_a_small_screen_or_at_double_size(anna: Visitor, size: dict[str, int]) -> None:
    _stage_some(anna)
    anna.page.set_viewport_size(size)
    wide = {}
    for path, wait in PAGES.items():
        page = anna.go(path, wait)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        main = page.evaluate("(m => m.scrollWidth - m.clientWidth)(document.getElementById('main'))")
        if over > 0 or main > 1:
            wide[path] = (over, main)
    anna.page.set_viewport_size(LAPTOP)
    assert wide == {}


def test_a_small_screen_has_five_tabs_and_answers_in_sight(anna: Visitor) -> None:
    anna.page.set_viewport_size(SMALL)
    page = anna.go("/queue", ".answers")
    assert page.locator(".tabs a").count() == 5
    box = page.locator(".answers").bounding_box()
    assert box["y"] + box["height"] < SMALL["height"] - 56
    assert not page.is_visible(".rail")
    page.set_viewport_size(LAPTOP)


def test_answers_stay_in_the_window_of_a_laptop_under_its_browsers_bars(anna: Visitor) -> None:
    anna.page.set_viewport_size({"width": 1440, "height": 757})
    page = anna.go("/queue", ".answers")
    box = page.locator(".answers").bounding_box()
    assert box["y"] + box["height"] < page.locator(".strip").bounding_box()["y"] + 1
    page.set_viewport_size(LAPTOP)


def test_the_overlay_names_every_key_and_closes_by_escape(anna: Visitor) -> None:
    page = anna.go("/queue", ".answers")
    page.keyboard.press("?")
    page.wait_for_selector("[role=dialog]:focus")
    said = page.inner_text("[role=dialog]")
    assert all(
        words in said for words in ("back; never deletes", "read blind", "undo a version", "preview", "all keys")
    )
    page.keyboard.press("Escape")
    page.wait_for_selector("[role=dialog]", state="detached")


def test_single_letters_can_be_switched_off_and_rest_in_fields(anna: Visitor) -> None:
    page = anna.go("/queue", ".answers")
    page.keyboard.press("/")
    page.keyboard.type("1u0")
    assert anna.staged() == 0
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.uncheck("[role=dialog] input")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.keyboard.press("p")
    page.wait_for_timeout(200)
    assert anna.staged() == 0
    assert "/queue" in page.url


def test_keys_lead_to_every_page(anna: Visitor) -> None:
    page = anna.go("/", ".overview")
    for key, name in {"q": "queue", "p": "pictures", "c": "concepts", "h": "history"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/{name}*")
    page.keyboard.press("p")
    page.wait_for_url("**/preview")


def test_everything_has_a_visible_focus(anna: Visitor) -> None:
    page = anna.go("/concepts?concept=crest%3Dyes", ".panel-foot")
    for _ in range(40):
        page.keyboard.press("Tab")
        ring = page.evaluate(
            """() => { const e = document.activeElement; if (e === document.body) return 'body';
              const s = getComputedStyle(e); return s.outlineStyle === 'none' ? e.outerHTML.slice(0, 120) : ''; }"""
        )
        assert ring in ("", "body")


def test_dark_colours_follow_the_system_and_the_switch(anna: Visitor) -> None:
    page = anna.go("/", ".overview")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(paper)
    page.emulate_media(color_scheme="light")
    assert light != dark
    page.click(".person")
    page.click(".more-menu >> text=dark")
    anna.eventually(lambda: page.evaluate(paper) == dark)
    page.reload()
    page.wait_for_selector(".overview")
    assert page.evaluate(paper) == dark


def test_nothing_moves_for_those_who_asked_for_no_motion(anna: Visitor) -> None:
    anna.page.emulate_media(reduced_motion="reduce")
    page = anna.go("/sample?id=bird-00012", ".bar-fill")
    assert page.evaluate("getComputedStyle(document.querySelector('.bar-fill')).transitionDuration") == "0s"
    page.emulate_media(reduced_motion="no-preference")
