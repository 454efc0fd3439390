"""The page is one file that needs nothing else, says everything it is given, and is well formed."""

from __future__ import annotations

import base64
import io
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ecbm.errors import InputError
from ecbm.show import page as page_module
from ecbm.show.page import Badge, Card, ConceptBar, Page

NASTY = """<script>alert("1")</script> & 'quoted' "twice" </style>"""
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest and collects what a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def picture(size=16):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, size, size), dtype=np.uint8))


def full_page(text="A name"):
    bars = [ConceptBar("wing=blue", 0.9, 1.0), ConceptBar(text, 0.8, 0.0), ConceptBar("crest", 0.2, math.nan)]
    fixed = [ConceptBar("wing=blue", 1.0, 1.0, corrected=True), ConceptBar("tail::long", 0.4)]
    card = Card(picture(), text, text, bars, [ConceptBar(text, 0.7, True)], [Badge(text, "bad")])
    page = Page(text, text).metrics({text: 0.5, "pictures": 3000, "noted": ("21 s", text)})
    page.section(text, text).text(text).code(text)
    page.table([text, "accuracy"], [(text, 0.25), ("b", "97%")], highlight=[1], meters=[1], caption=text)
    page.section(text).gallery([card, card]).before_after(card, Card(None, text, bars=fixed), text)
    return page.line_chart({text: [(0, 0.8), (1, 0.9)], "other": [(0, 0.7)]}, text, text, text, percent=True)


def test_a_page_is_well_formed_and_in_the_right_order():
    outline = Outline(full_page().html())
    order = [
        tag for tag, _ in outline.tags if tag in {"html", "head", "title", "body", "h1", "h2", "main", "footer"}
    ]
    assert order == ["html", "head", "title", "body", "h1", "main", "h2", "h2", "footer"]
    anchors = [attributes["id"] for attributes in outline.named("h2")]
    assert len(set(anchors)) == 2
    assert [a["href"] for a in outline.named("a")] == [f"#{anchor}" for anchor in anchors]


