"""Who cites ``docs/method.md`` names a section that is there: ``docs/method.md, "Certificate"``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "method.md"
# The citation, with the section after it; or, between documents, a link to the page or to a place in it.
CITATION = re.compile(r'(?P<folder>docs/)?method\.md(?:#(?P<anchor>[\w-]+))?(?:\)|, "(?P<section>[^"]+)")?')


def headings(text: str) -> set[str]:
    return {line.lstrip("#").strip() for line in text.splitlines() if re.match(r"#+ ", line)}


def anchor(heading: str) -> str:
    """The anchor that a heading gets when the page is shown."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def wrong(text: str, known: set[str], *, document: bool = False) -> Iterator[str]:
    """The citations in ``text`` that lead nowhere. A citation may go on in the next line, of a comment too."""
    flat = re.sub(r"\s*\n\s*(?:#\s+)?", " ", text)
    for found in CITATION.finditer(flat):
        section, place = found["section"], found["anchor"]
        linked = document and flat[: found.start()].endswith("](")
        if linked and (place is None or place in {anchor(heading) for heading in known}):
            continue
        if not found["folder"] or section not in known:
            yield flat[max(0, found.start() - 20) : found.end() + 40]


def places(*folders: str) -> list[Path]:
    files = [file for folder in folders for kind in ("*.py", "*.md") for file in (ROOT / folder).rglob(kind)]
    return [file for file in files if file not in (PAGE, Path(__file__))]


def problems(files: list[Path]) -> list[str]:
    known = headings(PAGE.read_text())
    return [
        f"{file.relative_to(ROOT)}: …{place}…"
        for file in sorted(files)
        for place in wrong(file.read_text(), known, document=file.suffix == ".md")
    ]


LATER = ("src/ecbm/edit", "src/ecbm/train")


def test_cited_sections_exist() -> None:
    later = set(places(*LATER))
    files = [file for file in places("src", "tests", "benchmarks", "docs") if file not in later]
    assert problems([*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]) == []


@pytest.mark.xfail(strict=True, reason="bare citations are left in these two folders")
def test_cited_sections_exist_in_training_and_editing() -> None:
    assert problems(places(*LATER)) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""A bound (docs/method.md, "Certificate")."""',
        '"""A bound (docs/method.md,\n    "Bounds for\n    influence steps"; George et al. 2018)."""',
        '# A bound that is long to explain: docs/method.md,\n# "Certificate".',
    ],
)
def test_a_citation_may_be_wrapped(text: str) -> None:
    assert list(wrong(text, {"Certificate", "Bounds for influence steps"})) == []


@pytest.mark.parametrize(
    "text",
    [
        "see method.md",
        "(method.md, Certificate)",
        '(method.md, "Certificate")',
        '(docs/method.md, "Certificates")',
        "(docs/method.md)",
        "[the certificate](method.md#certificates)",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str) -> None:
    for document in (False, True):
        assert len(list(wrong(text, {"Certificate"}, document=document))) == 1


def test_documents_may_link_to_the_page_or_to_a_section() -> None:
    text = "[the method](method.md), [its slips](docs/method.md#slips-of-the-paper)"
    assert list(wrong(text, {"Slips of the paper"}, document=True)) == []
    assert len(list(wrong(text, {"Slips of the paper"}))) == 2


def test_the_page_has_each_heading_once() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("#")]
    assert len(lines) == len(set(lines))
