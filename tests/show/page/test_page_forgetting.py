"""Forgetting somebody: typed words, steps, an audit and a certificate that names nobody."""

from __future__ import annotations

from page_kit import Visitor

CHANGES_VERSIONS = True

IDS = ["bird-00003", "bird-00017"]


def test_the_button_sleeps_until_the_words_and_a_reason_are_there(anna: Visitor) -> None:
    page = anna.go("/forget", "#forget-ids")
    page.fill("#forget-ids", ", ".join(IDS))
    page.wait_for_selector(".destroyed li")
    assert "2 pictures found" in page.inner_text(".forget-ids").replace("\u00a0", " ")
    button = page.locator("button:has-text('Erase for good')")
    page.fill("#forget-reason", "withdrew consent")
    page.fill("#forget-typed", "erase 2 pic")
    assert button.is_disabled()
    page.fill("#forget-typed", "erase 2 pictures")
    anna.eventually(button.is_enabled)
    page.keyboard.press("Escape")
    anna.eventually(lambda: page.input_value("#forget-ids") == "")


def test_an_unknown_id_stops_it(anna: Visitor) -> None:
    page = anna.go("/forget", "#forget-ids")
    page.fill("#forget-ids", f"{IDS[0]}, nobody")
    page.wait_for_selector("text=Not known here: nobody")
    page.fill("#forget-reason", "withdrew consent")
    page.fill("#forget-typed", page.inner_text(".forget-confirm .labelled:nth-child(2) b"))
    assert page.locator("button:has-text('Erase for good')").is_disabled()


def test_an_erasure_ends_with_an_audit_and_a_certificate_that_names_nobody(anna: Visitor) -> None:
    version = anna.get("/api/state")["version"]
    page = anna.go("/forget", "#forget-ids")
    page.fill("#forget-ids", " ".join(IDS))
    page.wait_for_selector(".destroyed li")
    page.check("input[name=method][value=exact]")
    page.fill("#forget-reason", "withdrew consent")
    page.fill("#forget-typed", "erase 2 pictures")
    page.click("button:has-text('Erase for good')")
    sheet = page.wait_for_selector(".erasure-sheet", timeout=60_000).inner_text()
    assert "Certificate of erasure" in sheet
    assert "nothing of them was found" in sheet, sheet
    assert not any(one in sheet for one in IDS)
    assert anna.get("/api/state")["version"] > version
    assert anna.get(f"/api/pictures?ids={','.join(IDS)}")["total"] == 0
    page.emulate_media(media="print")
    assert not page.is_visible(".rail")
    assert page.is_visible(".erasure-sheet")
    page.emulate_media(media="screen")
    page.click("text=Done")
    page.wait_for_selector("#forget-ids")
