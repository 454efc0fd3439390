"""The list of full runs says what lies there, and every link in it and in the runs' pages leads somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"


def _module():
    given = importlib.util.spec_from_file_location("website_results", ROOT / "website" / "results.py")
    found = importlib.util.module_from_spec(given)
    given.loader.exec_module(found)
    return found


def test_the_list_of_full_runs_is_that_of_the_files():
    assert (RESULTS / "README.md").read_text("utf-8") == _module().listing(), "run: python website/results.py"


def test_links_of_the_full_runs_lead_somewhere():
    for page in RESULTS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_a_run_is_listed_with_what_it_shows_and_the_files_that_it_has(tmp_path):
    (tmp_path / "wrens").mkdir()
    for name in ("bounds", "table1"):
        one = {
            "experiment": name,
            "title": name.upper(),
            "setting": "wrens: 5 samples",
            "summary": f"{name} | holds.",
        }
        (tmp_path / "wrens" / f"{name}.json").write_text(json.dumps(one))
    (tmp_path / "wrens" / "table1.csv").write_text("a\n")
    found = _module().listing(tmp_path)
    assert "## wrens\n\nwrens: 5 samples.\n" in found
    first, second = found.splitlines()[-2:]
    csv, value = "[CSV](wrens/table1.csv)", "[JSON](wrens/table1.json)"
    assert first == f"| [TABLE1](wrens/table1.md) | table1 \\| holds. | {csv} {value} |"
    assert "CSV" not in second