def test_a_page_refers_to_nothing_outside_itself():
    html = full_page().html()
    outline = Outline(html)
    for tag, attributes in outline.tags:
        assert tag not in {"script", "link", "iframe", "object"}
        for name in ("src", "href", "xlink:href", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,")), (tag, name)
    for word in ("http:", "https:", "@import", "url("):
        assert word not in html


def test_all_text_is_escaped_and_still_there():
    html = full_page(NASTY).html()
    outline = Outline(html)
    assert "<script" not in html
    assert html.count("</style>") == 1
    assert "".join(outline.text).count(NASTY) >= 15
    assert outline.named("img")[0]["alt"] == f"{NASTY}, {NASTY}"


def test_every_picture_has_a_text_and_a_size():
    for attributes in Outline(full_page().html()).named("img"):
        assert attributes["alt"]
        assert attributes["width"] == attributes["height"] == "16"
    html = Page("t").gallery([Card(picture(), "title", alt="a red bird")]).html()
    assert Outline(html).named("img")[0]["alt"] == "a red bird"


def decode(html):
    data = Outline(html).named("img")[0]["src"].partition("base64,")[2]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


@pytest.mark.parametrize("given", ["uint8", "float", "grey"])
def test_pictures_keep_their_pixels(given):
    image = picture()
    shown = {"uint8": image, "float": image / 255, "grey": image[:1]}[given]
    pixels = decode(Page("t").gallery([Card(shown, "title", pixelated=True)]).html())
    wanted = image[:1].expand(3, -1, -1) if given == "grey" else image
    assert (pixels == wanted.permute(1, 2, 0).numpy()).all()


def test_small_pictures_are_enlarged_smoothly_unless_pixelated():
    assert decode(Page("t").gallery([Card(picture(16), "title")]).html()).shape == (192, 192, 3)
    assert decode(Page("t").gallery([Card(picture(200), "title")]).html()).shape == (200, 200, 3)


def test_bars_tell_mistaken_corrected_and_unknown_apart():
    assert ConceptBar("a", 0.6, 0.0).mistaken
    assert not ConceptBar("a", 0.6, 1.0).mistaken
    assert not ConceptBar("a", 0.6, math.nan).mistaken
    assert not ConceptBar("a", 0.6).known
    outline = Outline(full_page().html())
    states = [attributes.get("class") for attributes in outline.named("li")]
    assert states.count("mistaken") == 3
    assert states.count("corrected") == 1
    marks = [a["aria-label"] for a in outline.named("span") if "truth" in (a.get("class") or "")]
    assert set(marks) == {"truth: yes", "truth: no"}


def test_charts_say_in_words_what_they_show_and_give_their_numbers():
    page = Page("t").line_chart({"random": [(0, 0.9), (3, 0.95)]}, "groups", "accuracy", "Curve")
    outline = Outline(page.html())
    assert outline.named("svg")[0]["aria-label"] == "Curve: accuracy against groups, for random"
    assert "0.950" in outline.text
    flat = Page("t").line_chart({"one": [(2, 0.5)]}, "x", "y").html()
    assert "nan" not in Outline(flat).named("circle")[0]["cy"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Page("t").table(["a", "b"], [(1,)]),
        lambda: Page("t").gallery([Card(torch.zeros(4, 8, 8), "t")]),
        lambda: Page("t").line_chart({}, "x", "y"),
        lambda: Page("t").line_chart({"a": [(0, math.nan)]}, "x", "y"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(make):
    with pytest.raises(InputError) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_writing_makes_folders_and_replaces_the_old_page_whole(tmp_path, monkeypatch):
    target = tmp_path / "new" / "page.html"
    page = full_page()
    assert page.write(target) == target
    assert target.read_text("utf-8") == page.html()

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        Page("another").write(target)
    assert target.read_text("utf-8") == page.html()
    assert [file.name for file in target.parent.iterdir()] == ["page.html"]


def rules(selector: str, media: str = "") -> str:
    """What the style sheet says about a selector, on any screen or within a media query."""
    style = (Path(page_module.__file__).parent / "assets" / "page.css").read_text("utf-8")
    queries = dict(re.findall(r"^@media ([^{]*) {\n(.*?)^}", style, re.DOTALL | re.MULTILINE))
    text = queries[media] if media else re.sub(r"^@media [^{]* {\n.*?^}", "", style, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    blocks = re.findall(r"([^{}]*){([^{}]*)}", text)
    found = [body for names, body in blocks if selector in [name.strip() for name in names.split(",")]]
    assert found, selector
    return " ".join(found)


def test_a_figure_in_a_tile_is_never_broken_over_two_lines():
    assert "white-space: nowrap" in rules(".metrics dd")
    # tiles share a row by what they need, so one with a long figure takes more room instead of breaking it
    assert "display: flex" in rules(".metrics")
    assert "flex: 1 1" in rules(".metrics div")


def test_names_beside_bars_are_never_cut():
    assert "ellipsis" not in rules(".bars .name")
    assert "overflow-wrap: anywhere" in rules(".bars .name")


def test_a_wide_table_becomes_a_block_a_row_on_a_narrow_screen():
    headers = ["what", "a", "b", "c", "d & e", "f"]
    outline = Outline(Page("t").table(headers, [("x", 1, 2, 3, 4, 5), ("y", "–", 2.5, 3, 4, 5)]).html())
    assert outline.named("table") == [{"class": "wide"}]
    assert [cell["data-label"] for cell in outline.named("td")] == headers[1:] * 2
    narrow = "(max-width: 34rem)"
    assert "display: grid" in rules("table.wide tr", narrow)
    assert "content: attr(data-label)" in rules("table.wide td::before", narrow)
    assert Outline(Page("t").table(headers[:5], [("x", 1, 2, 3, 4)]).html()).named("table") == [{}]


def ticks(html: str, kind: str) -> list[str]:
    drawing = re.search(rf'<svg class="{kind}".*?</svg>', html, re.DOTALL)[0]
    return re.findall(r'text-anchor="end">([^<]*)<', drawing)


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_the_vertical_axis_of_a_chart_is_not_cut(kind):
    line = {"random": [(0, 0.889), (1, 0.936)]}
    percent = ticks(Page("t").line_chart(line, "x", "y", percent=True).html(), kind)
    assert (percent[0], percent[-1]) == ("0%", "100%")
    plain = ticks(Page("t").line_chart({"loss": [(0, 31.0), (1, 39.5)]}, "x", "y").html(), kind)
    assert (plain[0], plain[-1]) == ("0", "40")
    below = ticks(Page("t").line_chart({"gain": [(0, -0.3), (1, 0.2)]}, "x", "y", percent=True).html(), kind)
    assert float(below[0].rstrip("%")) <= -30
    assert "0%" in below


def test_a_chart_has_a_drawing_for_either_screen_and_text_of_one_size():
    outline = Outline(Page("t").line_chart({"random": [(0, 0.9), (3, 0.95)]}, "groups", "accuracy", "Curve").html())
    wide, narrow = (one for one in outline.named("svg") if one.get("class") in ("wide", "narrow"))
    assert wide["aria-label"] == narrow["aria-label"]
    assert int(narrow["viewbox"].split()[2]) <= 390 < int(wide["viewbox"].split()[2])
    assert "display: none" in rules(".chart .plot svg.narrow")
    assert "display: none" in rules(".chart .plot svg.wide", "(max-width: 34rem)")
    assert "display: block" in rules(".chart .plot svg.narrow", "(max-width: 34rem)")


def test_the_page_takes_its_colours_from_the_tokens_alone():
    folder = Path(page_module.__file__).parent / "assets"
    tokens = (folder / "tokens.css").read_text("utf-8")
    known = set(re.findall(r"^\s*(--[\w-]+):", tokens, re.MULTILINE))
    assert "--wrong: #a94a12;" in tokens
    for sheet in folder.glob("*.css"):
        text = sheet.read_text("utf-8")
        own = set(re.findall(r"(--[\w-]+):", text))
        assert set(re.findall(r"var\((--[\w-]+)", text)) <= known | own | {"--p", "--c", "--ratio"}, sheet.name
        if sheet.name != "tokens.css":
            assert not set(re.findall(r"#[0-9a-f]{3,8}\b", text)) - {"#fff"}, sheet.name
    assert tokens in Page("t").html()
