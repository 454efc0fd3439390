"""Where code cites the method, the section is there to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = re.findall(r"^## (.+)$", (ROOT / "docs" / "method.md").read_text(encoding="utf-8"), re.MULTILINE)
FILES = sorted(
    path
    for folder in ("src", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__) and "method.md" in path.read_text(encoding="utf-8")
)


def test_the_page_has_sections_and_the_code_cites_it():
    assert len(SECTIONS) == len(set(SECTIONS)) > 8
    assert len(FILES) > 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cited_section_exists(path):
    # A citation may be broken over two lines, of a docstring or a comment.
    text = re.sub(r"\s*\n\s*(#\s*)?", " ", path.read_text(encoding="utf-8"))
    cited = re.findall(r"(\S*)method\.md(?:, \"([^\"]+)\")?", text)
    assert cited
    for before, section in cited:
        assert before.endswith("docs/"), f"{path.name}: cite docs/method.md"
        assert section in SECTIONS, f"{path.name}: cites {section!r}; sections are {', '.join(SECTIONS)}"
