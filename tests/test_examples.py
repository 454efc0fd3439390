"""The notebooks in ``examples/`` run from top to bottom, on little data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ecbm
from kit import tabular

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))

# Sizes that make a notebook slow, and smaller ones that it is run with.
SMALLER = {
    "first_edit.ipynb": [(r"SAMPLES, EPOCHS = \d+, \d+", "SAMPLES, EPOCHS = 120, 1")],
    "paper_in_ten_minutes.ipynb": [('DATA, OUT = "birds"', 'DATA, OUT = "finches"')],
    "auditing_an_erasure.ipynb": [(r"REFERENCES = \d+", "REFERENCES = 8")],
}


def test_every_notebook_is_run():
    assert set(SMALLER) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    if name == "paper_in_ten_minutes.ipynb":
        pytest.importorskip("matplotlib")
        ecbm.write_dataset(tabular(120, 8), tmp_path / "finches")
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / name).read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    whole = "\n".join(code)
    for slow, _ in SMALLER[name]:
        assert re.search(slow, whole), f"{name}: {slow} is not there any more"
    names: dict[str, object] = {}
    for number, text in enumerate(code):
        for slow, quick in SMALLER[name]:
            text = re.sub(slow, quick, text)
        exec(compile(text, f"{name}, cell {number}", "exec"), names)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_output(name):
    for cell in json.loads((EXAMPLES / name).read_text("utf-8"))["cells"]:
        assert not cell.get("outputs"), "outputs would go stale"
