"""Tidying concepts: the table, its panel, and a concept that is added."""

from __future__ import annotations

from pathlib import Path

from page_kit import Visitor

CREST = "/concepts?concept=crest%3Dyes"


def _kinds(visitor: Visitor) -> list[str]:
    return [group["kind"] for group in visitor.get("/api/staged")["groups"]]


def test_the_table_has_quality_rarity_importance_and_examples(anna: Visitor) -> None:
    page = anna.go("/concepts", "tbody tr")
    assert page.locator("tbody tr").count() == 21
    cells = page.locator("tbody tr", has_text="Crest").locator("td")
    assert "%" in cells.nth(0).inner_text()
    assert int(cells.nth(1).inner_text()) > 0
    assert cells.nth(2).inner_text().isdigit()
    assert page.locator("tbody tr", has_text="orange").locator("picture-tile").count() == 6


def test_the_worst_concepts_come_first_when_asked(anna: Visitor) -> None:
    page = anna.go("/concepts", "tbody tr")
    page.click("th >> text=Right on")

    def worst_first() -> bool:
        shown = page.locator("tbody tr td:nth-child(2)").all_inner_texts()
        shares = [float(text.replace("\u202f", "").strip("% ")) for text in shown]
        return len(shares) > 1 and shares == sorted(shares)

    anna.eventually(worst_first)


def test_a_removal_is_staged_and_taken_back(anna: Visitor) -> None:
    page = anna.go(CREST, ".panel-foot .button")
    page.click("text=Stage removal")
    page.wait_for_selector(".concept-panel .chip.staged")
    assert _kinds(anna) == ["remove_concept"]
    page.click(".concept-panel >> text=take back")
    page.wait_for_selector(".panel-foot .button")
    assert anna.staged() == 0


def test_a_new_name_is_staged_by_key(anna: Visitor) -> None:
    page = anna.go(CREST, ".panel-foot .button")
    page.keyboard.press("r")
    page.wait_for_selector("#concept-form input:focus")
    page.keyboard.press("Control+a")
    page.keyboard.type("tuft")
    page.keyboard.press("Enter")
    page.wait_for_selector(".concept-panel .chip.staged")
    assert _kinds(anna) == ["rename_concept"]


def test_two_concepts_are_merged(anna: Visitor) -> None:
    page = anna.go(CREST, ".panel-foot .button")
    page.click("text=Merge…")
    page.select_option("#concept-form select", "mask=yes")
    page.click("text=Stage the merge")
    page.wait_for_selector(".concept-panel .chip.staged")
    assert _kinds(anna) == ["merge_concepts"]


def test_a_concept_is_added_by_labelling_a_few_and_adopting_the_rest(anna: Visitor) -> None:
    page = anna.go("/concepts", "tbody tr")
    page.keyboard.press("n")
    page.wait_for_selector("#new-concept:focus")
    page.keyboard.type("blue wing")
    page.keyboard.press("Enter")
    truth = {
        one["id"] for one in anna.get("/api/pictures?concept=wing_color%3Dblue&value=present&limit=500")["items"]
    }
    given = 0
    for _ in range(24):
        page.wait_for_selector(".adding-stage .answer")
        asked = page.inner_text(".adding-stage .meta").split(",")[0]
        page.keyboard.press("1" if asked in truth else "0")
        given += 1
        page.wait_for_timeout(80)
        if given >= 12 and page.locator(".likely .tile").count():
            break
    page.wait_for_selector(".likely .tile")
    anna.eventually(lambda: anna.get("/api/state")["staged"]["labels"] >= given)
    page.locator(".likely .button:enabled").first.click()
    anna.eventually(lambda: anna.get("/api/state")["staged"]["labels"] > given)


def test_a_concept_comes_from_a_csv(anna: Visitor, tmp_path: Path) -> None:
    ids = [one["id"] for one in anna.get("/api/pictures?split=train&limit=12")["items"]]
    table = tmp_path / "legs.csv"
    rows = [f"{one},{place % 2}" for place, one in enumerate(ids)]
    table.write_text("\n".join(["id,long legs", *rows, "nobody,1"]))
    page = anna.go("/concepts?add=", "#new-concept")
    page.set_input_files("input[type=file]", str(table))
    said = page.wait_for_selector(".adding-start .notice").inner_text()
    assert "long legs with 12 labels" in said.replace("\u00a0", " ")
    assert "nobody" in said
