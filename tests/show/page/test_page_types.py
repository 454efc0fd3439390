"""The page's types say what the server sends; its files say what the wheel carries."""

from __future__ import annotations

import re
from pathlib import Path

from declare_types import FILE, declared

import ecbm.show.serve

PAGE = Path(ecbm.show.serve.__file__).parent / "page"


def test_the_declared_types_are_those_of_the_schemas() -> None:
    assert FILE.read_text(encoding="utf-8") == declared(), "run: python tests/show/page/declare_types.py"


def test_every_import_of_the_page_leads_to_a_file_of_the_page() -> None:
    for path in PAGE.rglob("*.js"):
        for target in re.findall(r'^import[^"]*"([^"]+)";', path.read_text(encoding="utf-8"), re.MULTILINE):
            assert target.startswith("."), f"{path}: {target}"
            assert (path.parent / target).resolve().is_file(), f"{path}: {target}"


def test_the_page_writes_no_markup_from_strings_and_names_no_other_host() -> None:
    for path in [*PAGE.rglob("*.js"), *PAGE.rglob("*.css"), *PAGE.rglob("*.html")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path
        hosts = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert hosts == set(), path


def test_no_file_of_the_page_is_long() -> None:
    long = {path.name: count for path in PAGE.rglob("*.js") if (count := len(path.read_text().splitlines())) > 400}
    assert long == {}
