"""The commands and the code of the guide to workspaces run as they stand there."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest
from attack_malformed import command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "workspace.md").read_text(encoding="utf-8")


def blocks(kind: str) -> str:
    return "\n".join(re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL))


def test_the_commands_run_in_a_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = json.loads(blocks("json"))
    for name in ("add_samples", "add_concepts"):
        del content[name]
    Path("edit.json").write_text(json.dumps(content))
    lines = [shlex.split(line, comments=True) for line in blocks("sh").splitlines()]
    assert len(lines) > 10
    for words in lines:
        words = [{"600": "120", "4": "1"}.get(word, word) for word in words]
        status, out, err = command(*words[1:])
        assert (status, err) == (0, ""), words
        assert out


def test_the_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python"), "docs/workspace.md", "exec"), {})


@pytest.mark.parametrize("name", ["workspace", "words", "naming"])
def test_the_examples_of_docstrings_run(name):
    failed, tried = doctest.testmod(importlib.import_module(f"ecbm.keep.{name}"))
    assert failed == 0
    assert tried > 0


@pytest.mark.parametrize("guide", ["workspace.md", "reliability.md"])
def test_links_lead_somewhere(guide):
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (ROOT / "docs" / target).exists(), target
