"""Looking around: overview, pictures, one picture."""

from __future__ import annotations

import re

import pytest

from page_kit import Visitor


def test_every_figure_of_the_overview_leads_to_the_pictures_behind_it(anna: Visitor) -> None:
    page = anna.go("/", ".overview-figures")
    said = page.locator(".overview-figures .figure").first.inner_text()
    right, of = map(int, re.search(r"(\d+) of (\d+)", said).groups())  # type: ignore[union-attr]
    page.locator(".overview-figures .key-figure").first.click()
    page.wait_for_selector(".picture-grid, .notice")
    anna.eventually(lambda: f"{of - right} of 240" in page.inner_text(".head-extra"))
    anna.go("/", ".worst")
    for link in page.locator(".overview a").all():
        assert link.get_attribute("href", timeout=1000).startswith("/")  # type: ignore[union-attr]


def test_the_overview_names_worst_concepts_and_classes_with_pictures(anna: Visitor) -> None:
    page = anna.go("/", ".worst picture-tile")
    assert page.locator(".class-tiles li").count() == 8
    assert page.locator(".worst").count() >= 4
    assert "suspicious label" in page.inner_text(".waiting")


def test_a_picture_is_found_by_a_part_of_its_id(anna: Visitor) -> None:
    page = anna.go("/", ".overview")
    page.keyboard.press("/")
    page.keyboard.type("0017")
    page.wait_for_selector("#found [role=option]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".concept-bar")
    assert "0017" in page.inner_text("h1")


def test_the_grid_holds_only_what_is_in_sight(anna: Visitor) -> None:
    page = anna.go("/pictures", ".picture-grid picture-tile")
    assert page.locator(".picture-grid picture-tile").count() < 150
    page.evaluate("document.querySelector('.picture-grid').scrollTop = 1e9")
    page.wait_for_selector("picture-tile [aria-label^='bird-00239']")


def test_ten_thousand_things_scroll_with_a_hundred_in_the_document(anna: Visitor) -> None:
    page = anna.go("/components", ".sheet-page")
    counts = page.evaluate(
        """async () => {
          await import('/page/components/window.js');
          const { h } = await import('/page/core/dom.js');
          const list = document.createElement('windowed-list');
          Object.assign(list.style, { height: '600px', width: '1000px', position: 'fixed', top: '0' });
          document.body.append(list);
          const item = (n) => h('b', null, String(n));
          list.given = { total: 10000, width: 116, height: 138, gap: 12, label: 'many', item };
          const counts = [];
          for (let step = 0; step <= 20; step += 1) {
            list.scrollTop = (list.scrollHeight - 600) * step / 20;
            await new Promise((next) => requestAnimationFrame(() => setTimeout(next, 30)));
            counts.push(list.querySelectorAll('b').length);
          }
          const last = list.textContent.endsWith('9999');
          list.remove();
          return { most: Math.max(...counts), last };
        }"""
    )
    assert counts["last"]
    assert counts["most"] < 120


def test_an_answer_redraws_one_tile(anna: Visitor) -> None:
    page = anna.go("/pictures?concept=crest%3Dyes&split=train", ".picture-grid picture-tile")
    anna.eventually(lambda: page.locator("img.loading").count() == 0)
    tile = page.get_attribute(".picture-grid picture-tile .tile", "aria-label").split(",")[0]
    page.evaluate(
        """() => {
          window.touched = new Set();
          new MutationObserver((all) => all.forEach((one) => {
            const node = one.target instanceof Element ? one.target : one.target.parentElement;
            const found = node.closest('.picture-grid .windowed-item');
            if (found) window.touched.add(found.getAttribute('aria-posinset'));
          })).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        }"""
    )
    page.evaluate(
        """async (id) => (await import('/page/core/app.js')).answer(id, 'crest=yes', 'unsure', 'unsure')""", tile
    )
    page.wait_for_selector(".picture-grid .tile.unsure")
    assert page.evaluate("[...window.touched]") == ["1"]


def test_filters_are_added_by_key_and_taken_away_by_click(anna: Visitor) -> None:
    page = anna.go("/pictures", ".picture-grid")
    page.keyboard.press("f")
    page.wait_for_selector("#filter-text:focus")
    page.keyboard.type("class read wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector(".filters .choice >> text=Class read wrong")
    assert "wrong=class" in page.url
    page.click(".filters .choice >> text=Class read wrong")
    anna.eventually(lambda: "wrong" not in page.url)


def test_pictures_are_sorted_by_similarity_to_one(anna: Visitor) -> None:
    page = anna.go("/sample?id=bird-00012", ".similar a.quiet")
    page.click(".similar a.quiet")
    page.wait_for_selector(".picture-grid .tile-under")
    shares = [float(text.split("·")[1]) for text in page.locator(".picture-grid .tile-under").all_inner_texts()[:8]]
    assert shares == sorted(shares, reverse=True)


def test_a_filter_that_finds_nothing_says_so(anna: Visitor) -> None:
    page = anna.go("/pictures?find=nowhere&split=val&wrong=class", ".notice")
    assert "No picture fits all 3 filters. Take one away." in " ".join(page.inner_text(".notice").split())


@pytest.mark.parametrize("tried", [False, True])
def test_the_parts_of_a_score_add_up_as_they_are_shown(anna: Visitor, tried: bool) -> None:
    page = anna.go("/sample?id=bird-00012", ".score-line.sum")
    if tried:
        page.keyboard.press("ArrowDown")
        page.keyboard.press("t")
        page.wait_for_selector(".score-line.sum b")
    lines = page.locator(".score-line .number").all_inner_texts()
    figures = [round(100 * float(line.split()[-1].replace("\u2212", "-"))) for line in lines]
    assert sum(figures[:-1]) == figures[-1]


def test_trying_moves_the_class_at_once_and_keeps_nothing(anna: Visitor) -> None:
    page = anna.go("/sample?id=bird-00012", ".concept-bar")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("t")
    page.wait_for_selector(".class-bar s")
    assert page.locator(".concept-bar.tried").count() == 1
    assert page.locator(".concept-bar.is-staged").count() == 0
    assert "Nothing is kept." in page.inner_text(".trying")
    assert anna.staged() == 0
    page.keyboard.press("Escape")
    anna.eventually(lambda: page.locator(".trying, .concept-bar.tried").count() == 0)


def test_correcting_stages_and_looks_different_from_trying(anna: Visitor) -> None:
    page = anna.go("/sample?id=bird-00012", ".concept-bar")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("c")
    page.wait_for_selector(".concept-bar.is-staged")
    assert page.locator(".concept-bar.tried").count() == 0
    anna.eventually(lambda: anna.staged() == 1)
    page.keyboard.press("c")
    anna.eventually(lambda: anna.staged() == 0)
    page.wait_for_selector(".concept-bar.is-staged", state="detached")


def test_what_was_tried_can_become_a_correction(anna: Visitor) -> None:
    page = anna.go("/sample?id=bird-00012&concept=mask%3Dyes", ".concept-bar.here")
    page.keyboard.press("t")
    page.wait_for_selector(".trying")
    page.click("text=Correct the label instead")
    page.wait_for_selector(".trying", state="detached")

    def status() -> str:
        groups = anna.get("/api/sample?id=bird-00012")["groups"]
        found: str = next(
            one["status"] for group in groups for one in group["labels"] if one["concept"] == "mask=yes"
        )
        return found

    anna.eventually(lambda: status() in ("staged", "kept"))


def test_a_picture_can_be_zoomed_and_moved(anna: Visitor) -> None:
    page = anna.go("/sample?id=bird-00012", "zoom-picture img")
    page.keyboard.press("z")
    anna.eventually(lambda: "scale(3)" in page.get_attribute("zoom-picture img", "style"))
    page.focus(".zoom-well")
    page.keyboard.press("ArrowLeft")
    anna.eventually(lambda: "translate(40px" in page.get_attribute("zoom-picture img", "style"))


def test_neighbours_are_those_of_the_filter(anna: Visitor) -> None:
    page = anna.go("/pictures?wrong=class&split=train", ".picture-grid .tile")
    page.locator(".picture-grid .tile").first.click()
    page.wait_for_selector(".head-extra .icon-right")
    first = page.inner_text("h1")
    total = anna.get("/api/pictures?wrong=class&split=train")["total"]
    anna.eventually(lambda: f"1 of {total} read wrong" in page.inner_text(".head-extra"))
    page.keyboard.press("ArrowRight")
    anna.eventually(lambda: page.inner_text("h1") != first)
    anna.eventually(lambda: "read as" in page.inner_text(".head-extra"))
