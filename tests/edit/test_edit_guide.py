"""The guide to editing shows code that runs and says what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "editing.md"


def test_the_code_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL))
    exec(compile(code, "docs/editing.md", "exec"), {})
    printed = capsys.readouterr().out
    for line in (
        "correct 1 concept label of 1 sample; remove 2 samples",
        "unknown concept 'radius=smal'; did you mean 'radius=small'",
        "correct 1 class label; remove 1 sample",
    ):
        assert line in printed
