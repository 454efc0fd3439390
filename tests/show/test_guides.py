"""The README and the guides show code that runs and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ["README.md", "docs/training.md", "docs/interventions.md", "docs/models.md"]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / guide).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert "ecbm." in code
    code = re.sub(r"\bn=\d+", "n=160", re.sub(r"epochs=\d+", "epochs=1", code))
    exec(compile(code, guide, "exec"), {})


@pytest.mark.parametrize("guide", [*GUIDES, "CONTRIBUTING.md", "CHANGELOG.md", "docs/data.md"])
def test_links_lead_somewhere(guide):
    text = (ROOT / guide).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (ROOT / guide).parent.joinpath(target).exists(), target
